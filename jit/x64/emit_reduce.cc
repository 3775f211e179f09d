// Reductions over the lanes of one register, by the tree of leaf_ops.def: the upper half is combined into the lower
// one, until one lane is left, which is then repeated. The lower half is the first operand everywhere: min and max
// depend on it.
#include "jit/x64/emitter.h"

namespace lathe::jit::x64 {

void Emitter::combine(LeafOp op, const Xmm& to, const Xmm& x, const Xmm& y) {
  switch (op) {
    case LeafOp::k_reduce_add:
      as_.vaddps(to, x, y);
      break;
    case LeafOp::k_reduce_mul:
      as_.vmulps(to, x, y);
      break;
    case LeafOp::k_reduce_max:
      as_.vmaxps(to, x, y);
      break;
    case LeafOp::k_reduce_imin:
      as_.vpminsd(to, x, y);
      break;
    case LeafOp::k_reduce_iadd:
      as_.vpaddd(to, x, y);
      break;
    default:
      as_.vminps(to, x, y);
      break;
  }
}

void Emitter::reduce(const Item& item, const Sources& s) {
  const Inst& inst = item.node->inst;
  const int to = a_.vector[inst.dst];
  // The temporary after those of the sources.
  const int temp = a_.vector[item.temp + item.num_temps - 1];
  const bool high = to >= 16 || temp >= 16 || s.reg[0].getIdx() >= 16;
  if (high) use(kCpu_avx512vl);
  use(kCpu_avx2);
  int from = s.reg[0].getIdx();
  int lanes = shape_.lanes;
  if (lanes == 16) {
    as_.vextractf64x4(Ymm(temp), Zmm(from), 1);
    combine(inst.op, Ymm(to), Ymm(from), Ymm(temp));
    from = to;
    lanes = 8;
  }
  if (lanes == 8) {
    if (high) {
      as_.vextractf32x4(Xmm(temp), Ymm(from), 1);
    } else {
      as_.vextractf128(Xmm(temp), Ymm(from), 1);
    }
    combine(inst.op, Xmm(to), Xmm(from), Xmm(temp));
    from = to;
  }
  as_.vshufps(Xmm(temp), Xmm(from), Xmm(from), 0x0e);
  combine(inst.op, Xmm(to), Xmm(from), Xmm(temp));
  as_.vshufps(Xmm(temp), Xmm(to), Xmm(to), 0x01);
  combine(inst.op, Xmm(to), Xmm(to), Xmm(temp));
  as_.vbroadcastss(physical(to), Xmm(to));
}

}  // namespace lathe::jit::x64
