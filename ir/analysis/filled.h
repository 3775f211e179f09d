// Values that are 0 beyond a bound.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "ir/analysis/analysis.h"
#include "ir/core/expr.h"

namespace lathe::ir {

// The value of select(a < b, value, 0) with indices a and b; else the expression itself. -0.0 is no 0: its bits differ.
inline const Expr& unfilled(const Expr& e) {
  if (e->op != Op::k_select || e->args[0]->op != Op::k_lt || e->args[0]->args[0]->type != DType::i64) return e;
  const Expr& rest = e->args[2];
  const bool zero =
      is_const_int(rest, 0) || (rest->op == Op::k_const_float && rest->fval == 0 && !std::signbit(rest->fval));
  return zero ? e->args[1] : e;
}

// Whether a bound of a scope's iterations is `end`, or that and their number.
inline bool is_end(const Expr& bound, const Expr& end, const Expr& extent, const Ranges& ranges) {
  const auto same = [&](const Expr& e) { return is_const_int(simplify(e - end, ranges), 0); };
  if (bound->op != Op::k_min) return same(bound);
  const Expr &a = bound->args[0], &b = bound->args[1];
  return (same(a) && equal(b, extent)) || (same(b) && equal(a, extent));
}

// Whether the scope is inside of the list; then the ranges have what is around it.
inline bool enter_around(const std::vector<Stmt>& list, const Stmt& scope, Ranges& ranges) {
  return std::any_of(list.begin(), list.end(), [&](const Stmt& s) {
    if (&s == &scope || s.kind != Stmt::Kind::scope) return &s == &scope;
    ranges.enter(s);
    if (enter_around(s.body, scope, ranges)) return true;
    ranges.leave();
    return false;
  });
}

}  // namespace lathe::ir
