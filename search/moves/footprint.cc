// Boxes of touched cells: see footprint.h. A tiled iterator pair is folded back into the range it
// came from:
//   o < ceildiv(E, T), i < min(T, E - T*o), index T*o + i   ->   one range of extent E
#include "search/moves/footprint.h"

#include <algorithm>

#include "ir/core/names.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

static bool add_linear(const Expr& e, int64_t factor, const std::vector<std::string>& iters, LinearIndex& out) {
  if (!uses_any(e, iters)) {
    const Expr scaled = factor == 1 ? e : e * Expr(factor);
    out.base = out.base ? out.base + scaled : scaled;
    return true;
  }
  switch (e->op) {
    case Op::k_iter:
      for (auto& [name, coeff] : out.terms) {
        if (name == e->name) {
          coeff += factor;
          return true;
        }
      }
      out.terms.emplace_back(e->name, factor);
      return true;
    case Op::k_add:
      return add_linear(e->args[0], factor, iters, out) && add_linear(e->args[1], factor, iters, out);
    case Op::k_sub:
      return add_linear(e->args[0], factor, iters, out) && add_linear(e->args[1], -factor, iters, out);
    case Op::k_neg:
      return add_linear(e->args[0], -factor, iters, out);
    case Op::k_mul:
      if (is_const_int(e->args[0])) return add_linear(e->args[1], factor * e->args[0]->ival, iters, out);
      if (is_const_int(e->args[1])) return add_linear(e->args[0], factor * e->args[1]->ival, iters, out);
      return false;
    default:
      return false;
  }
}

std::optional<LinearIndex> linear_in(const Expr& e, const std::vector<std::string>& iters) {
  LinearIndex out;
  if (!add_linear(e, 1, iters, out)) return std::nullopt;
  std::erase_if(out.terms, [](const auto& t) { return t.second == 0; });
  if (!out.base) out.base = Expr(0);
  return out;
}

namespace {
struct Term {
  std::string iter;  // empty: folded from several
  int64_t coeff;
  Expr extent;
};

// The tile pair (o, i) as one range, if it is one. E from extent_i = min(T, E - T*o).
Expr folded_extent(const Term& o, const Term& i, const Ranges& ranges) {
  if (i.coeff == 0 || o.coeff % i.coeff != 0) return {};
  const int64_t tile = o.coeff / i.coeff;
  if (tile <= 0) return {};
  if (is_const_int(i.extent, tile)) return simplify(o.extent * Expr(tile), ranges);
  if (i.extent->op != Op::k_min || o.iter.empty()) return {};
  for (int arg = 0; arg < 2; ++arg) {
    if (!is_const_int(i.extent->args[arg], tile)) continue;
    const Expr rest = i.extent->args[1 - arg];
    const auto linear = linear_in(rest, {o.iter});
    Expr e;  // rest + T*o, free of o; min(K*T - T*o, X - T*o) folds to min(K*T, X)
    if (linear && linear->terms.size() == 1 && linear->terms[0].second == -tile) {
      e = simplify(linear->base, ranges);
    } else if (rest->op == Op::k_min) {
      const auto a = linear_in(rest->args[0], {o.iter}), b = linear_in(rest->args[1], {o.iter});
      if (!a || !b || a->terms.size() != 1 || b->terms.size() != 1 || a->terms[0].second != -tile ||
          b->terms[0].second != -tile) {
        return {};
      }
      e = simplify(ir::min(a->base, b->base), ranges);
    } else {
      return {};
    }
    if (equal(simplify(ceildiv(e, Expr(tile)), ranges), simplify(o.extent, ranges))) return e;
    // The outer extent may carry a bound that the inner one lost in simplification: K tiles at
    // most.
    const Interval bound = interval(o.extent, ranges);
    if (bound.hi > 0 && bound.hi < INT64_MAX / tile) {
      const Expr capped = simplify(ir::min(Expr(bound.hi * tile), e), ranges);
      if (equal(simplify(ceildiv(capped, Expr(tile)), ranges), simplify(o.extent, ranges))) return capped;
    }
  }
  return {};
}

// Innermost tiles first: their extents are written in terms of the outer ones.
void fold_tiles(std::vector<Term>& terms, const Ranges& ranges) {
  std::stable_sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) { return a.coeff < b.coeff; });
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < terms.size() && !changed; ++i) {
      for (size_t o = i + 1; o < terms.size() && !changed; ++o) {
        const Expr e = folded_extent(terms[o], terms[i], ranges);
        if (!e) continue;
        terms[i] = {{}, terms[i].coeff, e};
        terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(o));
        changed = true;
      }
    }
  }
}

// Of a minimum, what is free of the iterators.
Expr free_bound(const Expr& e, const std::vector<std::string>& iters) {
  if (!uses_any(e, iters)) return e;
  if (e->op != Op::k_min) return {};
  const Expr a = free_bound(e->args[0], iters), b = free_bound(e->args[1], iters);
  return a && b ? ir::min(a, b) : a ? a : b;
}

// The most that an extent which reads an input is in all iterations of scopes [fixed, ..), in which it is linear. Null:
// it is something else.
Expr most_of_loaded(Expr e, const ScopePath& scopes, size_t fixed, const Ranges& ranges) {
  bool loads = false;
  for_each_node(e, [&](const ExprNode& n) { loads = loads || n.op == Op::k_load; });
  for (size_t i = scopes.size(); loads && i > fixed; --i) {
    const Stmt& scope = *scopes[i - 1];
    const auto linear = linear_in(e, {scope.iter});
    if (!linear) return {};
    const int64_t coeff = linear->terms.empty() ? 0 : linear->terms[0].second;
    e = simplify(coeff <= 0 ? linear->base : linear->base + (scope.extent - Expr(1)) * Expr(coeff), ranges);
  }
  return loads ? e : Expr();
}

DimRange whole_dim(const Buffer& buffer, size_t d) { return {Expr(0), buffer.dims[d], true, false, true, {}}; }
}  // namespace

TilePair merged_extent(const std::string& outer, const Expr& outer_extent, const Expr& inner_extent,
                       const Ranges& ranges) {
  std::optional<int64_t> tile;
  if (is_const_int(inner_extent)) tile = inner_extent->ival;
  for (int arg = 0; arg < 2 && inner_extent->op == Op::k_min && !tile; ++arg) {
    if (is_const_int(inner_extent->args[arg])) tile = inner_extent->args[arg]->ival;
  }
  if (!tile || *tile < 1) return {};
  return {folded_extent({outer, *tile, outer_extent}, {{}, 1, inner_extent}, ranges), *tile};
}

std::vector<DimRange> footprint(const Kernel& kernel, const Access& access, size_t fixed, const Ranges& outer_ranges) {
  const Buffer& buffer = *kernel.find_buffer(access.buffer);
  std::vector<std::string> iters;
  Ranges ranges = outer_ranges;
  for (size_t i = fixed; i < access.scopes.size(); ++i) {
    iters.push_back(access.scopes[i]->iter);
    ranges.enter(*access.scopes[i]);
  }
  std::vector<DimRange> out;
  for (size_t d = 0; d < access.index.size(); ++d) {
    const auto linear = linear_in(access.index[d], iters);
    if (!linear) {
      out.push_back(whole_dim(buffer, d));
      continue;
    }
    DimRange range;
    std::vector<Term> terms;
    for (const auto& [name, coeff] : linear->terms) {
      for (size_t i = fixed; i < access.scopes.size(); ++i) {
        if (access.scopes[i]->iter != name) continue;
        terms.push_back({name, coeff, access.scopes[i]->extent});
        range.role = access.scopes[i]->role;
      }
    }
    range.varies = !terms.empty();
    fold_tiles(terms, ranges);
    range.exact = terms.empty() || (terms.size() == 1 && terms[0].coeff == 1 && !uses_any(terms[0].extent, iters));
    range.base = linear->base;
    range.extent = Expr(1);
    if (terms.size() == 1 && terms[0].coeff == 1) range.extent = Expr(0);
    for (Term& t : terms) {
      if (uses_any(t.extent, iters)) {
        const int64_t hi = interval(t.extent, ranges).hi;
        const Expr known = free_bound(t.extent, iters);
        const Expr bound = known ? known : most_of_loaded(t.extent, access.scopes, fixed, ranges);
        if (hi == INT64_MAX && !bound) {
          range.whole = true;
          break;
        }
        t.extent = bound ? bound : Expr(hi);
      }
      if (terms.size() == 1 && t.coeff == 1) {
        range.extent = t.extent;
        continue;
      }
      const Expr reach = (t.extent - Expr(1)) * Expr(t.coeff);
      if (t.coeff < 0) range.base = range.base + reach;
      range.extent = t.coeff < 0 ? range.extent - reach : range.extent + reach;
    }
    if (range.whole) {
      out.push_back(whole_dim(buffer, d));
      continue;
    }
    range.base = simplify(range.base, outer_ranges);
    range.extent = simplify(range.extent, outer_ranges);
    out.push_back(std::move(range));
  }
  return out;
}

// Makes `a` the box around both.
static void widen(DimRange& a, const DimRange& b, const Expr& dim, const Ranges& ranges) {
  a.varies = a.varies || b.varies;
  if (a.role.empty()) a.role = b.role;
  if (!a.whole && !b.whole && equal(a.base, b.base) && equal(a.extent, b.extent)) {
    a.exact = a.exact || b.exact;
    return;
  }
  a.exact = false;
  const Expr shift = a.whole || b.whole ? Expr() : simplify(b.base - a.base, ranges);
  if (!is_const_int(shift)) {
    a.base = Expr(0);
    a.extent = dim;
    a.whole = a.varies = true;
    return;
  }
  const int64_t delta = shift->ival;
  const Expr end_a = delta < 0 ? a.extent + Expr(-delta) : a.extent;
  const Expr end_b = delta > 0 ? b.extent + Expr(delta) : b.extent;
  if (delta < 0) a.base = b.base;
  a.extent = simplify(equal(end_a, end_b) ? end_a : ir::max(end_a, end_b), ranges);
}

std::vector<DimRange> footprint(const Kernel& kernel, const std::vector<const Access*>& accesses, size_t fixed,
                                const Ranges& ranges) {
  std::vector<DimRange> box;
  for (const Access* access : accesses) {
    std::vector<DimRange> next = footprint(kernel, *access, fixed, ranges);
    if (box.empty()) {
      box = std::move(next);
      continue;
    }
    for (size_t d = 0; d < box.size(); ++d) widen(box[d], next[d], kernel.find_buffer(access->buffer)->dims[d], ranges);
  }
  return box;
}

Expr storage_size(const DimRange& range, const Expr& dim, const Ranges& ranges, bool constant) {
  const auto is_size = [](const Expr& e) {
    bool size = true;
    for_each_node(e, [&](const ExprNode& n) { size = size && n.op != Op::k_iter && n.op != Op::k_load; });
    return size;
  };
  const Interval bound = interval(range.extent, ranges);
  if (bound.lo == bound.hi && bound.lo >= 0) return Expr(bound.hi);
  if (!constant && bound.lo >= 0 && is_size(range.extent)) return range.extent;
  if (bound.hi != INT64_MAX && bound.hi >= 0 && (constant || !is_size(range.extent))) return Expr(bound.hi);
  return constant ? Expr() : dim;
}

std::optional<int64_t> rise_of(const Expr& e, const std::string& with) {
  if (!uses(e, with)) return 0;
  if (e->op == Op::k_iter) return 1;
  if (e->args.size() != 2) return std::nullopt;
  const Expr &a = e->args[0], &b = e->args[1];
  const std::optional<int64_t> x = rise_of(a, with), y = rise_of(b, with);
  switch (e->op) {
    case Op::k_add:
      return x && y ? std::optional(*x + *y) : std::nullopt;
    case Op::k_sub:
      return uses(b, with) ? std::nullopt : x;
    case Op::k_min:
    case Op::k_max:
      return x && y ? std::optional(std::max(*x, *y)) : std::nullopt;
    case Op::k_mul:
      if (is_const_int(a) && a->ival >= 0 && y) return a->ival * *y;
      return is_const_int(b) && b->ival >= 0 && x ? std::optional(b->ival * *x) : std::nullopt;
    case Op::k_floordiv:
    case Op::k_ceildiv:
      return is_const_int(b) && b->ival > 0 && x ? std::optional((*x + b->ival - 1) / b->ival) : std::nullopt;
    default:
      return std::nullopt;
  }
}

static bool is_choice(const Expr& e) { return e->op == Op::k_min || e->op == Op::k_max; }

Expr choices_outside(const Expr& e, const Ranges& ranges) {
  const bool divides = e->op == Op::k_floordiv || e->op == Op::k_ceildiv;
  const bool sums = e->op == Op::k_add || e->op == Op::k_sub;
  if (!is_choice(e) && !divides && !sums && e->op != Op::k_mul) return e;
  const Expr sides[] = {choices_outside(e->args[0], ranges), choices_outside(e->args[1], ranges)};
  if (is_choice(e)) return make(e->op, {sides[0], sides[1]});
  const auto above_0 = [](const Expr& x) { return is_const_int(x) && x->ival > 0; };
  for (size_t i = 0; i < 2; ++i) {
    const Expr &choice = sides[i], &other = sides[1 - i];
    const bool keeps =
        e->op == Op::k_add || (e->op == Op::k_mul ? above_0(other) : i == 0 && (!divides || above_0(other)));
    if (!keeps || !is_choice(choice)) continue;
    const auto with = [&](const Expr& side) {
      const Expr whole = i == 0 ? make(e->op, {side, other}) : make(e->op, {other, side});
      return choices_outside(simplify(whole, ranges), ranges);
    };
    return make(choice->op, {with(choice->args[0]), with(choice->args[1])});
  }
  return e;
}

bool surely_le(const Expr& a, const Expr& b, const Ranges& ranges) {
  if (equal(a, b) || proves_le(a, b, ranges)) return true;
  // First what loses nothing.
  if (a->op == Op::k_max) return surely_le(a->args[0], b, ranges) && surely_le(a->args[1], b, ranges);
  if (b->op == Op::k_min) return surely_le(a, b->args[0], ranges) && surely_le(a, b->args[1], ranges);
  if (a->op == Op::k_min) return surely_le(a->args[0], b, ranges) || surely_le(a->args[1], b, ranges);
  if (b->op == Op::k_max && (surely_le(a, b->args[0], ranges) || surely_le(a, b->args[1], ranges))) return true;
  const bool divides = a->op == Op::k_floordiv || a->op == Op::k_ceildiv;
  const bool alike = divides && a->op == b->op && is_const_int(a->args[1]) && equal(a->args[1], b->args[1]);
  if (alike && a->args[1]->ival > 0) return surely_le(a->args[0], b->args[0], ranges);
  if (divides) {
    const Expr outside = choices_outside(a, ranges);
    return is_choice(outside) && surely_le(outside, b, ranges);
  }
  // min and max under a sum: move the rest of the sum inside.
  if (a->op != Op::k_add && a->op != Op::k_sub) return false;
  const Expr &x = a->args[0], &y = a->args[1];
  if (is_choice(x))
    return surely_le(make(x->op, {make(a->op, {x->args[0], y}), make(a->op, {x->args[1], y})}), b, ranges);
  if (a->op == Op::k_add && is_choice(y)) return surely_le(make(y->op, {x + y->args[0], x + y->args[1]}), b, ranges);
  return false;
}

std::vector<Expr> Staged::rebase(const std::vector<Expr>& index) const {
  std::vector<Expr> out;
  for (size_t d = 0; d < index.size(); ++d) {
    if (kept[d]) out.push_back(index[d] - box[d].base);
  }
  return out;
}

Staged stage_box(const Kernel& kernel, const Buffer& buffer, const std::vector<const Access*>& accesses, size_t fixed,
                 const Ranges& ranges) {
  Staged staged{footprint(kernel, accesses, fixed, ranges), {}};
  for (size_t d = 0; d < staged.box.size(); ++d) {
    DimRange& r = staged.box[d];
    const bool inside = r.whole || (surely_le(Expr(0), r.base, ranges) &&
                                    surely_le(simplify(r.base + r.extent, ranges), buffer.dims[d], ranges));
    if (!inside) r = {Expr(0), buffer.dims[d], true, false, true, r.role};
    staged.kept.push_back(r.varies || !is_const_int(r.extent, 1));
  }
  return staged;
}

}  // namespace lathe::search
