// Canonicalisation with ranges: what simplify(), interval() and the proofs share. A Canon is cheap and lives for one
// call. With `prove` set, min and max (and symbolic divisions) also use the proofs of bounds.cc; the proofs themselves
// run without it, so the two never call each other in a circle. Private to this floor's analyses.
#pragma once
#include "ir/analysis/analysis.h"
#include "ir/analysis/poly.h"

namespace lathe::ir {

class Canon {
 public:
  Canon(const Ranges& ranges, bool prove) : ranges_(ranges), prove_(prove) {}

  Poly poly(const Expr& e) const;                // of an i64 expression
  Expr expr(const Expr& e) const;                // any expression: index parts in canonical form, the rest as it is
  Poly divide(Op op, Poly num, Poly den) const;  // floordiv, mod, ceildiv of canonical operands
  Poly lattice(Op op, std::vector<Poly> operands) const;  // min, max of at least one operand
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
// 0 <= index < size, in the body of those scopes: each of them runs.
bool proves_inside(const Expr& index, const Expr& size, const Ranges& ranges, const std::vector<const Stmt*>& scopes);

}  // namespace lathe::ir
