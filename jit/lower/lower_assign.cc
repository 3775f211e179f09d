// Statements: register cells and memory, accumulation in place, reductions across lanes.
//
//   r[] += x[lane]   in a vector scope  ->  partial[copy] = identity, before the statements that
//   reduce
//                                           partial[copy] += x, lane by lane
//                                           r = r + reduce_add(tree over copies), after them
//   r[] += x[lane]; .. r[] ..           ->  p = prefix_add(x);  .. p + r ..;  r = r + last_lane(p)
#include <algorithm>
#include <bit>
#include <limits>

#include "jit/lower/lowering.h"
#include "jit/lower/vector_math.h"

namespace lathe::jit {

using ir::AssignOp;
using ir::Expr;
using ir::Op;
using ir::Stmt;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint32_t kAllButSign = 0x7fffffff;

// Whether all that the reduction takes are absolute values of which it keeps the largest. As integers, the bits of
// floats without a sign are in the order of these, NaN above all; partials have what is left to the largest, so that
// the least one counts.
template <class Reduction>
bool takes_sizes(const Reduction& r) {
  bool sizes = r.op == AssignOp::max;
  const auto look = [&](const Stmt& s) {
    const bool other = s.kind == Stmt::Kind::assign && s.target == r.buffer && s.op == AssignOp::max;
    sizes &= !other || s.value->op == Op::k_abs;
  };
  for (size_t i = 0; i <= r.last; ++i) {
    look((*r.list)[i]);
    ir::for_each_stmt((*r.list)[i].body, look);
  }
  return sizes;
}

// Its bits; of integers those of the minimum and the sum.
uint32_t identity(AssignOp op, ir::DType type) {
  if (type == ir::DType::i32) return op == AssignOp::min ? INT32_MAX : 0;
  switch (op) {
    case AssignOp::mul:
      return std::bit_cast<uint32_t>(1.0f);
    case AssignOp::max:
    case AssignOp::fmax:
      return std::bit_cast<uint32_t>(-kInfinity);
    case AssignOp::min:
      return std::bit_cast<uint32_t>(kInfinity);
    default:
      return 0;
  }
}

}  // namespace

std::optional<Lowering::Place> Lowering::place(const std::string& buffer, const std::vector<Expr>& index) {
  KnownAccess* read = index.empty() ? nullptr : &known_access(buffer, index);
  const int slot = read != nullptr ? read->slot : slot_of(buffer);
  if (slot < 0) {
    fail(ir::unsupported("unknown buffer {}", buffer));
    return {};
  }
  Place out;
  out.buffer = &leaf_.buffers[slot];
  out.cell = out.buffer->place == ir::Place::reg;
  PlainAccess* known = read != nullptr && read->plain.plain ? &read->plain : nullptr;
  if (!out.cell) {
    std::optional<Access> a = known != nullptr ? known->access(slot, env_) : access(*out.buffer, slot, index, env_);
    if (!a) {
      fail(ir::unsupported("{}: an index is not affine in the loops of the leaf, or has no stride", buffer));
      return {};
    }
    out.access = std::move(*a);
    if (lane_ && lane_->mask >= 0 && out.access.unit() && !out.buffer->dims.empty() && out.buffer->dims.back()) {
      const std::optional<Affine> last =
          known != nullptr ? known->at(index.size() - 1, env_) : affine(index.back(), env_);
      out.whole = last && lies_within(*out.buffer, *last);
    }
    if (!out.access.uniform() && !out.access.unit()) {
      fail(ir::unsupported("{}: lanes neither adjacent nor equal", buffer));
      return {};
    }
    return out;
  }
  out.key.rank = rank_of(slot);
  for (size_t d = 0; d < index.size(); ++d) {
    const std::optional<Affine> a = known != nullptr ? known->at(d, env_) : affine(index[d], env_);
    if (!a || d >= out.key.index.size() || std::abs(a->constant) > INT32_MAX || !a->loops.empty() ||
        !a->symbols.empty() || (a->lane != 0 && (a->lane != 1 || out.key.vector))) {
      fail(ir::unsupported("{}: a register cannot be indexed by a loop", buffer));
      return {};
    }
    if (a->lane == 1) {
      out.key.vector = true;
      if (a->constant % lanes_ != 0) {
        fail(ir::unsupported("{}: lanes of a register start at {}, not a multiple of {}", buffer, a->constant, lanes_));
        return {};
      }
    }
    out.key.index[out.key.dims++] = static_cast<int32_t>(a->constant);
  }
  return out;
}

// Whether a vector at this index of the last dimension lies within its stated size.
bool Lowering::lies_within(const ir::Buffer& buffer, const Affine& last) const {
  const std::optional<int64_t> size = constant_value(buffer.dims.back(), {});
  return size && last.lane == 1 && last.loops.empty() && last.symbols.empty() && last.constant >= 0 &&
         last.constant + lanes_ <= *size;
}

// Lanes that are off are neither stored nor reduced: where they can be read without harm they are, since hardware
// fetches ahead of plain loads only.
int Lowering::read(const Place& p) {
  if (!p.cell) {
    const int mask = lane_ && !p.whole ? lane_->mask : -1;
    const bool anew = p.access.slot == anew_ && mask < 0 && p.access.unit() && p.access.type == MemType::b32;
    return anew ? e_.load_anew(p.access) : e_.load(p.access, mask);
  }
  const auto it = cells_.find(p.key);
  if (it == cells_.end()) return fail(ir::unsupported("{}: read where no value has reached", p.buffer->name));
  return it->second.reg;
}

void Lowering::write(const Place& p, int value) {
  if (lane_ && p.uniform()) {
    fail(ir::unsupported("{}: every lane writes one element", p.buffer->name));
    return;
  }
  const int mask = lane_ ? lane_->mask : -1;
  if (!p.cell) return e_.store(p.access, value, mask, p.buffer->stream);
  const std::string signature = lane_ ? lane_->signature : std::string();
  const auto it = cells_.find(p.key);
  // Lanes off keep their value, unless they were off whenever this register was written.
  if (mask >= 0 && it != cells_.end() && it->second.signature != signature) {
    value = e_.op(LeafOp::k_blend, {it->second.reg, value}, 0, mask);
    cells_[p.key] = {value, false, it->second.signature};
    return;
  }
  if (e_.is_home(value)) {
    const int copy = e_.home();
    e_.op_into(copy, LeafOp::k_move, {value});
    cells_[p.key] = {copy, true, signature};
    return;
  }
  cells_[p.key] = {value, false, signature};
}

int Lowering::in_place(const Place& p) const {
  const auto it = p.cell ? cells_.find(p.key) : cells_.end();
  if (it == cells_.end() || !it->second.home) return -1;
  return !lane_ || lane_->mask < 0 || it->second.signature == lane_->signature ? it->second.reg : -1;
}

int Lowering::combine_values(AssignOp op, int old, int value) {
  switch (op) {
    case AssignOp::set:
      return value;
    case AssignOp::add:
      return e_.op(LeafOp::k_add, {old, value});
    case AssignOp::mul:
      return e_.op(LeafOp::k_mul, {old, value});
    case AssignOp::fmax:
      return e_.op(LeafOp::k_max, {value, old});
    case AssignOp::max:
      return emit_max(e_, old, value);
    case AssignOp::min:
      return emit_min(e_, old, value);
  }
  return value;
}

// old op value; into register `into` where it is one of the operations done in place (-1: wherever
// it lands).
int Lowering::combine(AssignOp op, int old, const Expr& e, int into) {
  const bool fma = op == AssignOp::add && e->op == Op::k_mul;
  if (fma) {
    const int a = value(e->args[0]), b = value(e->args[1]);
    if (into < 0) return e_.op(LeafOp::k_fma, {a, b, old});
    e_.op_into(into, LeafOp::k_fma, {a, b, old});
    return into;
  }
  const int v = value(e);
  if (into < 0) return combine_values(op, old, v);
  switch (op) {
    case AssignOp::add:
      e_.op_into(into, LeafOp::k_add, {old, v});
      break;
    case AssignOp::mul:
      e_.op_into(into, LeafOp::k_mul, {old, v});
      break;
    case AssignOp::fmax:
      e_.op_into(into, LeafOp::k_max, {v, old});
      break;
    default:
      e_.op_into(into, LeafOp::k_move, {combine_values(op, old, v)});
      break;
  }
  return into;
}

void Lowering::assign(const Stmt& s) {
  if (!part_iter_.empty()) return pairs_ ? add_pairs(s) : add_bytes(s);
  std::optional<Place> p = place(s.target, s.index);
  if (!p) return;
  if (p->buffer->type != ir::DType::f32) return assign_converted(s, *p);
  if (lane_ && p->uniform() && s.op != AssignOp::set) {
    for (RunningSum& r : running_) {
      if (r.buffer == s.target) return running_sum(r, s, *p);
    }
    return reduce_lanes(s, *p);
  }
  if (s.op == AssignOp::set) return write(*p, value(s.value));
  if (const int home = in_place(*p); home >= 0) {
    combine(s.op, home, s.value, home);
    return;
  }
  write(*p, combine(s.op, read(*p), s.value));
}

void Lowering::reduce_lanes(const Stmt& s, const Place& target) {
  Reduction* reduction = nullptr;
  for (Reduction& r : reductions_) {
    if (r.buffer == s.target) reduction = &r;
  }
  if (reduction == nullptr) {
    fail(ir::unsupported("{}: a reduction across lanes among other uses", s.target));
    return;
  }
  auto t = std::find_if(reduction->targets.begin(), reduction->targets.end(), [&](const Reduction::Target& known) {
    return target.cell ? known.place.key == target.key : known.place.access == target.access;
  });
  if (t == reduction->targets.end()) {
    reduction->targets.push_back({target, {}});
    t = reduction->targets.end() - 1;
  }
  const bool sizes = takes_sizes(*reduction);
  // Copies of unrolled scopes and registers of a wide vector scope are told apart by the numbers in
  // scope.
  std::vector<int64_t> copy;
  for (const Binding& b : env_) {
    if (b.kind != Binding::Kind::loop) copy.push_back(b.value);
  }
  auto partial = std::find_if(t->partials.begin(), t->partials.end(), [&](const auto& p) { return p.first == copy; });
  if (partial == t->partials.end()) {
    const int home = e_.home();
    e_.set_constant(home, sizes ? kAllButSign : identity(s.op, target.buffer->type), reduction->level);
    t->partials.emplace_back(copy, home);
    partial = t->partials.end() - 1;
  }
  const int home = partial->second;
  if (target.buffer->type == ir::DType::i32) {
    const LeafOp op = s.op == AssignOp::min ? LeafOp::k_imin : LeafOp::k_iadd;
    const int number = value(s.value);
    if (lane_->mask < 0) return e_.op_into(home, op, {home, number});
    return e_.op_into(home, LeafOp::k_blend, {home, e_.op(op, {home, number})}, lane_->mask);
  }
  if (sizes) {
    const int x = value(s.value->args[0]), left = e_.op(LeafOp::k_bit_andnot, {x, e_.constant_bits(kAllButSign)});
    if (lane_->mask < 0) return e_.op_into(home, LeafOp::k_imin, {home, left});
    return e_.op_into(home, LeafOp::k_blend, {home, e_.op(LeafOp::k_imin, {home, left})}, lane_->mask);
  }
  if (lane_->mask < 0) {
    combine(s.op, home, s.value, home);
  } else {
    e_.op_into(home, LeafOp::k_blend, {home, combine(s.op, home, s.value)}, lane_->mask);
  }
}

// Lanes that are off add 0: the last lane has the sum of all that are on.
void Lowering::running_sum(RunningSum& r, const Stmt& s, const Place& target) {
  int added = value(s.value);
  if (!e_.ok()) return;
  if (lane_->mask >= 0) added = e_.op(LeafOp::k_blend, {e_.constant(0.0f), added}, 0, lane_->mask);
  const int prefixes = e_.op(LeafOp::k_prefix_add, {added}), before = read(target);
  r.lanes = e_.op(LeafOp::k_add, {prefixes, before});
  const int all = e_.op(LeafOp::k_last_lane, {prefixes});
  const std::optional<Lane> lane = std::exchange(lane_, std::nullopt);
  if (const int home = in_place(target); home >= 0) {
    e_.op_into(home, LeafOp::k_add, {all, home});
  } else {
    write(target, e_.op(LeafOp::k_add, {all, before}));
  }
  lane_ = lane;
}

void Lowering::finish_reduction(Reduction& r) {
  const bool sizes = takes_sizes(r);
  for (Reduction::Target& t : r.targets) {
    std::vector<int> values;
    const bool integers = t.place.buffer->type == ir::DType::i32, least = r.op == AssignOp::min;
    const auto both = [&](int a, int b) {
      if (sizes) return e_.op(LeafOp::k_imin, {a, b});
      return integers ? e_.op(least ? LeafOp::k_imin : LeafOp::k_iadd, {a, b}) : combine_values(r.op, a, b);
    };
    for (const auto& [copy, reg] : t.partials) values.push_back(reg);
    while (values.size() > 1) {
      std::vector<int> next;
      for (size_t i = 0; i + 1 < values.size(); i += 2) next.push_back(both(values[i], values[i + 1]));
      if (values.size() % 2 == 1) next.push_back(values.back());
      values = std::move(next);
    }
    int all = -1;
    if (sizes) {
      const int left = e_.op(LeafOp::k_reduce_imin, values);
      all = e_.op(LeafOp::k_bit_andnot, {left, e_.constant_bits(kAllButSign)});
      write(t.place, combine_values(r.op, read(t.place), all));
      continue;
    }
    if (integers) {
      write(t.place, both(read(t.place), e_.op(least ? LeafOp::k_reduce_imin : LeafOp::k_reduce_iadd, values)));
      continue;
    }
    switch (r.op) {
      case AssignOp::mul:
        all = e_.op(LeafOp::k_reduce_mul, values);
        break;
      case AssignOp::fmax:
        all = e_.op(LeafOp::k_reduce_max, values);
        break;
      case AssignOp::max:
      case AssignOp::min: {
        // reduce_max drops NaN: a second reduction carries it, as bits that are 0 where there is
        // none.
        const int nan = e_.compare(LeafOp::k_cmp_unord, values[0], values[0]);
        const int flags =
            e_.op(LeafOp::k_blend, {e_.constant(0.0f), e_.constant(std::numeric_limits<float>::quiet_NaN())}, 0, nan);
        const int flag = e_.op(LeafOp::k_reduce_add, {flags});
        const LeafOp op = r.op == AssignOp::max ? LeafOp::k_reduce_max : LeafOp::k_reduce_min;
        all = e_.op(LeafOp::k_bit_or, {e_.op(op, std::span<const int>(values)), flag});
        break;
      }
      default:
        all = e_.op(LeafOp::k_reduce_add, values);
        break;
    }
    write(t.place, combine_values(r.op, read(t.place), all));
  }
}

}  // namespace lathe::jit
