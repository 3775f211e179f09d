// Index arithmetic: see lower_index.h.
#include "jit/lower_index.h"

#include <algorithm>

#include "jit/lower_emit.h"

namespace lathe::jit {
namespace {

using ir::Expr;
using ir::Op;

int64_t floor_div(int64_t a, int64_t b) {
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

void add(Affine& a, const Affine& b, int64_t times) {
  a.constant += times * b.constant;
  a.lane += times * b.lane;
  for (const auto& [loop, c] : b.loops) {
    if ((a.loops[loop] += times * c) == 0) a.loops.erase(loop);
  }
  for (const auto& [name, c] : b.symbols) {
    if ((a.symbols[name] += times * c) == 0) a.symbols.erase(name);
  }
}

// e // d and e % d: terms divisible by d go out; what is left must stay inside [0, d) by itself.
std::optional<Affine> divide(const Affine& a, int64_t d, bool quotient, const Environment& env) {
  if (d <= 0 || !a.symbols.empty()) return {};
  Affine out, inside;
  for (const auto& [loop, c] : a.loops) {
    if (c % d != 0) return {};
    out.loops[loop] = c / d;
  }
  int64_t lanes = 1;
  for (const Binding& b : env) {
    if (b.kind == Binding::Kind::lane) lanes = b.count;
  }
  const bool lane_out = a.lane % d == 0;
  if (lane_out) {
    out.lane = a.lane / d;
  } else {
    inside.lane = a.lane;
  }
  out.constant = floor_div(a.constant, d);
  inside.constant = a.constant - out.constant * d;
  const int64_t reach = inside.constant + inside.lane * (lanes - 1);
  if (reach < 0 || reach >= d) return {};
  return quotient ? out : inside;
}

}  // namespace

const Binding* find_binding(const Environment& env, const std::string& iter) {
  for (auto it = env.rbegin(); it != env.rend(); ++it) {
    if (it->iter == iter) return &*it;
  }
  return nullptr;
}

std::optional<Affine> affine(const Expr& e, const Environment& env) {
  if (!e) return {};
  Affine out;
  switch (e->op) {
    case Op::k_const_int:
      out.constant = e->ival;
      return out;
    case Op::k_symbol:
      out.symbols[e->name] = 1;
      return out;
    case Op::k_iter: {
      const Binding* b = find_binding(env, e->name);
      if (b == nullptr) return {};
      out.constant = b->value;
      if (b->kind == Binding::Kind::loop) out.loops[b->loop] = 1;
      if (b->kind == Binding::Kind::lane) out.lane = 1;
      return out;
    }
    default:
      break;
  }
  std::vector<Affine> args;
  for (const Expr& a : e->args) {
    std::optional<Affine> v = affine(a, env);
    if (!v) return {};
    args.push_back(std::move(*v));
  }
  switch (e->op) {
    case Op::k_add:
      add(args[0], args[1], 1);
      return args[0];
    case Op::k_sub:
      add(args[0], args[1], -1);
      return args[0];
    case Op::k_neg:
      add(out, args[0], -1);
      return out;
    case Op::k_mul:
      if (args[0].is_constant()) {
        add(out, args[1], args[0].constant);
        return out;
      }
      if (args[1].is_constant()) {
        add(out, args[0], args[1].constant);
        return out;
      }
      return {};
    case Op::k_floordiv:
    case Op::k_mod:
      if (!args[1].is_constant()) return {};
      return divide(args[0], args[1].constant, e->op == Op::k_floordiv, env);
    case Op::k_ceildiv:
      if (!args[0].is_constant() || !args[1].is_constant() || args[1].constant <= 0) return {};
      out.constant = -floor_div(-args[0].constant, args[1].constant);
      return out;
    case Op::k_min:
    case Op::k_max:
      if (!args[0].is_constant() || !args[1].is_constant()) return {};
      out.constant = e->op == Op::k_min ? std::min(args[0].constant, args[1].constant)
                                        : std::max(args[0].constant, args[1].constant);
      return out;
    default:
      return {};
  }
}

std::optional<int64_t> constant_value(const Expr& e, const Environment& env) {
  const std::optional<Affine> a = affine(e, env);
  if (!a || !a->is_constant()) return {};
  return a->constant;
}

void Linear::add(const Linear& other, int64_t times) {
  bytes += times * other.bytes;
  for (const auto& [stride, mult] : other.strides) {
    if ((strides[stride] += times * mult) == 0) strides.erase(stride);
  }
}

std::optional<Access> access(const ir::Buffer& buffer, int slot, const std::vector<Expr>& index,
                             const Environment& env) {
  if (index.size() != buffer.strides.size()) return {};
  Access out;
  out.slot = slot;
  for (size_t d = 0; d < index.size(); ++d) {
    const std::optional<Affine> a = affine(index[d], env);
    if (!a || !a->symbols.empty()) return {};
    Linear unit;
    if (!buffer.strides[d]) {
      if (d >= static_cast<size_t>(ir::kMaxLeafStrides)) return {};
      unit.strides[slot * ir::kMaxLeafStrides + static_cast<int>(d)] = 1;
    } else {
      const std::optional<int64_t> stride = constant_value(buffer.strides[d], {});
      if (!stride) return {};
      unit.bytes = *stride * 4;
    }
    out.base.add(unit, a->constant);
    out.lane.add(unit, a->lane);
    for (const auto& [loop, c] : a->loops) out.loops[loop].add(unit, c);
  }
  for (auto it = out.loops.begin(); it != out.loops.end();)
    it = it->second.zero() ? out.loops.erase(it) : std::next(it);
  return out;
}

std::optional<int> extent_slot(const std::string& symbol) {
  if (symbol == "seglen") return Extent::kSegLen;
  if (symbol.size() != 2 || symbol[0] != 'e' || symbol[1] < '0' ||
      symbol[1] >= '0' + ir::kMaxLeafExtents)
    return {};
  return symbol[1] - '0';
}

std::optional<Extent> plain_extent(const Expr& e, const Environment& env) {
  const std::optional<Affine> a = affine(e, env);
  if (!a || a->lane != 0 || !a->loops.empty() || a->symbols.size() > 1) return {};
  Extent out;
  out.add = a->constant;
  if (a->symbols.empty()) return out;
  const std::optional<int> slot = extent_slot(a->symbols.begin()->first);
  if (!slot || a->symbols.begin()->second != 1) return {};
  out.arg = *slot;
  return out;
}

bool LaneBound::holds(int64_t lane) const {
  return loop != nullptr && loop->full && loop->extent.arg == extent.arg &&
         loop->width + extent.add - loop->extent.add > lane;
}

std::optional<VectorExtent> vector_extent(const Expr& e, const Environment& env,
                                          const ir::Kernel& leaf) {
  VectorExtent out;
  if (e->op == Op::k_min) {
    for (const Expr& side : e->args) {
      std::optional<VectorExtent> part = vector_extent(side, env, leaf);
      if (!part) return {};
      if (part->max >= 0) out.max = out.max < 0 ? part->max : std::min(out.max, part->max);
      out.bounds.insert(out.bounds.end(), part->bounds.begin(), part->bounds.end());
    }
    return out;
  }
  // min(a, b) - c and the like: the subtraction moves into the min.
  if (e->op == Op::k_sub && e->args[0]->op == Op::k_min) {
    return vector_extent(
        ir::min(e->args[0]->args[0] - e->args[1], e->args[0]->args[1] - e->args[1]), env, leaf);
  }
  const std::optional<Affine> a = affine(e, env);
  if (!a || a->lane != 0 || a->symbols.size() > 1 || a->loops.size() > 1) return {};
  if (a->is_constant()) {
    out.max = std::max<int64_t>(a->constant, 0);
    return out;
  }
  if (a->symbols.empty() || a->symbols.begin()->second != 1) return {};
  const std::optional<int> slot = extent_slot(a->symbols.begin()->first);
  if (!slot) return {};
  LaneBound bound;
  bound.extent = {*slot, a->constant};
  if (!a->loops.empty()) {
    bound.loop = a->loops.begin()->first;
    if (a->loops.begin()->second != -bound.loop->width) return {};
  }
  out.bounds.push_back(bound);
  // A symbol's declared maximum bounds it as well.
  if (const ir::Symbol* s = leaf.find_symbol(a->symbols.begin()->first);
      s != nullptr && s->max <= 4096) {
    out.max = std::max<int64_t>(s->max + a->constant, 0);
  }
  return out;
}

}  // namespace lathe::jit
