// Values that are 0 beyond a bound.
#pragma once
#include <cmath>

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

}  // namespace lathe::ir
