// Arithmetic: one machine instruction per operation wherever the encodings allow. AVX2 in VEX encodings, AVX-512 in
// whichever xbyak picks; what differs by more than the encoding (masks, integer logic, rounding) asks Shape::evex.
#include "jit/x64/emitter.h"

namespace lathe::jit::x64 {
namespace {

// Predicates of vcmpps: ordered and quiet, but for "not equal" and "unordered".
constexpr int kEq = 0x00, kLt = 0x11, kLe = 0x12, kUnord = 0x03, kNe = 0x04, kGe = 0x1d, kGt = 0x1e;
constexpr int kRoundNearest = 0x08, kRoundDown = 0x09;  // no precision exception

bool commutes(LeafOp op) {
  switch (op) {
    case LeafOp::k_add:
    case LeafOp::k_mul:
    case LeafOp::k_bit_and:
    case LeafOp::k_bit_or:
    case LeafOp::k_bit_xor:
    case LeafOp::k_iadd:
    case LeafOp::k_imul:
    case LeafOp::k_imin:
    case LeafOp::k_cmp_eq:
    case LeafOp::k_cmp_ne:
    case LeafOp::k_cmp_unord:
      return true;
    default:
      return false;
  }
}

}  // namespace

Xmm Emitter::sized(int reg, int lanes) {
  if (lanes == 16) return Xmm(Operand::ZMM, reg);
  return lanes == 8 ? Xmm(Operand::YMM, reg) : Xmm(Operand::XMM, reg);
}

Emitter::Sources Emitter::sources(const Item& item) {
  const Inst& inst = item.node->inst;
  const int count = leaf_op_sources(inst.op);
  const LeafOpKind kind = leaf_op_kind(inst.op);
  Sources s;
  int temps = 0;
  // A constant may be built in the destination where no source lives there, nor the mask: without mask registers it is
  // a vector too.
  bool dst_free = kind != LeafOpKind::kMask && kind != LeafOpKind::kStore;
  if (dst_free && !shape_.evex && inst.mask >= 0) dst_free = mask_vec(inst.mask).getIdx() != vec(inst.dst).getIdx();
  for (int i = 0; i < count && dst_free; ++i) {
    const int8_t reg = a_.vector[inst.src[i]];
    if (reg >= 0 && reg == a_.vector[inst.dst]) dst_free = false;
  }
  for (int i = 0; i < count; ++i) {
    const int v = inst.src[i];
    const VectorInfo& info = a_.info[v];
    if (a_.vector[v] >= 0) {
      s.reg[i] = vec(v);
    } else if (i == item.memory_src) {
      s.memory = i;
      const Inst& def = a_.items[info.def_pos].node->inst;
      if (!info.constant) {
        const RegExp e = address(def.mem);
        memory_ = def.op == LeafOp::k_load_bcast ? as_.ptr_b[e] : as_.ptr[e];
      } else {
        memory_ = shape_.evex ? as_.broadcast_constant(def.imm) : as_.wide_constant(def.imm);
      }
    } else {
      // The factors of a dot product are read when the destination already holds the sum.
      const bool dot = inst.op == LeafOp::k_dot4_u8s8 || inst.op == LeafOp::k_dot2_bf16;
      const bool in_dst = dst_free && (!dot || i == 2);
      s.reg[i] = in_dst ? vec(inst.dst) : vec(item.temp + temps++);
      if (in_dst) dst_free = false;
      constant(s.reg[i], a_.items[info.def_pos].node->inst.imm);
    }
  }
  return s;
}

void Emitter::instruction(const Item& item) {
  const Inst& inst = item.node->inst;
  const Lanes wanted = one_lane_.of_result(inst);
  lanes_ = wanted == Lanes::all ? shape_.lanes : 4;
  if (shape_.evex && leaf_op_kind(inst.op) != LeafOpKind::kHint)
    use(lanes_ == 16 ? kCpu_avx512f : kCpu_avx512f | kCpu_avx512vl);
  operation(item, sources(item));
  lanes_ = shape_.lanes;
  if (wanted == Lanes::repeated) as_.vbroadcastss(vec(inst.dst), sized(a_.vector[inst.dst], 4));
}

void Emitter::operation(const Item& item, const Sources& s) {
  const Inst& inst = item.node->inst;
  switch (leaf_op_kind(inst.op)) {
    case LeafOpKind::kLoad:
      load(inst);
      return;
    case LeafOpKind::kStore:
      store(item, s);
      return;
    case LeafOpKind::kTile:
      tile(inst);
      return;
    case LeafOpKind::kHint:
      if (inst.op == LeafOp::k_prefetch)
        as_.prefetcht0(as_.ptr[address(inst.mem)]);
      else
        as_.prefetcht1(as_.ptr[address(inst.mem)]);
      return;
    case LeafOpKind::kConst:
      if (inst.op == LeafOp::k_extent_f32) {
        extent_f32(inst);
      } else if (inst.op == LeafOp::k_index_i32) {
        index_i32(inst);
      } else {
        constant(vec(inst.dst), inst.imm);
      }
      return;
    case LeafOpKind::kMask:
      if (inst.op == LeafOp::k_mask_tail) {
        mask_tail(inst);
      } else {
        compare(inst, s);
      }
      return;
    default:
      break;
  }
  switch (inst.op) {
    case LeafOp::k_fma:
      fused(inst, s, false);
      break;
    case LeafOp::k_fnma:
      fused(inst, s, true);
      break;
    case LeafOp::k_dot4_u8s8:
      dot4(item, s);
      break;
    case LeafOp::k_dot2_bf16:
      dot2(item, s);
      break;
    case LeafOp::k_blend:
      blend(inst, s);
      break;
    case LeafOp::k_shuffle128:
      shuffle128(inst, s);
      break;
    case LeafOp::k_reduce_add:
    case LeafOp::k_reduce_max:
    case LeafOp::k_reduce_min:
    case LeafOp::k_reduce_mul:
    case LeafOp::k_reduce_imin:
    case LeafOp::k_reduce_iadd:
      reduce(item, s);
      break;
    case LeafOp::k_prefix_add:
      prefix_add(item, s);
      break;
    case LeafOp::k_last_lane:
      last_lane(inst, s);
      break;
    default:
      if (leaf_op_sources(inst.op) == 2) {
        vector_op(inst, s);
      } else {
        unary(inst, s);
      }
  }
}

void Emitter::move_to(const Xmm& to, const Operand& from) {
  if (from.isMEM() || from.getIdx() != to.getIdx()) as_.vmovaps(to, from);
}

void Emitter::vector_op(const Inst& inst, const Sources& s) {
  const bool swap = s.memory == 0 && commutes(inst.op);
  const Xmm d = vec(inst.dst);
  const Xmm& x = swap ? s.reg[1] : s.reg[0];
  const Operand& y = s.operand(swap ? 0 : 1, memory_);
  const bool evex = shape_.evex;
  use(kCpu_avx);
  switch (inst.op) {
    case LeafOp::k_add:
      as_.vaddps(d, x, y);
      break;
    case LeafOp::k_sub:
      as_.vsubps(d, x, y);
      break;
    case LeafOp::k_mul:
      as_.vmulps(d, x, y);
      break;
    case LeafOp::k_div:
      as_.vdivps(d, x, y);
      break;
    case LeafOp::k_min:
      as_.vminps(d, x, y);
      break;
    case LeafOp::k_max:
      as_.vmaxps(d, x, y);
      break;
    case LeafOp::k_scalef:
      as_.vscalefps(d, x, y);
      break;
    case LeafOp::k_bit_and:
      evex ? as_.vpandd(d, x, y) : as_.vandps(d, x, y);
      break;
    case LeafOp::k_bit_or:
      evex ? as_.vpord(d, x, y) : as_.vorps(d, x, y);
      break;
    case LeafOp::k_bit_xor:
      evex ? as_.vpxord(d, x, y) : as_.vxorps(d, x, y);
      break;
    case LeafOp::k_bit_andnot:
      evex ? as_.vpandnd(d, x, y) : as_.vandnps(d, x, y);
      break;
    case LeafOp::k_iadd:
      use(kCpu_avx2);
      as_.vpaddd(d, x, y);
      break;
    case LeafOp::k_isub:
      use(kCpu_avx2);
      as_.vpsubd(d, x, y);
      break;
    case LeafOp::k_imul:
      use(kCpu_avx2);
      as_.vpmulld(d, x, y);
      break;
    case LeafOp::k_imin:
      use(kCpu_avx2);
      as_.vpminsd(d, x, y);
      break;
    case LeafOp::k_unpack_lo32:
      as_.vunpcklps(d, x, y);
      break;
    case LeafOp::k_unpack_hi32:
      as_.vunpckhps(d, x, y);
      break;
    case LeafOp::k_unpack_lo64:
      as_.vunpcklpd(d, x, y);
      break;
    case LeafOp::k_unpack_hi64:
      as_.vunpckhpd(d, x, y);
      break;
    default:
      break;
  }
}

// dst = src0 * src1 + src2 in the form that needs no move, where there is one.
void Emitter::fused(const Inst& inst, const Sources& s, bool negated) {
  use(kCpu_fma);
  const Xmm d = vec(inst.dst);
  const auto is_dst = [&](int i) { return i != s.memory && s.reg[i].getIdx() == d.getIdx(); };
  const auto f132 = [&](const Xmm& x, const Operand& y) {
    negated ? as_.vfnmadd132ps(d, x, y) : as_.vfmadd132ps(d, x, y);
  };
  const auto f213 = [&](const Xmm& x, const Operand& y) {
    negated ? as_.vfnmadd213ps(d, x, y) : as_.vfmadd213ps(d, x, y);
  };
  const auto f231 = [&](const Xmm& x, const Operand& y) {
    negated ? as_.vfnmadd231ps(d, x, y) : as_.vfmadd231ps(d, x, y);
  };
  if (s.memory == 2) {
    const int kept = is_dst(1) ? 1 : 0;
    move_to(d, s.reg[kept]);
    f213(s.reg[1 - kept], *memory_);
  } else if (s.memory >= 0) {
    const int other = 1 - s.memory;
    if (is_dst(other)) {
      f132(s.reg[2], *memory_);
    } else {
      move_to(d, s.reg[2]);
      f231(s.reg[other], *memory_);
    }
  } else if (is_dst(2)) {
    f231(s.reg[0], s.reg[1]);
  } else if (is_dst(0)) {
    f213(s.reg[1], s.reg[2]);
  } else if (is_dst(1)) {
    f213(s.reg[0], s.reg[2]);
  } else {
    move_to(d, s.reg[2]);
    f231(s.reg[0], s.reg[1]);
  }
}

// Without the instruction, bytes become halves, first the odd, then the even ones: products of pairs fit 32 bits.
// The destination, which may be any source, is written when all else has been read.
void Emitter::dot4(const Item& item, const Sources& s) {
  const Inst& inst = item.node->inst;
  const Xmm d = vec(inst.dst), x = s.reg[0];
  const auto temp = [&](int last) { return vec(item.temp + item.num_temps - last); };
  use(kCpu_avx);
  if (shape_.dot4) {
    use(dot4_feature(p_.features()));
    const Xmm sum = dot_overwrites(inst) ? temp(1) : d;
    move_to(sum, s.reg[2]);
    as_.vpdpbusd(sum, x, s.operand(1, memory_), shape_.evex ? Xbyak::EvexEncoding : Xbyak::VexEncoding);
    return move_to(d, sum);
  }
  use(shape_.evex ? uint64_t{kCpu_avx2 | kCpu_avx512bw} : uint64_t{kCpu_avx2});
  constexpr uint32_t kEven = 0x00ff00ff;
  const Xmm sum = temp(1), y = temp(2);
  as_.vpsrlw(sum, x, 8);
  as_.vpsraw(y, s.reg[1], 8);
  as_.vpmaddwd(sum, sum, y);
  as_.vpaddd(sum, sum, s.reg[2]);
  as_.vpsllw(y, s.reg[1], 8);
  as_.vpsraw(y, y, 8);
  shape_.evex ? as_.vpandd(d, x, as_.broadcast_constant(kEven)) : as_.vpand(d, x, as_.wide_constant(kEven));
  as_.vpmaddwd(d, d, y);
  as_.vpaddd(d, d, sum);
}

void Emitter::dot2(const Item& item, const Sources& s) {
  const Inst& inst = item.node->inst;
  const Xmm d = vec(inst.dst);
  use(kCpu_avx | kCpu_avx512bf16);
  const Xmm sum = dot_overwrites(inst) ? vec(item.temp + item.num_temps - 1) : d;
  move_to(sum, s.reg[2]);
  as_.vdpbf16ps(sum, s.reg[0], s.operand(1, memory_));
  move_to(d, sum);
}

void Emitter::compare(const Inst& inst, const Sources& s) {
  int predicate = kEq;
  const bool swap = s.memory == 0;
  switch (inst.op) {
    case LeafOp::k_cmp_lt:
      predicate = swap ? kGt : kLt;
      break;
    case LeafOp::k_cmp_le:
      predicate = swap ? kGe : kLe;
      break;
    case LeafOp::k_cmp_ne:
      predicate = kNe;
      break;
    case LeafOp::k_cmp_unord:
      predicate = kUnord;
      break;
    default:
      break;
  }
  const Xmm& x = swap ? s.reg[1] : s.reg[0];
  const Operand& y = s.operand(swap ? 0 : 1, memory_);
  use(kCpu_avx);
  if (shape_.evex) {
    as_.vcmpps(mask_k(inst.dst), x, y, predicate);
  } else {
    as_.vcmpps(mask_vec(inst.dst), x, y, predicate);
  }
}

void Emitter::blend(const Inst& inst, const Sources& s) {
  const Xmm d = vec(inst.dst);
  use(kCpu_avx);
  if (shape_.evex) {
    as_.vblendmps(d | mask_k(inst.mask), s.reg[0], s.operand(1, memory_));
  } else {
    as_.vblendvps(d, s.reg[0], s.operand(1, memory_), mask_vec(inst.mask));
  }
}

void Emitter::unary(const Inst& inst, const Sources& s) {
  const Xmm d = vec(inst.dst);
  const Operand& x = s.operand(0, memory_);
  const int imm = static_cast<int>(inst.imm);
  use(kCpu_avx);
  switch (inst.op) {
    case LeafOp::k_move:
      move_to(d, x);
      break;
    case LeafOp::k_sqrt:
      as_.vsqrtps(d, x);
      break;
    case LeafOp::k_round:
      shape_.evex ? as_.vrndscaleps(d, x, kRoundNearest) : as_.vroundps(d, x, kRoundNearest);
      break;
    case LeafOp::k_floor:
      shape_.evex ? as_.vrndscaleps(d, x, kRoundDown) : as_.vroundps(d, x, kRoundDown);
      break;
    case LeafOp::k_cvt_f32_i32:
      as_.vcvtps2dq(d, x);
      break;
    case LeafOp::k_cvt_i32_f32:
      as_.vcvtdq2ps(d, x);
      break;
    case LeafOp::k_shift_left:
      use(kCpu_avx2);
      as_.vpslld(d, x, imm);
      break;
    case LeafOp::k_shift_right:
      use(kCpu_avx2);
      as_.vpsrld(d, x, imm);
      break;
    case LeafOp::k_shift_right_arith:
      use(kCpu_avx2);
      as_.vpsrad(d, x, imm);
      break;
    default:
      break;
  }
}

void Emitter::shuffle128(const Inst& inst, const Sources& s) {
  const Xmm d = vec(inst.dst);
  const Operand& y = s.operand(1, memory_);
  const int imm = static_cast<int>(inst.imm);
  if (shape_.lanes == 16) {
    as_.vshuff32x4(Zmm(d.getIdx()), Zmm(s.reg[0].getIdx()), y, imm);
  } else {
    as_.vperm2f128(Ymm(d.getIdx()), Ymm(s.reg[0].getIdx()), y, imm);
  }
}

}  // namespace lathe::jit::x64
