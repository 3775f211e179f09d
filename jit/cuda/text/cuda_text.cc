// See cuda_text.h.
#include "jit/cuda/text/cuda_text.h"

#include <algorithm>
#include <bit>
#include <set>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"
#include "jit/cuda/text/filling_loops.h"
#include "jit/cuda/text/integer_text.h"
#include "jit/cuda/text/swizzled_places.h"
#include "jit/cuda/text/type_text.h"

namespace lathe::jit {

using ir::Expr;
using ir::Op;

namespace {

class Writer {
 public:
  explicit Writer(const DeviceProgram& p) : p_(p), kept_(p) { find_used(p.body); }

  std::string run(const std::string& kernel, int blocks) {
    for (const int columns : group_columns_) line("#define LT_WGMMA_{}", columns);
    line("#include \"{}\"", kPreludeName);
    out_ += swizzle_functions(p_);
    line("struct lt_args {{");
    for (const DeviceParam& q : p_.params) line("  {}{}* {};", q.written ? "" : "const ", type_of(q), q.name);
    for (const std::string& e : p_.sizes) line("  lt_int {};", e);
    for (const DeviceMap& m : p_.maps) line("  lt_map {};", m.name);
    line("}};");
    if (p_.cluster > 1) {
      line("LT_CLUSTER_KERNEL({}, {}, {}, {}, lt_args, a) {{", kernel, p_.threads, blocks, p_.cluster);
    } else {
      line("LT_KERNEL({}, {}, {}, lt_args, a) {{", kernel, p_.threads, blocks);
    }
    for (const DeviceLocal& l : p_.locals) {
      const bool packed = l.elements() > 1;
      line("  {} {}[{}];", packed ? "unsigned" : name_of(value_kind(l.type)), l.name, packed ? l.registers() : l.count);
    }
    const int dynamic = dynamic_shared(p_);
    if (dynamic > 0) line("  LT_DYNAMIC_SHARED(lt_all, {});", dynamic);
    int64_t first = 0;
    for (const DeviceShared& s : p_.shared) {
      first = (first + s.alignment() - 1) / s.alignment() * s.alignment();
      if (dynamic > 0) line("  {0}* const {1} = ({0}*)(lt_all + {2});", element_name(s.type), s.name, first);
      if (dynamic == 0) line("  LT_SHARED({}, {}, {});", element_name(s.type), s.name, s.count);
      first += s.bytes();
    }
    for (const DeviceRing& r : p_.rings) {
      line("  lt_ring* const {} = (lt_ring*)(lt_all + {});", r.name, first);
      first += int64_t{r.places} * kRingBytes;
    }
    for (const std::string& kept : kept_.declarations()) line("  {}", kept);
    body(p_.body);
    line("}}");
    return std::move(out_);
  }

 private:
  void find_used(const std::vector<DeviceStmt>& list) {
    const auto look = [&](const Expr& e) {
      if (e) ir::for_each_node(e, [&](const ir::ExprNode& n) { used_.insert(n.name); });
    };
    for (const DeviceStmt& s : list) {
      look(s.integer);
      look(s.step);
      for (const Expr& e : s.at) look(e);
      for (const DevicePlace& at : s.places) look(at.offset);
      if (s.columns > 0) group_columns_.insert(s.columns);
      find_used(s.body);
      find_used(s.otherwise);
    }
  }

  template <class... A>
  void line(fmt::format_string<A...> format, A&&... args) {
    out_.append(static_cast<size_t>(2 * indent_), ' ');
    fmt::format_to(std::back_inserter(out_), format, std::forward<A>(args)...);
    out_ += '\n';
  }

  static std::string integer(const Expr& e) { return integer_text(e); }

  char kind_of(const DevicePlace& at) const {
    const auto i = static_cast<size_t>(at.index);
    return is_local(at)    ? value_kind(p_.locals[i].type)
           : is_shared(at) ? value_kind(p_.shared[i].type)
                           : p_.params[i].kind();
  }

  std::string place(const DevicePlace& at, const std::string& further = {}) const {
    if (is_local(at))
      return fmt::format("{}[{}{}]", p_.locals[static_cast<size_t>(at.index)].name, integer(at.offset), further);
    if (const std::string kept = further.empty() ? kept_.find(at) : ""; !kept.empty()) return kept;
    if (is_shared(at)) return place_in(p_.shared[static_cast<size_t>(at.index)], at.offset, further);
    return fmt::format("a.{} + {}{}", p_.params[static_cast<size_t>(at.index)].name, integer(at.offset), further);
  }
  int bytes_of(const DevicePlace& at) const { return dtype_bytes(p_.params[static_cast<size_t>(at.index)].type); }
  int most_lanes(const DevicePlace& at) const {
    if (is_shared(at)) return lanes_of_shared(p_.shared[static_cast<size_t>(at.index)].type);
    return lanes_at_once(p_.params[static_cast<size_t>(at.index)].type);
  }
  static std::string further(int elements) { return elements == 0 ? "" : fmt::format(" + {}ll", elements); }
  static bool is_local(const DevicePlace& at) { return at.space == DevicePlace::Space::local; }
  static bool is_shared(const DevicePlace& at) { return at.space == DevicePlace::Space::shared; }
  bool is_packed(const DevicePlace& at) const {
    return is_local(at) && p_.locals[static_cast<size_t>(at.index)].elements() > 1;
  }
  // The register of an element of a packed local, and one after it.
  std::string packed(const DevicePlace& at, int64_t further = 0) const {
    const DeviceLocal& l = p_.locals[static_cast<size_t>(at.index)];
    return fmt::format("{}[{}]", l.name,
                       integer(ir::simplify(ir::floordiv(at.offset, Expr(l.elements())) + Expr(further))));
  }
  static bool is_whole(const DeviceStmt& s) {
    return s.lanes > 1 && ir::is_const_int(s.step, 1) && ir::proves_divisible(s.places[0].offset, 2, {});
  }
  DevicePlace lane_place(const DeviceStmt& s, int lane) const {
    DevicePlace at = s.places[0];
    if (lane > 0) at.offset = ir::simplify(at.offset + Expr(lane) * s.step);
    return at;
  }
  std::string half(const DevicePlace& at) const { return integer(ir::simplify(ir::mod(at.offset, Expr(2)))); }
  static const char* load_name(const DevicePlace& at) { return is_shared(at) ? "lt_get" : "lt_load"; }
  static const char* store_name(const DevicePlace& at) { return is_shared(at) ? "lt_put" : "lt_store"; }
  static std::string lane_step(const DeviceStmt& s, int lane) {
    return lane == 0 ? "" : fmt::format(" + {}ll * {}", lane, integer(s.step));
  }

  // One lane of an operand; what has one lane is the same in all.
  std::string operand(const DeviceOperand& o, int lane) const {
    if (o.value < 0 && o.whole)
      return o.number < 0 ? fmt::format("(int){:#x}u", static_cast<uint32_t>(o.number)) : fmt::format("{}", o.number);
    if (o.value < 0) return fmt::format("lt_float({:#010x}u)", std::bit_cast<uint32_t>(o.constant));
    return fmt::format("v{}_{}", o.value, lanes_[static_cast<size_t>(o.value)] == 1 ? 0 : lane);
  }

  void define(const DeviceStmt& s, char kind = 'f') {
    define(s.value, s.lanes, kind);
    if (s.bits) bits_.insert(s.value);
  }
  void define(int value, int lanes, char kind) {
    const auto at = static_cast<size_t>(value);
    if (lanes_.size() <= at) lanes_.resize(at + 1, 1);
    if (kinds_.size() <= at) kinds_.resize(at + 1, 'f');
    lanes_[at] = lanes;
    kinds_[at] = kind;
  }

  // Elements of 2 bytes as they are: registers of two, one of one.
  void load_bits(const DeviceStmt& s) {
    define(s);
    const DevicePlace& at = s.places[0];
    if (is_packed(at)) {
      if (s.lanes == 1) line("const unsigned v{}_0 = lt_half({}, {});", s.value, packed(at), half(at));
      for (int i = 0; i < s.lanes / 2; ++i) line("const unsigned v{}_{} = {};", s.value, i, packed(at, i));
      return;
    }
    const char* name = is_shared(at) ? "lt_get_bits" : "lt_load_bits";
    if (s.lanes <= 2) {
      line("const unsigned v{}_0 = {}{}({});", s.value, name, s.lanes, place(at));
      return;
    }
    line("const lt_b{0} w{1} = {3}{0}({2});", s.lanes, s.value, place(at), name);
    for (int i = 0; i < s.lanes / 2; ++i) line("const unsigned v{0}_{1} = w{0}.{2};", s.value, i, "xyzw"[i]);
  }
  void store_bits(const DeviceStmt& s) {
    const DevicePlace& at = s.places[0];
    const int value = s.operands[0].value;
    const auto bits = [&](int i) { return value < 0 ? std::string("0u") : fmt::format("v{}_{}", value, i); };
    if (is_packed(at)) {
      if (s.lanes == 1) line("lt_set_half({}, {}, {});", packed(at), half(at), bits(0));
      for (int i = 0; i < s.lanes / 2; ++i) line("{} = {};", packed(at, i), bits(i));
      return;
    }
    std::string all;
    for (int i = 0; i < std::max(s.lanes / 2, 1); ++i) all += ", " + bits(i);
    line("lt_put_bits{}({}{});", s.lanes, place(at), all);
  }
  // Rounded.
  void store_packed(const DeviceStmt& s) {
    const DeviceLocal& l = p_.locals[static_cast<size_t>(s.places[0].index)];
    const auto value = [&](int lane) { return operand(s.operands[0], lane); };
    const char* type = element_name(l.type);
    if (is_whole(s)) {
      for (int i = 0; i < s.lanes; i += 2)
        line("{} = lt_pack<{}>({}, {});", packed(s.places[0], i / 2), type, value(i), value(i + 1));
      return;
    }
    for (int i = 0; i < s.lanes; ++i) {
      const DevicePlace at = lane_place(s, i);
      line("lt_set_half({}, {}, lt_pack<{}>({}, 0.0f));", packed(at), half(at), type, value(i));
    }
  }

  void load(const DeviceStmt& s) {
    if (s.bits) return load_bits(s);
    const char kind = kind_of(s.places[0]);
    const char *type = name_of(kind), *is = kind == 'b' ? " != 0" : "";
    define(s, kind);
    if (is_packed(s.places[0])) {
      for (int l = 0; l < s.lanes; ++l) {
        const DevicePlace at = lane_place(s, l);
        line("const float v{}_{} = lt_widen({}{{static_cast<unsigned short>(lt_half({}, {}))}});", s.value, l,
             element_name(p_.locals[static_cast<size_t>(at.index)].type), packed(at), half(at));
      }
      return;
    }
    const bool local = is_local(s.places[0]);
    if (!local && s.lanes > 1 && ir::is_const_int(s.step, 1)) {
      const int at_once = std::min(s.lanes, most_lanes(s.places[0]));
      for (int first = 0; first < s.lanes; first += at_once) {
        const std::string part = s.lanes == at_once ? "" : fmt::format("_{}", first);
        line("const {5}{0} w{1}{4} = {3}{0}({2});", at_once, s.value, place(s.places[0], further(first)),
             load_name(s.places[0]), part, vector_of(kind));
        for (int l = 0; l < at_once; ++l)
          line("const {4} v{0}_{1} = w{0}{3}.{2}{5};", s.value, first + l, "xyzwabcdefghijkl"[l], part, type, is);
      }
      return;
    }
    for (int l = 0; l < s.lanes; ++l)
      line("const {5} v{0}_{1} = {2}{3}{4}{6};", s.value, l, local ? "" : load_name(s.places[0]) + std::string("1("),
           place(s.places[0], lane_step(s, l)), local ? "" : ")", type, is);
  }

  void store(const DeviceStmt& s) {
    const int stored = s.operands[0].value;
    if (stored < 0 ? s.bits : bits_.count(stored) != 0) return store_bits(s);
    if (is_packed(s.places[0])) return store_packed(s);
    const auto value = [&](int lane) { return operand(s.operands[0], lane); };
    if (is_local(s.places[0])) {
      for (int l = 0; l < s.lanes; ++l) line("{} = {};", place(s.places[0], lane_step(s, l)), value(l));
      return;
    }
    if (s.lanes > 1 && ir::is_const_int(s.step, 1)) {
      const int at_once = std::min(s.lanes, most_lanes(s.places[0]));
      for (int first = 0; first < s.lanes; first += at_once) {
        std::string all;
        for (int l = 0; l < at_once; ++l) all += ", " + value(first + l);
        line("{}{}({}{});", store_name(s.places[0]), at_once, place(s.places[0], further(first)), all);
      }
      return;
    }
    for (int l = 0; l < s.lanes; ++l)
      line("{}1({}, {});", store_name(s.places[0]), place(s.places[0], lane_step(s, l)), value(l));
  }

  void set(const DeviceStmt& s) {
    const DeviceOpRow& row = device_op(s.op);
    define(s, row.result);
    for (int l = 0; l < s.lanes; ++l) {
      std::string args;
      for (const DeviceOperand& o : s.operands) args += (args.empty() ? "" : ", ") + operand(o, l);
      line("const {} v{}_{} = lt_{}({});", name_of(row.result), s.value, l, row.name, args);
    }
  }

  // In the order of a loop over the lanes, so that results do not depend on which of both serves.
  void fold(const DeviceStmt& s) {
    const DeviceOpRow& row = device_op(s.op);
    const size_t running = running_operand(s.op);
    std::string so_far = operand(s.operands[running], 0);
    for (int l = 0; l < s.lanes; ++l) {
      std::string args;
      for (size_t i = 0; i < s.operands.size(); ++i)
        args += (i == 0 ? "" : ", ") + (i == running ? so_far : operand(s.operands[i], l));
      so_far = fmt::format("lt_{}({})", row.name, args);
    }
    define(s.value, 1, row.result);
    line("const {} v{}_0 = {};", name_of(row.result), s.value, so_far);
  }

  void index(const DeviceStmt& s) {
    const int lanes = s.name.empty() ? 1 : s.lanes;
    const char kind = s.integer->type == ir::DType::b8 ? 'b' : s.whole ? 'i' : 'f';
    define(s.value, lanes, kind);
    for (int l = 0; l < lanes; ++l) {
      const std::string value =
          integer(s.name.empty() ? s.integer : ir::substitute(s.integer, {{s.name, Expr(int64_t{l})}}));
      if (kind == 'b') {
        line("const bool v{}_{} = {};", s.value, l, value);
      } else {
        line("const {0} v{1}_{2} = static_cast<{0}>({3});", name_of(kind), s.value, l, value);
      }
    }
  }

  void loop(const DeviceStmt& s) {
    const bool part = s.unrolled > 0 && !ir::is_const_int(s.integer, s.unrolled);
    if (s.unrolled > 0) {
      line("LT_UNROLL");
      line("for (lt_int {0} = 0; {0} < {1}ll; ++{0}) {{", s.name, s.unrolled);
      if (part) line("  if ({} < {}) {{", s.name, integer(s.integer));
    } else {
      line("LT_LOOP");
      line("for (lt_int {0} = 0; {0} < {1}; ++{0}) {{{2}", s.name, integer(s.integer),
           fills(s.body) ? " LT_NO_FILL" : "");
    }
    body(s.body);
    line("{}}}", part ? "}" : "");
  }

  std::string ring(const DeviceStmt& s) const {
    return fmt::format("{} + {}", p_.rings[static_cast<size_t>(s.ring)].name, integer(s.integer));
  }
  void open_rings() {
    line("if (lt_thread() == 0) {{");
    for (const DeviceRing& r : p_.rings) {
      line("  LT_UNROLL");
      line("  for (lt_int i = 0; i < {}; ++i) lt_open_ring({} + i, (int)({}));", r.places, r.name, integer(r.arrivals));
    }
    line("  lt_opened_rings();");
    line("}}");
  }

  void role(const std::string& head, const char* change, int registers, const std::vector<DeviceStmt>& list) {
    line("{}", head);
    if (registers > 0) line("  lt_{}_registers<{}>();", change, registers);
    body(list);
  }

  // Sums lie together.
  void group(const DeviceStmt& s) {
    const DevicePlace& c = s.places[0];
    std::string all =
        fmt::format("{}, {} + {}", warps_++, p_.locals[static_cast<size_t>(c.index)].name, integer(c.offset));
    const size_t held = warp_op(s.warp).held();
    for (size_t i = 1; i <= held; ++i) all += ", " + packed(s.places[i]);
    std::vector<std::string> across;
    for (size_t i = 0; i < s.tiles.size(); ++i) {
      const DevicePlace& at = s.places[i + 1 + held];
      const DeviceTile& t = s.tiles[i];
      across.push_back(t.across ? "1" : "0");
      all += ", " + tile_in(p_.shared[static_cast<size_t>(at.index)], integer(at.offset), t);
    }
    line("lt_{}_{}<{}>({});", warp_op(s.warp).name, s.columns, fmt::join(across, ", "), all);
  }

  void blocks(const std::string& condition, const DeviceStmt& s) {
    line("if ({}) {{", condition);
    body(s.body);
    if (!s.otherwise.empty()) {
      line("}} else {{");
      body(s.otherwise);
    }
    line("}}");
  }

  void body(const std::vector<DeviceStmt>& list) {
    using Kind = DeviceStmt::Kind;
    ++indent_;
    for (const DeviceStmt& s : list) {
      switch (s.kind) {
        case Kind::let:
          if (used_.count(s.name) == 0) break;
          line("const lt_int {} = {};", s.name, integer(s.integer));
          break;
        case Kind::take:
          line("const lt_int {} = lt_most(lt_least({}[{}], {}), {});", s.name,
               "a." + p_.params[static_cast<size_t>(s.places[0].index)].name, integer(s.places[0].offset),
               integer(s.step), integer(s.integer));
          break;
        case Kind::when:
          blocks(integer(s.integer), s);
          break;
        case Kind::aligned: {
          std::string all = s.integer ? integer(s.integer) : "";
          for (const DevicePlace& at : s.places)
            all += fmt::format("{}lt_aligned({}, {})", all.empty() ? "" : " && ", place(at),
                               bytes_of(at) * std::min(s.lanes, most_lanes(at)));
          blocks(all.empty() ? "true" : all, s);
          break;
        }
        case Kind::loop:
          loop(s);
          break;
        case Kind::load:
          load(s);
          break;
        case Kind::set:
          set(s);
          break;
        case Kind::fold:
          fold(s);
          break;
        case Kind::index:
          index(s);
          break;
        case Kind::shuffle: {
          const int of = s.operands[0].value;
          const char kind = of < 0 ? 'f' : kinds_[static_cast<size_t>(of)];
          define(s.value, 1, kind);
          line("const {} v{}_0 = lt_shuffle({}, {});", name_of(kind), s.value, operand(s.operands[0], 0), s.distance);
          break;
        }
        case Kind::barrier:
          line("lt_barrier({});", barriers_++);
          break;
        case Kind::warp_barrier:
          line("lt_warp_barrier({});", warps_++);
          break;
        case Kind::cluster_barrier:
          line("lt_cluster_barrier();");
          break;
        case Kind::warp: {
          if (warp_op(s.warp).goes_on()) {
            group(s);
            break;
          }
          std::string all = fmt::format("{}", warps_++);
          for (const DevicePlace& at : s.places) all += ", " + (is_packed(at) ? packed(at) : place(at));
          line("lt_{}({});", warp_op(s.warp).name, all);
          break;
        }
        case Kind::copy:
          line("lt_copy{}({}, {});", s.lanes, place(s.places[0]), place(s.places[1]));
          break;
        case Kind::commit:
          line("lt_commit();");
          break;
        case Kind::fence_sums:
        case Kind::fence_shared:
          line("lt_fence_{}();", s.kind == Kind::fence_sums ? "sums" : "shared");
          break;
        case Kind::await:
          line("lt_await({});", s.groups);
          break;
        case Kind::commit_products:
          line("lt_commit_products({});", warps_++);
          break;
        case Kind::await_products:
          line("lt_await_products({}, {});", warps_++, s.groups);
          break;
        case Kind::open_rings:
          open_rings();
          break;
        case Kind::expect:
          line("lt_expect({}, {});", ring(s), s.bytes);
          break;
        case Kind::arrive:
          line("{}", s.all ? fmt::format("lt_arrive_in_all({}, {});", ring(s), p_.cluster)
                           : fmt::format("lt_arrive({});", ring(s)));
          break;
        case Kind::await_ring:
          line("lt_await_ring({}, {});", ring(s), integer(s.step));
          break;
        case Kind::box: {
          std::string at;
          for (const Expr& e : s.at) at += fmt::format(", (int)({})", integer(e));
          const DevicePlace& to = s.places[0];
          if (s.all) at = fmt::format(", {}", p_.cluster) + at;
          line("lt_{}box{}({} + {}, &a.{}, {}{});", s.all ? "shared_" : "", s.at.size(),
               p_.shared[static_cast<size_t>(to.index)].name, integer(to.offset),
               p_.maps[static_cast<size_t>(s.map)].name, ring(s), at);
          break;
        }
        case Kind::count:
          line("lt_int {} = 0ll;", s.name);
          break;
        case Kind::add:
          line("{} += {};", s.name, integer(s.integer));
          break;
        case Kind::roles:
          role(fmt::format("if (lt_thread() >= {}) {{", p_.readers()), "fewer", p_.roles.filler_registers, s.body);
          role("} else {", "more", p_.roles.reader_registers, s.otherwise);
          line("}}");
          break;
        case Kind::store:
          store(s);
          break;
      }
    }
    --indent_;
  }

  const DeviceProgram& p_;
  const KeptPlaces kept_;
  std::string out_;
  int indent_ = 0;
  int barriers_ = 0;             // so far
  int warps_ = 0;                // of what warps do together, so far
  std::set<std::string> used_;   // names
  std::set<int> group_columns_;  // N of what groups of warps compute
  std::set<int> bits_;           // values whose elements are as they are
  std::vector<int> lanes_;       // by value
  std::vector<char> kinds_;      // by value
};

}  // namespace

std::string cuda_text(const DeviceProgram& program, const std::string& kernel, int blocks) {
  return Writer(program).run(kernel, blocks);
}

}  // namespace lathe::jit
