// Table and text of device programs: see device_program.h.
#include "jit/cuda/device_program.h"

#include <algorithm>
#include <cstddef>

#include "ir/core/text_form.h"

namespace lathe::jit {

namespace {

constexpr char kind_of(ir::DType type) {
  switch (type) {
    case ir::DType::i8:
    case ir::DType::u8:
    case ir::DType::i32:
      return 'i';
    case ir::DType::b8:
      return 'b';
    case ir::DType::i64:
    case ir::DType::f64:
      return 'l';
    default:
      return 'f';
  }
}

constexpr DeviceOpRow kOps[] = {
#define LATHE_DEVICE_OP(id, result, operands, device, host) \
  {#id, ir::Op::k_##id, result == 'f' ? ir::DType::f32 : ir::DType::b8, result, operands},
#include "jit/cuda/device_ops.def"
#undef LATHE_DEVICE_OP
#define LATHE_INTEGER_OP(id, node, type, operands, device, host) \
  {#id, ir::Op::k_##node, ir::DType::type, kind_of(ir::DType::type), operands},
#include "jit/cuda/integer_ops.def"
#undef LATHE_INTEGER_OP
};

constexpr WarpOpRow kWarpOps[] = {
#define LATHE_WARP_OP(id, results, operands, type) {#id, results, operands, ir::DType::type, kWarpThreads},
#define LATHE_WARPGROUP_OP(id, factors, type) {#id, "f", factors, ir::DType::type, kGroupThreads},
#include "jit/cuda/warp_ops.def"
#undef LATHE_WARP_OP
};

std::string type_prefix(ir::DType type) {
  return type == ir::DType::f32 ? "" : fmt::format("{} ", ir::dtype_name(type));
}

class Printer {
 public:
  explicit Printer(const DeviceProgram& p) : p_(p) {}
  std::string run() {
    out_ = fmt::format("program {} threads {} ", p_.name, p_.threads);
    if (p_.cluster > 1) out_ += fmt::format("cluster {} ", p_.cluster);
    out_ += "(";
    std::vector<std::string> args;
    for (const DeviceParam& q : p_.params) {
      std::string type = type_prefix(q.type);
      if (q.bits) type += "bits ";
      args.push_back(fmt::format("{}: {}{}", q.name, type, q.written ? "out" : "in"));
    }
    for (const std::string& e : p_.sizes) args.push_back(e);
    out_ += fmt::format("{})\n", fmt::join(args, ", "));
    for (const DeviceLocal& l : p_.locals)
      out_ += fmt::format("  local {}{}[{}]{}\n", type_prefix(l.type), l.name, l.count, l.fours ? " fours" : "");
    for (const DeviceShared& s : p_.shared)
      out_ += fmt::format("  shared {}{}[{}]{}\n", type_prefix(s.type), s.name, s.count,
                          s.swizzle != 0 ? fmt::format(" swizzle {}", s.swizzle) : "");
    for (const DeviceMap& m : p_.maps) {
      out_ += fmt::format("  map {} of {} [", m.name, p_.params[static_cast<size_t>(m.param)].name);
      for (size_t d = 0; d < m.sizes.size(); ++d)
        out_ += fmt::format("{}{}{}", d == 0 ? "" : ", ", ir::print(m.sizes[d]),
                            d == 0 ? "" : " by " + ir::print(m.strides[d - 1]));
      out_ += fmt::format("] box {}\n", fmt::join(m.box, " x "));
    }
    for (const DeviceRing& r : p_.rings)
      out_ += fmt::format("  ring {}[{}] arrivals {}{}\n", r.name, r.places, ir::print(r.arrivals),
                          r.read < 0 ? "" : " read " + p_.rings[static_cast<size_t>(r.read)].name);
    body(p_.body, 1);
    return std::move(out_);
  }

 private:
  std::string place(const DevicePlace& at) const { return fmt::format("{}[{}]", p_.name_of(at), ir::print(at.offset)); }
  std::string ring(const DeviceStmt& s) const {
    return fmt::format("{}[{}]{}", p_.rings[static_cast<size_t>(s.ring)].name, ir::print(s.integer),
                       s.all ? " of all blocks" : "");
  }
  static std::string lanes(const DeviceStmt& s) {
    if (s.lanes == 1) return "";
    return fmt::format(" x{}", s.lanes) + (ir::is_const_int(s.step, 1) ? "" : " step " + ir::print(s.step));
  }
  static std::string operand(const DeviceOperand& o) {
    if (o.value >= 0) return fmt::format("v{}", o.value);
    return o.whole ? fmt::format("{}", o.number) : ir::print(ir::const_float(o.constant));
  }
  void blocks(const DeviceStmt& s, int indent) {
    body(s.body, indent + 1);
    if (s.otherwise.empty()) return;
    out_.append(static_cast<size_t>(2 * indent), ' ');
    out_ += "else:\n";
    body(s.otherwise, indent + 1);
  }
  void body(const std::vector<DeviceStmt>& list, int indent) {
    using Kind = DeviceStmt::Kind;
    for (const DeviceStmt& s : list) {
      out_.append(static_cast<size_t>(2 * indent), ' ');
      switch (s.kind) {
        case Kind::let:
          out_ += fmt::format("let {} = {}\n", s.name, ir::print(s.integer));
          break;
        case Kind::take:
          out_ += fmt::format("take {} = {} in {}..{}\n", s.name, place(s.places[0]), ir::print(s.integer),
                              ir::print(s.step));
          break;
        case Kind::when:
          out_ += fmt::format("if {}:\n", ir::print(s.integer));
          blocks(s, indent);
          break;
        case Kind::aligned: {
          std::vector<std::string> all;
          for (const DevicePlace& at : s.places) all.push_back(place(at));
          out_ += "if ";
          if (s.integer) out_ += fmt::format("{} and ", ir::print(s.integer));
          out_ += fmt::format("aligned x{} {}:\n", s.lanes, fmt::join(all, ", "));
          blocks(s, indent);
          break;
        }
        case Kind::loop:
          out_ += fmt::format("for {} < {}", s.name, ir::print(s.integer));
          out_ += s.unrolled == 0 ? ":\n" : fmt::format(" unrolled {}:\n", s.unrolled);
          body(s.body, indent + 1);
          break;
        case Kind::load:
          out_ += fmt::format("v{} = load{}{} {}\n", s.value, s.bits ? " bits" : "", lanes(s), place(s.places[0]));
          break;
        case Kind::set:
          out_ += fmt::format("v{} = {}", s.value, device_op(s.op).name);
          for (const DeviceOperand& o : s.operands) out_ += " " + operand(o);
          out_ += "\n";
          break;
        case Kind::fold:
          out_ += fmt::format("v{} = fold {}", s.value, device_op(s.op).name);
          for (const DeviceOperand& o : s.operands) out_ += " " + operand(o);
          out_ += "\n";
          break;
        case Kind::index:
          out_ += fmt::format("v{} = index{}", s.value, s.whole ? " i32" : "");
          if (!s.name.empty()) out_ += fmt::format(" x{} {}", s.lanes, s.name);
          out_ += fmt::format(" {}\n", ir::print(s.integer));
          break;
        case Kind::shuffle:
          out_ += fmt::format("v{} = shuffle {} {}\n", s.value, s.distance, operand(s.operands[0]));
          break;
        case Kind::barrier:
          out_ += "barrier\n";
          break;
        case Kind::warp_barrier:
          out_ += "barrier of the warp\n";
          break;
        case Kind::cluster_barrier:
          out_ += "barrier of the cluster\n";
          break;
        case Kind::warp: {
          std::vector<std::string> all;
          for (const DevicePlace& at : s.places) all.push_back(place(at));
          const size_t held = warp_op(s.warp).goes_on() ? warp_op(s.warp).held() : 0;
          for (size_t i = 0; i < s.tiles.size() && i + 1 + held < all.size(); ++i)
            all[i + 1 + held] += fmt::format(" {} {}", s.tiles[i].across ? "across" : "along", s.tiles[i].lines) +
                                 (s.tiles[i].panels == 0 ? "" : fmt::format(" {}", s.tiles[i].panels));
          if (s.columns > 0) all[0] += fmt::format(" x{}", s.columns);
          const size_t results = std::min(std::string_view(warp_op(s.warp).results).size(), all.size());
          out_ += fmt::format("{} {} from {}\n", warp_op(s.warp).name,
                              fmt::join(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(results), ", "),
                              fmt::join(all.begin() + static_cast<std::ptrdiff_t>(results), all.end(), ", "));
          break;
        }
        case Kind::copy:
          out_ += fmt::format("copy{} {} {}\n", lanes(s), place(s.places[0]), place(s.places[1]));
          break;
        case Kind::commit:
          out_ += "commit\n";
          break;
        case Kind::await:
          out_ += fmt::format("await {}\n", s.groups);
          break;
        case Kind::fence_sums:
          out_ += "fence sums\n";
          break;
        case Kind::fence_shared:
          out_ += "fence shared\n";
          break;
        case Kind::commit_products:
          out_ += "commit products\n";
          break;
        case Kind::await_products:
          out_ += fmt::format("await products {}\n", s.groups);
          break;
        case Kind::open_rings:
          out_ += "open rings\n";
          break;
        case Kind::expect:
          out_ += fmt::format("expect {} bytes in {}\n", s.bytes, ring(s));
          break;
        case Kind::arrive:
          out_ += fmt::format("arrive {}\n", ring(s));
          break;
        case Kind::await_ring:
          out_ += fmt::format("await {} parity {}\n", ring(s), ir::print(s.step));
          break;
        case Kind::box: {
          std::vector<std::string> at;
          for (const ir::Expr& e : s.at) at.push_back(ir::print(e));
          out_ += fmt::format("box {} {}[{}] in {}\n", place(s.places[0]), p_.maps[static_cast<size_t>(s.map)].name,
                              fmt::join(at, ", "), ring(s));
          break;
        }
        case Kind::count:
          out_ += fmt::format("count {}\n", s.name);
          break;
        case Kind::add:
          out_ += fmt::format("add {} {}\n", s.name, ir::print(s.integer));
          break;
        case Kind::roles: {
          const auto with = [](int n) { return n == 0 ? std::string() : fmt::format(" with {} registers", n); };
          out_ += fmt::format("last {} threads{}:\n", p_.roles.fillers, with(p_.roles.filler_registers));
          body(s.body, indent + 1);
          out_.append(static_cast<size_t>(2 * indent), ' ');
          out_ += fmt::format("others{}:\n", with(p_.roles.reader_registers));
          body(s.otherwise, indent + 1);
          break;
        }
        case Kind::store:
          out_ += fmt::format("store{} {} {}\n", lanes(s), place(s.places[0]), operand(s.operands[0]));
          break;
      }
    }
  }

  const DeviceProgram& p_;
  std::string out_;
};

}  // namespace

const DeviceOpRow& device_op(DeviceOp op) { return kOps[static_cast<size_t>(op)]; }

int64_t DeviceMap::elements() const {
  int64_t out = 1;
  for (const int b : box) out *= b;
  return out;
}

bool DeviceMap::same(const DeviceMap& o) const {
  const auto alike = [](const std::vector<ir::Expr>& a, const std::vector<ir::Expr>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const ir::Expr& x, const ir::Expr& y) { return equal(x, y); });
  };
  return param == o.param && box == o.box && alike(sizes, o.sizes) && alike(strides, o.strides);
}

char value_kind(ir::DType type) { return kind_of(type); }

char DeviceParam::kind() const { return bits && type == ir::DType::b8 ? 'i' : kind_of(type); }

const DeviceOpRow* find_device_op(ir::Op node, ir::DType type, std::string_view operands, DeviceOp* op) {
  const auto* at = std::find_if(std::begin(kOps), std::end(kOps), [&](const DeviceOpRow& r) {
    return r.node == node && r.type == type && operands == r.operands;
  });
  if (at == std::end(kOps)) return nullptr;
  *op = static_cast<DeviceOp>(at - std::begin(kOps));
  return at;
}

int dynamic_shared(const DeviceProgram& program) {
  int64_t bytes = 0;
  bool swizzled = false;
  for (const DeviceShared& s : program.shared) {
    bytes = (bytes + s.alignment() - 1) / s.alignment() * s.alignment() + s.bytes();
    swizzled = swizzled || s.swizzle != 0;
  }
  for (const DeviceRing& r : program.rings) bytes += int64_t{r.places} * kRingBytes;
  return bytes <= kStaticShared && !swizzled ? 0 : static_cast<int>(bytes);
}

// fmax drops a NaN of its first operand alone.
size_t running_operand(DeviceOp op) {
  if (op == DeviceOp::k_fma) return 2;
  return op == DeviceOp::k_fmax ? 1 : 0;
}

const std::string& DeviceProgram::name_of(const DevicePlace& at) const {
  const auto i = static_cast<size_t>(at.index);
  return at.space == DevicePlace::Space::param   ? params[i].name
         : at.space == DevicePlace::Space::local ? locals[i].name
                                                 : shared[i].name;
}

ir::DType DeviceProgram::type_of(const DevicePlace& at) const {
  const auto i = static_cast<size_t>(at.index);
  return at.space == DevicePlace::Space::param   ? params[i].type
         : at.space == DevicePlace::Space::local ? locals[i].type
                                                 : shared[i].type;
}

bool WarpOpRow::takes(char place, ir::DType of, int elements) const {
  if (place == 's') return dtype_bytes(of) == dtype_bytes(type);
  if (elements != elements_of(place)) return false;
  if (moves()) return dtype_bytes(of) == dtype_bytes(type);
  switch (place) {
    case 'f':
      return of == ir::DType::f32;
    case 'i':
      return of == ir::DType::i32;
    case 'q':
      return of == ir::DType::i8;
    case 'u':
      return of == ir::DType::u8;
    default:
      return of == type;
  }
}

const WarpOpRow& warp_op(WarpOp op) { return kWarpOps[static_cast<size_t>(op)]; }

const WarpOpRow* find_warp_op(std::string_view intrinsic, WarpOp* op) {
  const auto* at =
      std::find_if(std::begin(kWarpOps), std::end(kWarpOps), [&](const WarpOpRow& r) { return intrinsic == r.name; });
  if (at == std::end(kWarpOps)) return nullptr;
  *op = static_cast<WarpOp>(at - std::begin(kWarpOps));
  return at;
}

std::string print(const DeviceProgram& program) { return Printer(program).run(); }

}  // namespace lathe::jit
