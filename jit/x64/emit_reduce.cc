// Reductions over the lanes of one register, and the sums of their prefixes. Reductions go by the tree of leaf_ops.def:
// the upper half is combined into the lower one, until one lane is left, which is then repeated. The lower half is the
// first operand everywhere: min and max depend on it.
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
  if (one_lane_.vectors.empty() || one_lane_.vectors[static_cast<size_t>(inst.dst)] != Lanes::first)
    as_.vbroadcastss(physical(to), Xmm(to));
}

// x + x moved up by 1 lane, then by 2, 4, 8. VEX moves bytes within 128 bits: what comes from the half below is brought
// there first.
void Emitter::prefix_add(const Item& item, const Sources& s) {
  const Xmm to = vec(item.node->inst.dst), moved = vec(item.temp + item.num_temps - 1);
  Xmm from = s.reg[0];
  const int lanes = shape_.lanes;
  use(kCpu_avx2);
  const auto up = [&](int by) {
    if (shape_.evex) {
      as_.valignd(moved, from, vec(item.temp + item.num_temps - 2), lanes - by);
    } else if (lanes == 4) {
      as_.vpslldq(moved, from, 4 * by);
    } else {
      as_.vperm2f128(Ymm(moved.getIdx()), Ymm(from.getIdx()), Ymm(from.getIdx()), 0x08);
      if (by < 4) as_.vpalignr(moved, from, moved, 16 - 4 * by);
    }
  };
  if (shape_.evex) {
    const Xmm zero = vec(item.temp + item.num_temps - 2);
    as_.vpxord(zero, zero, zero);
  }
  for (int by = 1; by < lanes; by *= 2) {
    up(by);
    as_.vaddps(to, from, moved);
    from = to;
  }
}

void Emitter::last_lane(const Inst& inst, const Sources& s) {
  const Xmm to = vec(inst.dst);
  Xmm from = s.reg[0];
  use(kCpu_avx);
  if (shape_.lanes == 16) {
    as_.vshuff32x4(Zmm(to.getIdx()), Zmm(from.getIdx()), Zmm(from.getIdx()), 0xff);
    from = to;
  } else if (shape_.lanes == 8 && shape_.evex) {
    as_.vshuff32x4(Ymm(to.getIdx()), Ymm(from.getIdx()), Ymm(from.getIdx()), 0x03);
    from = to;
  } else if (shape_.lanes == 8) {
    as_.vperm2f128(Ymm(to.getIdx()), Ymm(from.getIdx()), Ymm(from.getIdx()), 0x11);
    from = to;
  }
  as_.vshufps(to, from, from, 0xff);
}

}  // namespace lathe::jit::x64
