// simplify(): expressions to canonical form and back; see analysis.h. The division rules are rows of simplify_rules.h,
// their bodies are in simplify_rules.cc.
#include <algorithm>

#include "ir/analysis/answers.h"
#include "ir/analysis/canon.h"
#include "ir/analysis/simplify_rules.h"

namespace lathe::ir {

namespace {
constexpr int kMaxRuleSteps = 32;
constexpr int kMaxPasses = 4;

Expr const_bool(bool value) {
  ExprNode node{Op::k_const_int, DType::b8, {}, {}, value ? 1 : 0};
  return Expr(std::make_shared<const ExprNode>(std::move(node)));
}

bool is_affine_op(const Expr& e) {
  if (e->type != DType::i64) return false;
  switch (e->op) {
    case Op::k_const_int:
    case Op::k_iter:
    case Op::k_symbol:
    case Op::k_add:
    case Op::k_sub:
    case Op::k_neg:
    case Op::k_mul:
    case Op::k_floordiv:
    case Op::k_mod:
    case Op::k_ceildiv:
    case Op::k_min:
    case Op::k_max:
      return true;
    default:
      return false;
  }
}

// The name of a term `name` or `c * name` with c > 1, whose value the ranges leave open; else null.
const std::string* plain_term(const Expr& e, const Ranges& ranges) {
  const Expr& name = e->op == Op::k_mul && is_const_int(e->args[0]) && e->args[0]->ival > 1 ? e->args[1] : e;
  if (name->op != Op::k_iter && name->op != Op::k_symbol) return nullptr;
  return only_value(name->name, ranges) ? nullptr : &name->name;
}

// A sum of such terms in the order of their names, maybe with a constant at its end: as to_expr() writes it, so there
// is nothing to do.
bool canonical_sum(const Expr& e, const Ranges& ranges) {
  const Expr* at = &e;
  const std::string* after = nullptr;  // the name of the term behind
  for (bool last = true; (*at)->op == Op::k_add || (*at)->op == Op::k_sub; last = false, at = &(*at)->args[0]) {
    const Expr& term = (*at)->args[1];
    if (last && is_const_int(term) && term->ival > 0) continue;
    const std::string* name = plain_term(term, ranges);
    if (name == nullptr || (after != nullptr && *name >= *after)) return false;
    after = name;
  }
  const std::string* first = plain_term(*at, ranges);
  return first != nullptr && (after == nullptr || *first < *after);
}

// What a pass makes of these is what a further one would make of it. A remainder may meet its quotient in it.
bool is_settled(const Expr& e) {
  return is_affine_op(e) && e->op != Op::k_mod && std::all_of(e->args.begin(), e->args.end(), is_settled);
}

// The operands of nested min (max) nodes, leaves only.
void flatten(Op op, const Expr& e, std::vector<Expr>& out) {
  if (e->op == op && e->type == DType::i64) {
    for (const Expr& a : e->args) flatten(op, a, out);
  } else {
    out.push_back(e);
  }
}
}  // namespace

std::optional<int64_t> only_value(const std::string& name, const Ranges& ranges) {
  const auto range = ranges.find(name);
  if (!range || range->lo != range->hi) return std::nullopt;
  const Expr* extent = ranges.extent_of(name);
  const bool loads = extent != nullptr && ((*extent)->holds & kHoldsLoad) != 0;
  return loads ? std::nullopt : std::optional(range->lo);
}

bool Canon::add_plain(const Expr& e, int64_t scale, Poly& p) const {
  if (e->type != DType::i64) return false;
  const auto by = [&](const Expr& factor, const Expr& of) {
    int64_t product = 0;
    return !__builtin_mul_overflow(scale, factor->ival, &product) && add_plain(of, product, p);
  };
  int64_t constant = 0;
  switch (e->op) {
    case Op::k_const_int:
      return !__builtin_mul_overflow(scale, e->ival, &constant) && add_term(p, Expr(), constant);
    case Op::k_iter:
    case Op::k_symbol:
      if (const auto value = only_value(e->name, ranges_))
        return !__builtin_mul_overflow(scale, *value, &constant) && add_term(p, Expr(), constant);
      return add_term(p, e, scale);
    case Op::k_add:
      return add_plain(e->args[0], scale, p) && add_plain(e->args[1], scale, p);
    case Op::k_sub:
      return scale != INT64_MIN && add_plain(e->args[0], scale, p) && add_plain(e->args[1], -scale, p);
    case Op::k_neg:
      return scale != INT64_MIN && add_plain(e->args[0], -scale, p);
    case Op::k_mul:
      if (is_const_int(e->args[0])) return by(e->args[0], e->args[1]);
      return is_const_int(e->args[1]) && by(e->args[1], e->args[0]);
    default:
      return false;
  }
}

Poly Canon::poly(const Expr& e) const {
  if (!is_affine_op(e)) {
    const Expr c = expr(e);
    return is_affine_op(c) ? poly(c) : Poly::atom(c);
  }
  if (Poly plain; add_plain(e, 1, plain)) return plain;
  switch (e->op) {
    case Op::k_add:
      return recombined(add(poly(e->args[0]), poly(e->args[1])));
    case Op::k_sub:
      return recombined(add(poly(e->args[0]), poly(e->args[1]), -1));
    case Op::k_neg:
      return scaled(poly(e->args[0]), -1);
    case Op::k_mul:
      return mul(poly(e->args[0]), poly(e->args[1]));
    case Op::k_floordiv:
    case Op::k_mod:
    case Op::k_ceildiv:
      return divide(e->op, poly(e->args[0]), poly(e->args[1]));
    default:
      break;
  }
  std::vector<Expr> leaves;
  flatten(e->op, e, leaves);
  std::vector<Poly> operands;
  operands.reserve(leaves.size());
  for (const Expr& leaf : leaves) operands.push_back(poly(leaf));
  return lattice(e->op, std::move(operands));
}

Poly Canon::divide(Op op, Poly num, Poly den) const {
  Division state{op, std::move(num), std::move(den)};
  if (state.num.overflow || state.den.overflow) {
    state.num.overflow = true;
    return state.num;
  }
  const bool legal = !state.den.is_constant() || state.den.constant_part() > 0;
  for (int step = 0; legal && step < kMaxRuleSteps && state.live; ++step) {
    const bool changed = std::any_of(std::begin(kDivisionRules), std::end(kDivisionRules),
                                     [&](const DivisionRule& rule) { return rule.apply(state, *this); });
    if (!changed) break;
  }
  if (!state.live) return state.extra;
  return add(state.extra, Poly::atom(make(state.op, {to_expr(state.num), to_expr(state.den)})), state.scale);
}

Poly Canon::lattice(Op op, std::vector<Poly> operands) const {
  const int64_t sign = op == Op::k_min ? 1 : -1;
  // winner <= other (min) or >= (max) for all values in range.
  const auto dominates = [&](const Poly& winner, const Poly& other) {
    const Poly slack = scaled(add(other, winner, -1), sign);
    if (slack.overflow) return false;
    if (interval_of(slack, ranges_).lo >= 0) return true;
    return prove_ && !slack.is_constant() && proves_nonnegative(slack, ranges_);
  };
  // Operands that are lattice nodes of the same kind dissolve first.
  std::vector<Poly> flat;
  for (Poly& p : operands) {
    if (p.overflow) return p;
    if (p.terms.size() == 1 && p.terms[0].coef == 1 && p.terms[0].atoms.size() == 1 && p.terms[0].atoms[0]->op == op) {
      std::vector<Expr> leaves;
      flatten(op, p.terms[0].atoms[0], leaves);
      for (const Expr& leaf : leaves) flat.push_back(poly(leaf));
    } else {
      flat.push_back(std::move(p));
    }
  }
  std::vector<Poly> kept;
  for (Poly& p : flat) {
    if (std::any_of(kept.begin(), kept.end(), [&](const Poly& k) { return dominates(k, p); })) continue;
    kept.erase(std::remove_if(kept.begin(), kept.end(), [&](const Poly& k) { return dominates(p, k); }), kept.end());
    kept.push_back(std::move(p));
  }
  if (kept.size() == 1) return kept[0];
  std::vector<Expr> exprs;
  for (const Poly& p : kept) exprs.push_back(to_expr(p));
  std::sort(exprs.begin(), exprs.end(), [](const Expr& a, const Expr& b) {
    if (is_const_int(a) != is_const_int(b)) return is_const_int(a);
    return compare(a, b) < 0;
  });
  Expr out = exprs[0];
  for (size_t i = 1; i < exprs.size(); ++i) out = make(op, {out, exprs[i]});
  return Poly::atom(out);
}

// t*(x % d) + t*d*(x // d) -> t*x.
Poly Canon::recombined(Poly p) const {
  for (bool changed = true; changed;) {
    changed = false;
    for (const Term& t : p.terms) {
      const auto at = std::find_if(t.atoms.begin(), t.atoms.end(), [](const Expr& a) { return a->op == Op::k_mod; });
      if (at == t.atoms.end()) continue;
      const Expr mod_atom = *at;
      Poly cofactor;
      cofactor.terms.push_back(t);
      cofactor.terms[0].atoms.erase(cofactor.terms[0].atoms.begin() + (at - t.atoms.begin()));
      const Poly den = poly(mod_atom->args[1]);
      if (den.terms.size() != 1) continue;
      const Expr quotient = make(Op::k_floordiv, {mod_atom->args[0], mod_atom->args[1]});
      const Poly partner = mul(mul(cofactor, den), Poly::atom(quotient));
      if (partner.overflow || partner.terms.size() != 1) continue;
      const Poly without = add(p, partner, -1);
      if (without.overflow || without.terms.size() + 1 != p.terms.size()) continue;
      const Poly plain = add(without, mul(cofactor, Poly::atom(mod_atom)), -1);
      p = add(plain, mul(cofactor, poly(mod_atom->args[0])));
      changed = true;
      break;
    }
  }
  return p;
}

Expr Canon::rebuilt(const Expr& e) const {
  return with_args(e, [this](const Expr& a) { return expr(a); });
}

// Comparisons of indices that the ranges decide, logic on constants.
Expr Canon::compare_node(const Expr& e) const {
  const Expr r = rebuilt(e);
  const auto truth = [](const Expr& a) { return is_const_int(a) ? (a->ival != 0 ? 1 : 0) : -1; };
  if (op_info(r->op).cls == OpClass::kLogic) {
    const int a = truth(r->args[0]);
    if (r->op == Op::k_logical_not) return a < 0 ? r : const_bool(a == 0);
    const int b = truth(r->args[1]);
    const int absorbing = r->op == Op::k_logical_or ? 1 : 0;
    if (a == absorbing || b == absorbing) return const_bool(absorbing != 0);
    if (a >= 0) return r->args[1];
    return b >= 0 ? r->args[0] : r;
  }
  if (r->args[0]->type != DType::i64 || r->args[1]->type != DType::i64) return r;
  const Poly gap = add(poly(r->args[1]), poly(r->args[0]), -1);  // b - a
  if (gap.overflow) return r;
  const auto nonnegative = [&](const Poly& p) {
    return interval_of(p, ranges_).lo >= 0 || (prove_ && proves_nonnegative(p, ranges_));
  };
  const Poly one = Poly::constant(1);
  const bool below = nonnegative(add(gap, one, -1));              // a < b
  const bool above = nonnegative(add(scaled(gap, -1), one, -1));  // a > b
  switch (r->op) {
    case Op::k_lt:
      return below ? const_bool(true) : nonnegative(scaled(gap, -1)) ? const_bool(false) : r;
    case Op::k_le:
      return above ? const_bool(false) : nonnegative(gap) ? const_bool(true) : r;
    case Op::k_eq:
      return gap.is_zero() ? const_bool(true) : below || above ? const_bool(false) : r;
    default:
      return gap.is_zero() ? const_bool(false) : below || above ? const_bool(true) : r;
  }
}

Expr Canon::expr(const Expr& e) const {
  if (!e) return e;
  if (is_affine_op(e)) {
    if (e->op == Op::k_const_int || canonical_sum(e, ranges_)) return e;
    const Poly p = poly(e);
    if (p.overflow) return e;
    return is_expr_of(p, e) ? e : to_expr(p);
  }
  const OpClass cls = op_info(e->op).cls;
  if (cls == OpClass::kCompare || cls == OpClass::kLogic) return compare_node(e);
  if (e->op == Op::k_select) {
    const Expr condition = expr(e->args[0]);
    if (is_const_int(condition)) return expr(e->args[condition->ival != 0 ? 1 : 2]);
  }
  return rebuilt(e);
}

// The expression itself where that is what it becomes.
static Expr canonical(const Canon& canon, const Expr& e) {
  Expr current = e;
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    Expr next = canon.expr(current);
    const bool stays = next.get() == current.get() || equal(next, current);
    if (!stays) current = std::move(next);
    if (stays || is_settled(current)) break;
  }
  return current;
}

Expr simplify(const Expr& e, const Ranges& ranges) {
  if (!e) return e;
  if (e->args.empty()) {
    if (e->op != Op::k_iter && e->op != Op::k_symbol) return e;
    const auto value = only_value(e->name, ranges);
    return value ? Expr(*value) : e;
  }
  if (canonical_sum(e, ranges)) return e;
  const Canon canon(ranges, true);
  if (Poly plain; canon.add_plain(e, 1, plain)) return is_expr_of(plain, e) ? e : to_expr(plain);
  // Null: it stays as it is, whichever node it is.
  const Expr other = Answers<Asked::simplified, Expr, 1024>::get(Question(e, ranges), [&] {
    Expr made = canonical(canon, e);
    return made.get() == e.get() ? Expr() : made;
  });
  return other ? other : e;
}

}  // namespace lathe::ir
