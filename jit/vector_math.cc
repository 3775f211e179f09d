// Vector math: see vector_math.h.
#include "jit/vector_math.h"

#include <limits>

namespace lathe::jit {

using ir::Op;

// max(a, b) and min(a, b) give b where either is NaN; a NaN in a is put back.
static int with_nan_of(Emitter& e, int a, int result) {
  return e.op(LeafOp::k_blend, {result, a}, 0, e.compare(LeafOp::k_cmp_unord, a, a));
}
int emit_max(Emitter& e, int a, int b) { return with_nan_of(e, a, e.op(LeafOp::k_max, {a, b})); }
int emit_min(Emitter& e, int a, int b) { return with_nan_of(e, a, e.op(LeafOp::k_min, {a, b})); }

int emit_math(Emitter& e, Op op, int x) {
  switch (op) {
    case Op::k_sqrt: return e.op(LeafOp::k_sqrt, {x});
    case Op::k_rsqrt: return e.op(LeafOp::k_div, {e.constant(1.0f), e.op(LeafOp::k_sqrt, {x})});
    case Op::k_floor: return e.op(LeafOp::k_floor, {x});
    case Op::k_round: return e.op(LeafOp::k_round, {x});
    default: return -1;
  }
}

}  // namespace lathe::jit
