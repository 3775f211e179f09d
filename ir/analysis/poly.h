// The canonical form of index expressions inside the analyses: a sum of terms, each an integer coefficient times a
// product of atoms. An atom is an iterator, a symbol, or an opaque node (floordiv, mod, ceildiv, min, max, load, ...)
// whose arguments are canonical already. Sums are unique up to the order of compare(). No knowledge of ranges here: the
// rules are in simplify_rules.h. Private to this floor's analyses.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/base/inline_vector.h"
#include "ir/core/expr.h"

namespace lathe::ir {

// A total order: names first and by name, then other nodes by operation and arguments. Zero means equal().
int compare(const Expr& a, const Expr& b);

template <>
inline constexpr bool kMovesAsBytes<Expr> = true;  // a shared_ptr

struct Term {
  int64_t coef = 0;
  InlineVector<Expr, 2> atoms;  // sorted; empty: the constant
};
template <>
inline constexpr bool kMovesAsBytes<Term> = true;

// Terms in order, no two alike, no zero coefficient, the constant last. `overflow` poisons: the value is not
// representable and nothing may be concluded from it.
struct Poly {
  InlineVector<Term, 4> terms;
  bool overflow = false;

  static Poly constant(int64_t value);
  static Poly atom(Expr e);
  int64_t constant_part() const;
  bool is_constant() const { return terms.empty() || (terms.size() == 1 && terms[0].atoms.empty()); }
  bool is_zero() const { return terms.empty(); }
};

Poly add(Poly a, Poly b, int64_t scale = 1);  // a + scale * b
Poly mul(Poly a, Poly b);
Poly scaled(Poly a, int64_t by);
bool equal(const Poly& a, const Poly& b);
// The Expr: terms in order, coefficient first (8*m0), a positive term in front where there is one.
Expr to_expr(const Poly& p);
// equal(to_expr(p), e), without making it.
bool is_expr_of(const Poly& p, const Expr& e);

// The coefficient of `atom` in p (which must be linear in it: *linear says so) and what remains.
struct Split {
  Poly coef, rest;
  bool linear = true;
};
Split split_atom(const Poly& p, const Expr& atom);

}  // namespace lathe::ir
