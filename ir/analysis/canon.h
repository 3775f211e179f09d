// The canonical form of index expressions inside the analyses: a sum of terms, each an integer coefficient times a
// product of atoms. An atom is an iterator, a symbol, or an opaque node (floordiv, mod, ceildiv, min, max, load, ...)
// whose arguments are canonical already. Sums are unique up to the order of compare(). They know nothing of ranges
// (poly.cc).
//
// Canonicalisation with ranges: what simplify(), interval() and the proofs share. A Canon is cheap and lives for one
// call. With `prove` set, min and max (and symbolic divisions) also use the proofs of bounds.cc; the proofs themselves
// run without it, so the two never call each other in a circle; its rules are in simplify_rules.h. Private to this
// floor's analyses.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/analysis/analysis.h"
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
// Adds coef * atom, of a null atom coef alone. False: that is not representable, and p no longer the sum.
bool add_term(Poly& p, const Expr& atom, int64_t coef);
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

class Canon {
 public:
  Canon(const Ranges& ranges, bool prove) : ranges_(ranges), prove_(prove) {}

  Poly poly(const Expr& e) const;                // of an i64 expression
  Expr expr(const Expr& e) const;                // any expression: index parts in canonical form, the rest as it is
  Poly divide(Op op, Poly num, Poly den) const;  // floordiv, mod, ceildiv of canonical operands
  Poly lattice(Op op, std::vector<Poly> operands) const;  // min, max of at least one operand
  // Adds scale * e if it is a sum of names and constants with constant factors; no sums of its parts are made. False:
  // it is not, or not representable, and p is of no use.
  bool add_plain(const Expr& e, int64_t scale, Poly& p) const;
  const Ranges& ranges() const { return ranges_; }
  bool prove() const { return prove_; }

 private:
  Expr compare_node(const Expr& e) const;
  Expr rebuilt(const Expr& e) const;
  Poly recombined(Poly p) const;

  const Ranges& ranges_;
  bool prove_;
};

// The value of a name that has one only. An iterator whose loop an input ends has none, though it be 0 whenever it
// runs: that it runs is what proves the rest.
std::optional<int64_t> only_value(const std::string& name, const Ranges& ranges);
// Interval of canonical forms; saturating, INT64_MIN and INT64_MAX are infinite.
Interval interval_of(const Poly& p, const Ranges& ranges);
Interval interval_of_atom(const Expr& atom, const Ranges& ranges);
// Largest known divisor of every value; 0 if the value is always 0.
int64_t multiple_of(const Poly& p, const Ranges& ranges);
int64_t multiple_of_atom(const Expr& atom, const Ranges& ranges);
// An index expression at the points of the ranges.
Points evaluate_at(const Expr& e, const Ranges& ranges);
// Negative at one of the points: no proof that it is not can succeed, and trying is what takes the time.
bool negative_somewhere(const Poly& p, const Ranges& ranges);
// Proven for all values in range.
bool proves_nonnegative(const Poly& p, const Ranges& ranges);

}  // namespace lathe::ir
