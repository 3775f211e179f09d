// Float functions of the IR as leaf instructions: polynomials on whole vectors, no calls, no
// tables. vector_math.def lists them with their error budgets; tests/jit/lower/vector_math_test.cc
// measures them.
#pragma once
#include "ir/core/expr.h"
#include "jit/lower/lower_emit.h"

namespace lathe::jit {

// Emits the function for op (class kMath) of register x; -1 if there is none.
int emit_math(Emitter& e, ir::Op op, int x);

// a * sigmoid(x) in one division.
int emit_times_sigmoid(Emitter& e, int a, int x);
// x * normal_cdf(x), without a difference from 1.
int emit_times_own_normal_cdf(Emitter& e, int x);

// a if a > b else b, and the like for min, with NaN in either operand giving NaN.
int emit_max(Emitter& e, int a, int b);
int emit_min(Emitter& e, int a, int b);

}  // namespace lathe::jit
