// Facts start as true and are taken back until nothing changes: a register that a loop carries has those of all its
// definitions.
#include "jit/x64/low_halves.h"

namespace lathe::jit::x64 {
namespace {

constexpr uint8_t kZeroToo = kZero | kZeroIfNan, kAll = kSignOnly | kShifted | kZeroToo;
constexpr uint32_t kLowHalf = 0xffff, kNumber = 0x7fffffff, kInfinity = 0x7f800000;

uint8_t of_constant(uint32_t bits) {
  if ((bits & kNumber) == 0) return kAll;
  if ((bits & kLowHalf) == 0) return kZeroToo;
  return (bits & kNumber) <= kInfinity ? kZeroIfNan : 0;
}

// a, b: of the first two sources; all: what each source has.
uint8_t of_result(const Inst& inst, uint8_t a, uint8_t b, uint8_t all) {
  switch (inst.op) {
    case LeafOp::k_load:
    case LeafOp::k_load_bcast:
      return inst.type == MemType::bf16 ? kZeroToo : 0;
    case LeafOp::k_constant:
      return of_constant(inst.imm);
    case LeafOp::k_extent_f32:
    case LeafOp::k_cvt_i32_f32:
      return kZeroIfNan;
    // NaN comes from a source, made quiet, or is the one whose lower bits are zeros.
    case LeafOp::k_add:
    case LeafOp::k_sub:
    case LeafOp::k_mul:
    case LeafOp::k_div:
    case LeafOp::k_fma:
    case LeafOp::k_fnma:
    case LeafOp::k_sqrt:
    case LeafOp::k_round:
    case LeafOp::k_floor:
    case LeafOp::k_scalef:
    case LeafOp::k_reduce_add:
    case LeafOp::k_reduce_mul:
    case LeafOp::k_prefix_add:
      return all & kZeroIfNan;
    // One of the sources.
    case LeafOp::k_move:
    case LeafOp::k_min:
    case LeafOp::k_max:
    case LeafOp::k_blend:
    case LeafOp::k_reduce_max:
    case LeafOp::k_reduce_min:
    case LeafOp::k_last_lane:
    case LeafOp::k_unpack_lo32:
    case LeafOp::k_unpack_hi32:
    case LeafOp::k_unpack_lo64:
    case LeafOp::k_unpack_hi64:
    case LeafOp::k_shuffle128:
      return all;
    case LeafOp::k_bit_and:
      return (a | b) & kSignOnly ? kAll : (a | b) & kZero ? kZeroToo : 0;
    case LeafOp::k_bit_andnot:
      if (b & kSignOnly) return kAll;
      return b & kZero ? kZeroToo : a & kSignOnly ? b & kZeroIfNan : 0;
    case LeafOp::k_bit_or:
    case LeafOp::k_bit_xor:
      if (all & kZero) return all;
      return a & kSignOnly ? b & kZeroIfNan : b & kSignOnly ? a & kZeroIfNan : 0;
    case LeafOp::k_shift_left:
      return inst.imm >= 31 ? kAll : inst.imm >= 16 ? kZeroToo | kShifted : 0;
    // What adds to exponents (jit/lower/vector_math.cc) makes no NaN of a number.
    case LeafOp::k_iadd:
      if (all & kZero) return kZeroToo;
      return b & kShifted ? a & kZeroIfNan : a & kShifted ? b & kZeroIfNan : 0;
    case LeafOp::k_isub:
      if (all & kZero) return kZeroToo;
      return b & kShifted ? a & kZeroIfNan : 0;
    default:
      return 0;
  }
}

bool refine(const Nodes& body, std::pmr::vector<uint8_t>& facts) {
  bool changed = false;
  for (const Node& n : body) {
    if (n.kind == Node::Kind::inst && n.inst.dst >= 0 && leaf_op_kind(n.inst.op) != LeafOpKind::kMask) {
      uint8_t of[3] = {kAll, kAll, kAll};
      for (int s = 0; s < leaf_op_sources(n.inst.op); ++s) of[s] = facts[static_cast<size_t>(n.inst.src[s])];
      uint8_t& known = facts[static_cast<size_t>(n.inst.dst)];
      const uint8_t left = known & of_result(n.inst, of[0], of[1], of[0] & of[1] & of[2]);
      changed |= left != known;
      known = left;
    }
    changed |= refine(n.body, facts);
  }
  return changed;
}

bool stores_bf16(const Nodes& body) {
  for (const Node& n : body) {
    const bool stores = n.kind == Node::Kind::inst && leaf_op_kind(n.inst.op) == LeafOpKind::kStore;
    if ((stores && n.inst.type == MemType::bf16) || stores_bf16(n.body)) return true;
  }
  return false;
}

}  // namespace

std::pmr::vector<uint8_t> low_halves(const LeafProgram& program) {
  std::pmr::vector<uint8_t> facts(program.memory());
  if (!stores_bf16(program.body)) return facts;
  facts.assign(static_cast<size_t>(program.num_vregs), kAll);
  while (refine(program.body, facts)) {
  }
  return facts;
}

}  // namespace lathe::jit::x64
