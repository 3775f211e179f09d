// Rules of device programs: see device_program.h.
#include <algorithm>
#include <map>
#include <set>

#include "ir/analysis/analysis.h"
#include "ir/base/gpu_target.h"
#include "ir/core/text_form.h"
#include "jit/cuda/aligned_places.h"
#include "jit/cuda/device_program.h"
#include "jit/cuda/device_waits.h"
#include "jit/cuda/differing_names.h"

namespace lathe::jit {

using ir::invalid;
using ir::Status;

namespace {

class Verifier {
  using Space = DevicePlace::Space;
  using Among = DifferingNames::Among;

 public:
  explicit Verifier(const DeviceProgram& p) : p_(p), aligned_(p) {}
  Status run() {
    if (p_.threads < 1 || p_.threads > ir::kMaxBlockThreads)
      return invalid("block: {} threads, expected 1..{}", p_.threads, ir::kMaxBlockThreads);
    for (const char* builtin : {"block", "blocks", "thread"}) names_.insert(builtin);
    for (const std::string& e : p_.sizes) LATHE_RETURN_IF_ERROR(define(e));
    int64_t locals = 0;
    for (const DeviceLocal& l : p_.locals) {
      LATHE_RETURN_IF_ERROR(define(l.name));
      names_.erase(l.name);
      if (l.count < 1) return invalid("locals: {} has {} elements", l.name, l.count);
      if (l.registers() > kMostLocals)
        return invalid("locals: {} has {} registers, expected at most {}", l.name, l.registers(), kMostLocals);
      locals += l.registers();
    }
    if (locals > kMostAllLocals) return invalid("locals: {} registers, expected at most {}", locals, kMostAllLocals);
    for (const DeviceShared& s : p_.shared) LATHE_RETURN_IF_ERROR(define(s.name));
    for (const DeviceShared& s : p_.shared) names_.erase(s.name);
    LATHE_RETURN_IF_ERROR(check_shared(p_));
    stored_.assign(p_.locals.size(), false);
    stored_shared_.assign(p_.shared.size(), false);
    differ_.add("thread", Among::warp);
    return body(p_.body);
  }

 private:
  Status define(const std::string& name, Among among = Among::none) {
    differ_.add(name, among);
    if (!names_.insert(name).second || !defined_.insert(name).second)
      return invalid("names: {} is defined twice", name);
    return {};
  }

  Status integer(const ir::Expr& e, ir::DType type) const {
    if (!e) return invalid("names: an integer is missing");
    if (e->type != type)
      return invalid("names: {} is {}, expected {}", print(e), dtype_name(e->type), dtype_name(type));
    std::string wrong;
    ir::for_each_node(e, [&](const ir::ExprNode& n) {
      if (n.op == ir::Op::k_load) wrong = n.name + "[]";
      if ((n.op == ir::Op::k_iter || n.op == ir::Op::k_symbol) && !names_.count(n.name)) wrong = n.name;
    });
    return wrong.empty() ? Status() : invalid("names: {} is not known in {}", wrong, print(e));
  }

  // What a thread has of its elements in registers.
  char kind_of(const DevicePlace& at) const {
    return at.space == Space::param ? p_.params[static_cast<size_t>(at.index)].kind() : value_kind(p_.type_of(at));
  }

  Status place(const DevicePlace& at) const {
    const bool local = at.space == Space::local, shared = at.space == Space::shared;
    const size_t count = local ? p_.locals.size() : shared ? p_.shared.size() : p_.params.size();
    if (at.index < 0 || static_cast<size_t>(at.index) >= count) {
      return invalid("access: there is no {} {}", local ? "local" : shared ? "shared memory" : "parameter", at.index);
    }
    return integer(at.offset, ir::DType::i64);
  }

  Status access(const DeviceStmt& s) const {
    if (s.places.size() != 1) return invalid("access: {} places, expected one", s.places.size());
    LATHE_RETURN_IF_ERROR(place(s.places[0]));
    if (s.lanes > 1) LATHE_RETURN_IF_ERROR(integer(s.step, ir::DType::i64));
    if (s.places[0].space == Space::local) {
      const DeviceLocal& l = p_.locals[static_cast<size_t>(s.places[0].index)];
      return l.fours ? invalid("locals: {} has four elements in a register, for warps' instructions", l.name)
                     : local(s);
    }
    if (s.places[0].space == Space::param && s.kind == DeviceStmt::Kind::load) {
      const DeviceParam& p = p_.params[static_cast<size_t>(s.places[0].index)];
      if (p.kind() == 'l' && !p.bits)
        return invalid("access: {} is loaded from, whose elements of 64 bits are taken or moved", p.name);
    }
    if (s.lanes == 1 || !ir::is_const_int(s.step, 1)) return {};
    if (s.places[0].space == Space::shared) {
      const int at_once = std::min(s.lanes, lanes_of_shared(p_.type_of(s.places[0])));
      return ir::proves_divisible(s.places[0].offset, at_once, {})
                 ? Status()
                 : invalid("access: {} lanes of {}[{}] at once, and nothing says that they are aligned", s.lanes,
                           p_.shared[static_cast<size_t>(s.places[0].index)].name, print(s.places[0].offset));
    }
    return aligned(s.places[0], s.lanes);
  }

  // Of a parameter: whole accesses beyond an address that was found aligned.
  Status aligned(const DevicePlace& at, int lanes) const {
    if (aligned_.covers(at, lanes)) return {};
    return invalid("access: {} lanes of {}[{}] at once, and nothing says that they are aligned", lanes,
                   p_.params[static_cast<size_t>(at.index)].name, print(at.offset));
  }

  Status copy(const DeviceStmt& s) {
    if (s.places.size() != 2 || s.places[0].space != Space::shared || s.places[1].space != Space::param)
      return invalid("async: a copy goes from a parameter to shared memory");
    for (const DevicePlace& at : s.places) LATHE_RETURN_IF_ERROR(place(at));
    LATHE_RETURN_IF_ERROR(check_copy_form(p_, s));
    stored_shared_[static_cast<size_t>(s.places[0].index)] = true;
    return s.lanes == 1 ? Status() : aligned(s.places[1], s.lanes);
  }

  Status ring(const DeviceStmt& s) {
    LATHE_RETURN_IF_ERROR(check_ring_statement(p_, s));
    LATHE_RETURN_IF_ERROR(integer(s.integer, ir::DType::i64));
    for (const ir::Expr& e : s.at) LATHE_RETURN_IF_ERROR(integer(e, ir::DType::i64));
    if (s.kind == DeviceStmt::Kind::await_ring) {
      LATHE_RETURN_IF_ERROR(integer(s.step, ir::DType::i64));
      // One thread may wait to fill a place: what it fills arrives for all.
      if (apart_ > 0 && p_.rings[static_cast<size_t>(s.ring)].read < 0)
        return invalid("rings: a wait that not all threads reach");
    }
    for (const DevicePlace& at : s.places) {
      LATHE_RETURN_IF_ERROR(place(at));
      stored_shared_[static_cast<size_t>(at.index)] = true;
    }
    return {};
  }

  // Which register it is must be known when code is made.
  Status local(const DeviceStmt& s) const {
    const DeviceLocal& l = p_.locals[static_cast<size_t>(s.places[0].index)];
    const ir::Expr& first = s.places[0].offset;
    const ir::Expr last = s.lanes == 1 ? first : ir::simplify(first + ir::Expr(s.lanes - 1) * s.step);
    std::string open;
    for (const ir::Expr& e : {first, last}) {
      ir::for_each_node(e, [&](const ir::ExprNode& n) {
        if ((n.op == ir::Op::k_iter || n.op == ir::Op::k_symbol) && !copies_.find(n.name)) open = n.name;
      });
      if (!open.empty())
        return invalid("locals: {}[{}] depends on {}, which is no iterator of an unrolled loop", l.name, print(first),
                       open);
      const ir::Interval range = ir::interval(e, copies_);
      if (range.lo < 0 || range.hi >= l.count)
        return invalid("locals: {}[{}] may lie outside of {} elements", l.name, print(e), l.count);
    }
    return {};
  }

  // Elements of 2 bytes that are moved as they are.
  Status bits(const DeviceStmt& s) const {
    const DevicePlace& at = s.places[0];
    if (dtype_bytes(p_.type_of(at)) != 2)
      return invalid("bits: {} holds {}, expected elements of 2 bytes", p_.name_of(at), dtype_name(p_.type_of(at)));
    if (s.lanes == 1) return {};
    if (!ir::is_const_int(s.step, 1)) return invalid("bits: lanes of {} do not lie together", p_.name_of(at));
    return at.space == Space::local ? whole_register(at) : Status();
  }
  Status whole_register(const DevicePlace& at, int elements = 2) const {
    return ir::proves_divisible(at.offset, elements, copies_)
               ? Status()
               : invalid("bits: {}[{}] may be a part of a register", p_.name_of(at), print(at.offset));
  }

  Status warp(const DeviceStmt& s) {
    const WarpOpRow& row = warp_op(s.warp);
    const std::string_view results = row.results, operands = row.operands;
    if (apart_ > 0) return invalid("wait: {}, which not all threads reach", row.name);
    if (p_.threads % kWarpThreads != 0)
      return invalid("warp: {} by {} threads, expected whole warps", row.name, p_.threads);
    if (s.places.size() != results.size() + operands.size())
      return invalid("warp: {} has {} places, expected {}", row.name, s.places.size(),
                     results.size() + operands.size());
    for (size_t i = s.places.size(); i-- > 0;) {  // what is read, then what is written
      const bool written = i < results.size();
      const char kind = written ? results[i] : operands[i - results.size()];
      const DevicePlace& at = s.places[i];
      LATHE_RETURN_IF_ERROR(place(at));
      const bool local_place = at.space == Space::local;
      const int elements = local_place ? p_.locals[static_cast<size_t>(at.index)].elements() : 1;
      const bool expected =
          at.space != Space::param && local_place == (kind != 's') && row.takes(kind, p_.type_of(at), elements);
      if (!expected) return invalid("warp: {} is no operand {} of {}", p_.name_of(at), i, row.name);
      if (row.moves() && p_.type_of(at) != p_.type_of(s.places[0]))
        return invalid("warp: {} changes the type of {}", row.name, p_.name_of(at));
      if (kind == 's') {
        if (!ir::proves_divisible(at.offset, lanes_at_once(p_.type_of(at)), {}))
          return invalid("access: 16 bytes of {}[{}] at once, and nothing says that they are aligned", p_.name_of(at),
                         print(at.offset));
        if (!stored_shared_[static_cast<size_t>(at.index)])
          return invalid("shared: {} is loaded before anything is stored to it", p_.name_of(at));
        continue;
      }
      DeviceStmt element;
      element.places = {at};
      if (elements_of(kind) > 1) {
        element.lanes = elements_of(kind);
        element.step = ir::Expr(1);
        LATHE_RETURN_IF_ERROR(whole_register(at, element.lanes));
      }
      LATHE_RETURN_IF_ERROR(local(element));
      if (written && row.moves()) stored_[static_cast<size_t>(at.index)] = true;
      if (!stored_[static_cast<size_t>(at.index)])
        return invalid("locals: {} is loaded before anything is stored to it", p_.name_of(at));
      for (size_t j = 0; written && j < i; ++j) {
        if (s.places[j].index == at.index && equal(s.places[j].offset, at.offset))
          return invalid("warp: {} has two results in {}[{}]", row.name, p_.name_of(at), print(at.offset));
      }
    }
    return {};
  }

  // Of a group of warps.
  Status group(const DeviceStmt& s) {
    const WarpOpRow& row = warp_op(s.warp);
    if (apart_ > 0) return invalid("wait: {}, which not all threads reach", row.name);
    LATHE_RETURN_IF_ERROR(check_group_form(p_, s));
    for (const DevicePlace& at : s.places) LATHE_RETURN_IF_ERROR(place(at));
    const DevicePlace& sums = s.places[0];
    if (sums.space != Space::local || p_.type_of(sums) != ir::DType::f32)
      return invalid("warp: {} is no operand 0 of {}", p_.name_of(sums), row.name);
    DeviceStmt all;
    all.places = {sums};
    all.lanes = s.columns / 2;
    all.step = ir::Expr(1);
    LATHE_RETURN_IF_ERROR(local(all));
    if (!stored_[static_cast<size_t>(sums.index)])
      return invalid("locals: {} is loaded before anything is stored to it", p_.name_of(sums));
    for (size_t i = 1; i <= row.held(); ++i) {
      const DevicePlace& at = s.places[i];
      if (at.space != Space::local || p_.type_of(at) != row.type)
        return invalid("warp: {} is no operand {} of {}", p_.name_of(at), i, row.name);
      all.places = {at};
      all.lanes = 2;
      LATHE_RETURN_IF_ERROR(whole_register(at));
      LATHE_RETURN_IF_ERROR(local(all));
      if (!stored_[static_cast<size_t>(at.index)]) return invalid("locals: nothing is stored to {}", p_.name_of(at));
    }
    for (size_t i = 0; i < s.tiles.size(); ++i) {
      const DevicePlace& at = s.places[i + 1 + row.held()];
      if (at.space != Space::shared || p_.type_of(at) != row.type)
        return invalid("warp: {} is no operand {} of {}", p_.name_of(at), i + 1, row.name);
      const DeviceShared& in = p_.shared[static_cast<size_t>(at.index)];
      if (in.swizzle == 0) return invalid("warp: {}, a factor of {}, is not swizzled", in.name, row.name);
      if (!stored_shared_[static_cast<size_t>(at.index)])
        return invalid("shared: {} is loaded before anything is stored to it", in.name);
      LATHE_RETURN_IF_ERROR(check_group_tile(p_, s, i, copies_));
    }
    return {};
  }

  // A body that not all threads run, or not as often.
  Status apart(const std::vector<DeviceStmt>& list, Among among) {
    apart_ += among != Among::none;
    split_ += among == Among::warp;
    Status status = inside(list);
    apart_ -= among != Among::none;
    split_ -= among == Among::warp;
    return status;
  }

  // A load or store of elements of 2 bytes as they are.
  bool moves_bits(const DeviceStmt& s) const {
    if (s.kind != DeviceStmt::Kind::store || s.operands.size() != 1) return s.bits;
    const auto at = values_.find(s.operands[0].value);
    return at == values_.end() ? s.bits : at->second.first == 'h';
  }

  // Of what is stored: numbers of 64 bits that are no bits are made of integers.
  char stored_kind(const DevicePlace& at) const {
    const bool wide = at.space == Space::param && !p_.params[static_cast<size_t>(at.index)].bits;
    return wide && p_.type_of(at) == ir::DType::i64 ? 'i' : kind_of(at);
  }

  Status define_value(const DeviceStmt& s, char type, int lanes) {
    if (s.value < 0 || !numbers_.insert(s.value).second) return invalid("names: value v{} is defined twice", s.value);
    values_[s.value] = {type, lanes};
    return {};
  }

  Status operand(const DeviceOperand& o, char type, int lanes) const {
    if (o.value < 0 && (type == 'b' || type == 'l' || o.whole != (type == 'i')))
      return invalid("values: a constant where {} is expected", type);
    if (o.value < 0) return type == 'h' && o.constant != 0 ? invalid("bits: a constant other than 0") : Status();
    const auto at = values_.find(o.value);
    if (at == values_.end()) return invalid("names: value v{} is not known here", o.value);
    if (at->second.first != type) return invalid("values: v{} is {}, expected {}", o.value, at->second.first, type);
    if (at->second.second != lanes && at->second.second != 1)
      return invalid("values: v{} has {} lanes, expected {}", o.value, at->second.second, lanes);
    return {};
  }

  // Names and values of a body end with it.
  Status inside(const std::vector<DeviceStmt>& list) {
    const std::set<std::string> names = names_;
    const auto values = values_;
    LATHE_RETURN_IF_ERROR(body(list));
    names_ = names;
    values_ = values;
    return {};
  }

  Status statement(const DeviceStmt& s) {
    using Kind = DeviceStmt::Kind;
    if (s.lanes < 1 || s.lanes > (s.bits ? kMaxHalves : kMaxLanes) || (s.lanes & (s.lanes - 1)) != 0)
      return invalid("lanes: {}, expected 1, 2, 4{}", s.lanes, s.bits ? " or 8" : ", 8 or 16");
    switch (s.kind) {
      case Kind::let:
        LATHE_RETURN_IF_ERROR(integer(s.integer, ir::DType::i64));
        return define(s.name, differ_.of(s.integer));
      case Kind::count:
        counted_.insert(s.name);
        return define(s.name);
      case Kind::add:
        if (counted_.count(s.name) * names_.count(s.name) == 0) return invalid("names: nothing counts {}", s.name);
        differ_.add(s.name, apart_ > 0 ? Among::warp : differ_.of(s.integer));
        return integer(s.integer, ir::DType::i64);
      case Kind::take:
        if (s.places.size() == 1) LATHE_RETURN_IF_ERROR(place(s.places[0]));
        LATHE_RETURN_IF_ERROR(check_take_form(p_, s));
        for (const ir::Expr& end : {s.integer, s.step}) LATHE_RETURN_IF_ERROR(integer(end, ir::DType::i64));
        return define(s.name, differ_.of(s.places[0].offset));
      case Kind::when: {
        LATHE_RETURN_IF_ERROR(integer(s.integer, ir::DType::b8));
        const Among some = differ_.of(s.integer);
        LATHE_RETURN_IF_ERROR(apart(s.body, some));
        return apart(s.otherwise, some);
      }
      case Kind::aligned: {
        if (s.integer) LATHE_RETURN_IF_ERROR(integer(s.integer, ir::DType::b8));
        for (const DevicePlace& at : s.places) LATHE_RETURN_IF_ERROR(place(at));
        const AlignedPlaces outside = aligned_;
        aligned_.find(s);
        const std::set<std::string> defined = defined_;
        LATHE_RETURN_IF_ERROR(apart(s.body, differ_.of(s)));
        aligned_ = outside;
        const std::set<std::string> in_body = std::exchange(defined_, defined);
        LATHE_RETURN_IF_ERROR(apart(s.otherwise, differ_.of(s)));
        defined_.insert(in_body.begin(), in_body.end());
        return {};
      }
      case Kind::loop: {
        LATHE_RETURN_IF_ERROR(integer(s.integer, ir::DType::i64));
        if (s.unrolled < 0 || s.unrolled > kMostCopies)
          return invalid("loop: {} copies of {}, expected at most {}", s.unrolled, s.name, kMostCopies);
        if (ir::is_const_int(s.integer) && s.unrolled != 0 && s.integer->ival > s.unrolled)
          return invalid("loop: {} copies of {}, which runs {} times", s.unrolled, s.name, s.integer->ival);
        const std::set<std::string> names = names_;
        LATHE_RETURN_IF_ERROR(define(s.name));
        if (s.unrolled > 0) copies_.enter(s.name, ir::Expr(s.unrolled));
        LATHE_RETURN_IF_ERROR(apart(s.body, differ_.of(s.integer)));
        if (s.unrolled > 0) copies_.leave();
        names_ = names;
        return {};
      }
      case Kind::load:
        LATHE_RETURN_IF_ERROR(access(s));
        if (s.places[0].space == Space::local && !stored_[static_cast<size_t>(s.places[0].index)])
          return invalid("locals: {} is loaded before anything is stored to it",
                         p_.locals[static_cast<size_t>(s.places[0].index)].name);
        if (s.places[0].space == Space::shared && !stored_shared_[static_cast<size_t>(s.places[0].index)])
          return invalid("shared: {} is loaded before anything is stored to it",
                         p_.shared[static_cast<size_t>(s.places[0].index)].name);
        if (s.bits) LATHE_RETURN_IF_ERROR(bits(s));
        return define_value(s, s.bits ? 'h' : kind_of(s.places[0]), s.lanes);
      case Kind::set:
      case Kind::fold: {
        const bool folds = s.kind == Kind::fold;
        const DeviceOpRow& row = device_op(s.op);
        const std::string_view operands = row.operands;
        if (folds && (operands.size() < 2 || operands != std::string(operands.size(), row.result)))
          return invalid("values: {} folds no lanes", row.name);
        if (s.operands.size() != operands.size())
          return invalid("values: {} has {} operands, expected {}", row.name, s.operands.size(), operands.size());
        for (size_t i = 0; i < operands.size(); ++i) {
          const int lanes = folds && i == running_operand(s.op) ? 1 : s.lanes;
          LATHE_RETURN_IF_ERROR(operand(s.operands[i], operands[i], lanes).with_context(row.name));
        }
        return define_value(s, row.result, folds ? 1 : s.lanes);
      }
      case Kind::index: {
        const std::set<std::string> names = names_;
        if (!s.name.empty()) LATHE_RETURN_IF_ERROR(define(s.name));
        const bool condition = s.integer && s.integer->type == ir::DType::b8;
        LATHE_RETURN_IF_ERROR(integer(s.integer, condition ? ir::DType::b8 : ir::DType::i64));
        names_ = names;
        return define_value(s, condition ? 'b' : s.whole ? 'i' : 'f', s.name.empty() ? 1 : s.lanes);
      }
      case Kind::shuffle:
        return shuffle(s);
      case Kind::barrier:
      case Kind::cluster_barrier:
        return apart_ > 0 ? invalid("wait: a barrier that not all threads reach") : Status();
      case Kind::warp_barrier:
        if (p_.threads % kWarpThreads != 0) return invalid("wait: a barrier of warps in {} threads", p_.threads);
        return split_ > 0 ? invalid("wait: a barrier of a warp that not all of its threads reach") : Status();
      case Kind::warp:
        return warp_op(s.warp).goes_on() ? group(s) : warp(s);
      case Kind::fence_sums:
      case Kind::fence_shared:
      case Kind::commit_products:
      case Kind::await_products:
        if (s.groups < 0 || s.groups > kMostStages)
          return invalid("products: {} groups on their way, expected 0..{}", s.groups, kMostStages);
        return apart_ > 0 ? invalid("products: a fence or a wait that not all threads reach") : Status();
      case Kind::open_rings:
        return apart_ > 0 ? invalid("rings: all threads wait for them to be made") : Status();
      case Kind::expect:
      case Kind::arrive:
      case Kind::await_ring:
      case Kind::box:
        return ring(s);
      case Kind::roles:
        LATHE_RETURN_IF_ERROR(inside(s.body));
        return inside(s.otherwise);
      case Kind::copy:
        return copy(s);
      case Kind::commit:
      case Kind::await:
        if (s.groups < 0 || s.groups > kMostStages)
          return invalid("async: {} groups on their way, expected 0..{}", s.groups, kMostStages);
        return apart_ > 0 ? invalid("async: a commit or an await that not all threads reach") : Status();
      case Kind::store:
        LATHE_RETURN_IF_ERROR(access(s));
        if (s.places[0].space == Space::local) {
          stored_[static_cast<size_t>(s.places[0].index)] = true;
        } else if (s.places[0].space == Space::shared) {
          stored_shared_[static_cast<size_t>(s.places[0].index)] = true;
        } else if (const DeviceParam& p = p_.params[static_cast<size_t>(s.places[0].index)]; !p.written) {
          return invalid("access: {} is stored to, it is only read", p.name);
        }
        if (s.operands.size() != 1) return invalid("values: a store has {} operands", s.operands.size());
        if (!moves_bits(s)) return operand(s.operands[0], stored_kind(s.places[0]), s.lanes);
        if (s.places[0].space == Space::param)
          return invalid("bits: {} is a parameter, expected registers or shared memory", p_.name_of(s.places[0]));
        LATHE_RETURN_IF_ERROR(bits(s));
        return operand(s.operands[0], 'h', s.lanes);
    }
    return {};
  }

  Status shuffle(const DeviceStmt& s) {
    if (apart_ > 0) return invalid("wait: a shuffle that not all threads reach");
    if (s.distance < 1 || s.distance > 16 || (s.distance & (s.distance - 1)) != 0 || s.lanes != 1)
      return invalid("values: a shuffle over {} threads", s.distance);
    if (s.operands.size() != 1) return invalid("values: a shuffle has {} operands", s.operands.size());
    const auto known = values_.find(s.operands[0].value);
    const char kind = known != values_.end() && known->second.first == 'i' ? 'i' : 'f';
    LATHE_RETURN_IF_ERROR(operand(s.operands[0], kind, 1));
    return define_value(s, kind, 1);
  }

  Status body(const std::vector<DeviceStmt>& list) {
    for (const DeviceStmt& s : list) LATHE_RETURN_IF_ERROR(statement(s));
    return {};
  }

  const DeviceProgram& p_;
  std::set<std::string> names_, defined_;       // known here; ever defined
  std::map<int, std::pair<char, int>> values_;  // known here: type and lanes
  ir::Ranges copies_;                           // iterators of unrolled loops
  std::vector<bool> stored_, stored_shared_;    // locals and shared memory, so far
  std::set<std::string> counted_;               // names that are added to
  DifferingNames differ_;                       // names that depend on the thread
  int apart_ = 0, split_ = 0;                   // bodies around that not all threads run; all of a warp
  std::set<int> numbers_;                       // ever defined
  AlignedPlaces aligned_;                       // found here
};

}  // namespace

Status verify(const DeviceProgram& program) {
  LATHE_RETURN_IF_ERROR(check_roles(program));
  LATHE_RETURN_IF_ERROR(Verifier(program).run());
  LATHE_RETURN_IF_ERROR(check_products(program));
  LATHE_RETURN_IF_ERROR(check_rings(program));
  return check_waits(program);
}

}  // namespace lathe::jit
