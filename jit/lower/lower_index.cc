// Index arithmetic: see lower_index.h.
#include "jit/lower/lower_index.h"

#include <algorithm>

#include "jit/lower/lower_emit.h"

namespace lathe::jit {
namespace {

using ir::Expr;
using ir::Op;

int64_t floor_div(int64_t a, int64_t b) { return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0); }

// map[key] += by, without zeros; false: too many keys.
template <class Map, class K>
bool accumulate(Map& map, const K& key, int64_t by) {
  int64_t* c = map.get(key);
  if (c == nullptr) return false;
  *c += by;
  if (*c == 0) map.erase_if([](const auto& e) { return e.second == 0; });
  return true;
}
bool add(Affine& a, const Affine& b, int64_t times) {
  a.constant += times * b.constant;
  a.lane += times * b.lane;
  for (const auto& [loop, c] : b.loops) {
    if (!accumulate(a.loops, loop, times * c)) return false;
  }
  for (const auto& [name, c] : b.symbols) {
    if (!accumulate(a.symbols, name, times * c)) return false;
  }
  return true;
}
bool add_binding(const Binding* b, int64_t times, Affine& out) {
  if (b == nullptr) return false;
  out.constant += times * b->value;
  if (b->kind == Binding::Kind::lane) out.lane += times;
  return b->kind != Binding::Kind::loop || accumulate(out.loops, static_cast<const LoopContext*>(b->loop), times);
}

// e // d and e % d: terms divisible by d go out; what is left must stay inside [0, d) by itself.
std::optional<Affine> divide(const Affine& a, int64_t d, bool quotient, const Environment& env) {
  if (d <= 0 || !a.symbols.empty()) return {};
  Affine out, inside;
  for (const auto& [loop, c] : a.loops) {
    if (c % d != 0) return {};
    *out.loops.get(loop) = c / d;
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

// out += times * e.
static bool add_expr(const Expr& e, int64_t times, const Environment& env, Affine& out) {
  switch (e->op) {
    case Op::k_const_int:
      out.constant += times * e->ival;
      return true;
    case Op::k_symbol:
      return accumulate(out.symbols, &e->name, times);
    case Op::k_iter:
      return add_binding(find_binding(env, e->name), times, out);
    case Op::k_add:
    case Op::k_sub:
      return add_expr(e->args[0], times, env, out) &&
             add_expr(e->args[1], e->op == Op::k_add ? times : -times, env, out);
    case Op::k_neg:
      return add_expr(e->args[0], -times, env, out);
    default:
      break;
  }
  if (e->args.size() != 2) return false;
  Affine a, b;
  if (!add_expr(e->args[0], 1, env, a) || !add_expr(e->args[1], 1, env, b)) return false;
  switch (e->op) {
    case Op::k_mul:
      if (a.is_constant()) return add(out, b, times * a.constant);
      return b.is_constant() && add(out, a, times * b.constant);
    case Op::k_floordiv:
    case Op::k_mod: {
      if (!b.is_constant()) return false;
      const std::optional<Affine> part = divide(a, b.constant, e->op == Op::k_floordiv, env);
      return part && add(out, *part, times);
    }
    case Op::k_ceildiv:
      if (!a.is_constant() || !b.is_constant() || b.constant <= 0) return false;
      out.constant += times * -floor_div(-a.constant, b.constant);
      return true;
    case Op::k_min:
    case Op::k_max:
      if (!a.is_constant() || !b.is_constant()) return false;
      out.constant +=
          times * (e->op == Op::k_min ? std::min(a.constant, b.constant) : std::max(a.constant, b.constant));
      return true;
    default:
      return false;
  }
}

std::optional<Affine> affine(const Expr& e, const Environment& env) {
  std::optional<Affine> out(std::in_place);
  if (!e || !add_expr(e, 1, env, *out)) out.reset();
  return out;
}

std::optional<int64_t> constant_value(const Expr& e, const Environment& env) {
  if (e && e->op == Op::k_const_int) return e->ival;
  const std::optional<Affine> a = affine(e, env);
  if (!a || !a->is_constant()) return {};
  return a->constant;
}

void Linear::add(const Linear& other, int64_t times) {
  bytes += times * other.bytes;
  if (other.constant()) return;
  first = other.first;
  for (size_t d = 0; d < strides.size(); ++d) strides[d] += times * other.strides[d];
}

// One step of dimension d; null without a stride the lowering knows.
static std::optional<Linear> step(const ir::Buffer& buffer, int slot, size_t d) {
  Linear unit;
  if (!buffer.strides[d]) {
    if (d >= unit.strides.size()) return {};
    unit.first = slot * ir::kMaxLeafStrides;
    unit.strides[d] = 1;
    return unit;
  }
  const std::optional<int64_t> stride = constant_value(buffer.strides[d], {});
  if (!stride) return {};
  const std::optional<int64_t> bytes = ir::dtype_step(buffer.type, *stride);
  if (!bytes) return {};
  unit.bytes = *bytes;
  return unit;
}

static bool add_index(const Affine& a, const Linear& unit, Access& out) {
  if (!a.symbols.empty()) return false;
  out.base.add(unit, a.constant);
  out.lane.add(unit, a.lane);
  for (const auto& [loop, c] : a.loops) {
    Linear* l = out.loops.get(loop);
    if (l == nullptr) return false;
    l->add(unit, c);
  }
  return true;
}

MemType mem_type(ir::DType type) {
  switch (ir::dtype_bits(type)) {
    case 8:
      return type == ir::DType::i8 ? MemType::i8 : MemType::u8;
    case 16:
      return MemType::u16;
    case 64:
      return MemType::b64;
    default:
      return MemType::b32;
  }
}

std::optional<Access> access(const ir::Buffer& buffer, int slot, const std::vector<Expr>& index,
                             const Environment& env) {
  if (index.size() != buffer.strides.size()) return {};
  Access out;
  out.slot = slot;
  out.element = ir::dtype_bytes(buffer.type);
  out.type = mem_type(buffer.type);
  for (size_t d = 0; d < index.size(); ++d) {
    const std::optional<Affine> a = affine(index[d], env);
    const std::optional<Linear> unit = step(buffer, slot, d);
    if (!a || !unit || !add_index(*a, *unit, out)) return {};
  }
  out.loops.erase_if([](const auto& l) { return l.second.zero(); });
  return out;
}

static bool add_plain(const Expr& e, int64_t times, PlainIndex& out) {
  switch (e->op) {
    case Op::k_const_int:
      out.constant += times * e->ival;
      return true;
    case Op::k_iter:
      if (out.count == PlainIndex::kMaxTerms) return false;
      out.list[out.count++] = {&e->name, times};
      return true;
    case Op::k_add:
    case Op::k_sub:
      return add_plain(e->args[0], times, out) && add_plain(e->args[1], e->op == Op::k_add ? times : -times, out);
    case Op::k_neg:
      return add_plain(e->args[0], -times, out);
    case Op::k_mul:
      if (e->args[0]->op == Op::k_const_int) return add_plain(e->args[1], times * e->args[0]->ival, out);
      return e->args[1]->op == Op::k_const_int && add_plain(e->args[0], times * e->args[1]->ival, out);
    default:
      return false;
  }
}

std::optional<PlainIndex> plain_index(const Expr& e) {
  std::optional<PlainIndex> out(std::in_place);
  if (!e || !add_plain(e, 1, *out)) out.reset();
  return out;
}

PlainAccess plain_access(const ir::Buffer& buffer, int slot, const std::vector<Expr>& index,
                         std::pmr::memory_resource* memory) {
  PlainAccess out{false, ir::dtype_bytes(buffer.type), mem_type(buffer.type), std::pmr::vector<PlainIndex>(memory),
                  std::pmr::vector<Linear>(memory)};
  const bool cell = buffer.place == ir::Place::reg;
  if (!cell && index.size() != buffer.strides.size()) return out;
  out.index.reserve(index.size());
  out.units.reserve(index.size());
  for (size_t d = 0; d < index.size(); ++d) {
    std::optional<PlainIndex> i = plain_index(index[d]);
    const std::optional<Linear> unit = cell ? Linear() : step(buffer, slot, d);
    if (!i || !unit) return out;
    out.index.push_back(std::move(*i));
    out.units.push_back(*unit);
  }
  out.plain = true;
  return out;
}

static const Binding* binding_of(PlainIndex::Term& t, const Environment& env) {
  if (t.depth >= 0) return &env[static_cast<size_t>(t.depth)];
  const Binding* b = find_binding(env, *t.iter);
  if (b != nullptr) t.depth = static_cast<int>(b - env.data());
  return b;
}

std::optional<Affine> PlainAccess::at(size_t dim, const Environment& env) {
  std::optional<Affine> out(std::in_place);
  out->constant = index[dim].constant;
  for (PlainIndex::Term& t : index[dim].terms()) {
    if (add_binding(binding_of(t, env), t.coefficient, *out)) continue;
    out.reset();
    break;
  }
  return out;
}

std::optional<Access> PlainAccess::access(int slot, const Environment& env) {
  std::optional<Access> out(std::in_place);
  out->slot = slot;
  out->element = element;
  out->type = type;
  for (size_t d = 0; d < index.size(); ++d) {
    out->base.add(units[d], index[d].constant);
    for (PlainIndex::Term& t : index[d].terms()) {
      const Binding* b = binding_of(t, env);
      if (b == nullptr) return {};
      if (b->value != 0) out->base.add(units[d], t.coefficient * b->value);
      if (b->kind == Binding::Kind::lane) out->lane.add(units[d], t.coefficient);
      if (b->kind != Binding::Kind::loop) continue;
      Linear* l = out->loops.get(b->loop);
      if (l == nullptr) return {};
      l->add(units[d], t.coefficient);
    }
  }
  out->loops.erase_if([](const auto& l) { return l.second.zero(); });
  return out;
}

bool PlainAccess::regular(const std::string& iter, bool cell) {
  Linear lane;
  for (size_t d = 0; d < index.size(); ++d) {
    int64_t coefficient = 0;
    for (const PlainIndex::Term& t : index[d].terms()) {
      if (*t.iter == iter) coefficient += t.coefficient;
    }
    if (cell && coefficient != 0 && coefficient != 1) return false;
    if (coefficient != 0) lane.add(units[d], coefficient);
  }
  return cell || lane.zero() || lane.step(element);
}

std::optional<int> extent_slot(const std::string& symbol) {
  if (symbol == "seglen") return Extent::kSegLen;
  if (symbol.size() != 2 || symbol[0] != 'e' || symbol[1] < '0' || symbol[1] >= '0' + ir::kMaxLeafExtents) return {};
  return symbol[1] - '0';
}

std::optional<Extent> plain_extent(const Expr& e, const Environment& env) {
  const std::optional<Affine> a = affine(e, env);
  if (!a || a->lane != 0 || !a->loops.empty() || a->symbols.size() > 1) return {};
  Extent out;
  out.add = a->constant;
  if (a->symbols.empty()) return out;
  const std::optional<int> slot = extent_slot(*a->symbols.begin()->first);
  if (!slot || a->symbols.begin()->second != 1) return {};
  out.arg = *slot;
  return out;
}

bool LaneBound::holds(int64_t lane) const {
  if (loop == nullptr) return lane < least;
  return loop->full && loop->extent.arg == extent.arg && loop->width + extent.add - loop->extent.add > lane;
}

std::optional<VectorExtent> vector_extent(const Expr& e, const Environment& env, const ir::Kernel& leaf) {
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
    return vector_extent(ir::min(e->args[0]->args[0] - e->args[1], e->args[0]->args[1] - e->args[1]), env, leaf);
  }
  const std::optional<Affine> a = affine(e, env);
  if (!a || a->lane != 0 || a->symbols.size() > 1 || a->loops.size() > 1) return {};
  if (a->is_constant()) {
    out.max = std::max<int64_t>(a->constant, 0);
    return out;
  }
  if (a->symbols.empty() || a->symbols.begin()->second != 1) return {};
  const std::optional<int> slot = extent_slot(*a->symbols.begin()->first);
  if (!slot) return {};
  LaneBound bound;
  bound.extent = {*slot, a->constant};
  if (!a->loops.empty()) {
    bound.loop = a->loops.begin()->first;
    if (a->loops.begin()->second != -bound.loop->width) return {};
  }
  // What a symbol's declaration says of it bounds it as well.
  if (const ir::Symbol* s = leaf.find_symbol(*a->symbols.begin()->first); s != nullptr) {
    if (s->max <= 4096) out.max = std::max<int64_t>(s->max + a->constant, 0);
    bound.least = s->min + a->constant;
  }
  out.bounds.push_back(bound);
  return out;
}

}  // namespace lathe::jit
