// Random leaf programs that verify_program accepts and whose results are decided to the bit (NaNs
// compare as NaN): the lower half of the registers holds bits only exact operations made, so that
// integer instructions never see which NaN an arithmetic one chose.
#pragma once
#include "tests/jit/llvm/llvm_programs.h"

namespace lathe::jit::llvm_test {

class RandomProgram {
 public:
  static constexpr int kMasks = 3, kVars = 4;
  static constexpr size_t kElements = 1 << 16;
  enum Pointer { kIn, kOut, kWalk, kSegA, kSegB, kInWalk, kPointers };

  // Odd seeds keep 12 registers alive, which every generator has, even ones up to 24.
  RandomProgram(const Shape& shape, uint32_t seed)
      : random_(seed),
        shape_(shape),
        registers_(seed % 2 ? 12 : 16 + 2 * static_cast<int>(seed / 2 % 5)),
        exact_(registers_ / 2) {
    program_ = empty_program(shape, fmt::format("random{}", seed), kPointers);
    for (int p : {kWalk, kSegA, kSegB}) program_.ptrs[static_cast<size_t>(p)].slot = -1;
    program_.ptrs[kInWalk].slot = kIn;
    program_.ptrs[kInWalk].bytes = 256;
    program_.ptrs[kInWalk].terms = {{0, 3}};
    program_.num_vregs = registers_;
    program_.num_masks = kMasks;
    program_.num_vars = kVars;
    auto& body = program_.body;
    for (int v = 0; v < kVars; ++v) {
      Node zero = block(Node::Kind::set_var, {});
      zero.var = v;
      body.push_back(zero);
    }
    body.push_back(set_pointer(kWalk, kOut));
    for (int r = 0; r < registers_; ++r) body.push_back(inst(load_at(r, kIn, r * 68)));
    for (int m = 0; m < kMasks; ++m) body.push_back(inst(arith(LeafOp::k_cmp_lt, m, m, m + 1)));
    append(body, 6 + pick(20), 0);
    Node segments = block(Node::Kind::segments, {});
    segments.seg_ptr_a = kSegA;
    segments.seg_ptr_b = kSegB;
    segments.seg_base_a = kIn;
    segments.seg_base_b = kInWalk;
    in_segments_ = true;
    append(segments.body, 4 + pick(10), 1);
    in_segments_ = false;
    body.push_back(segments);
    append(body, pick(10), 0);
    for (int r = 0; r < registers_; ++r) body.push_back(inst(store_at(r, kOut, 4096 + r * 64, -1)));
  }
  const LeafProgram& program() const { return program_; }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  static Inst load_at(int dst, int ptr, int disp) {
    Inst i = load(dst, ptr);
    i.mem.disp = disp;
    return i;
  }
  static Inst store_at(int src, int ptr, int disp, int mask) {
    Inst i = store(src, ptr, -1, mask);
    i.mem.disp = disp;
    return i;
  }
  static Node set_pointer(int ptr, int from) {
    Node n = block(Node::Kind::set_ptr, {});
    n.from = from;
    n.steps = {{ptr, 64, {}}};
    return n;
  }
  Extent any_extent() {
    if (in_segments_ && pick(2)) return {Extent::kSegLen, pick(3) - 1};
    return {pick(4), pick(5) - 2};
  }
  Mem any_address(int ptr) {
    Mem m;
    m.ptr = ptr;
    m.disp = 4 * pick(64);
    if (pick(2)) {
      m.index_kind = pick(3) ? Mem::Index::var : Mem::Index::stride;
      m.index = m.index_kind == Mem::Index::var ? pick(kVars) : 1;
      m.scale = 1 << pick(4);
    }
    return m;
  }

  // No f16, which may read as NaN.
  MemType any_type() {
    static constexpr MemType kTypes[] = {MemType::b32, MemType::b32, MemType::b32,
                                         MemType::u8,  MemType::i8,  MemType::u16};
    return kTypes[pick(6)];
  }
  Inst any_inst() {
    int count = 0
#define LATHE_LEAF_OP(id, sources, kind) +1
#include "jit/program/leaf_ops.def"
#undef LATHE_LEAF_OP
        ;
    for (;;) {
      Inst i{static_cast<LeafOp>(pick(count))};
      const LeafOpKind kind = leaf_op_kind(i.op);
      if (i.op == LeafOp::k_dot2_bf16 || kind == LeafOpKind::kTile) continue;
      if (i.op == LeafOp::k_store_stream || (i.op == LeafOp::k_scalef && shape_.level == ir::IsaLevel::avx2)) continue;
      bool exact = (i.op >= LeafOp::k_bit_and && i.op <= LeafOp::k_dot4_u8s8) || i.op == LeafOp::k_constant ||
                   i.op == LeafOp::k_cvt_i32_f32;
      const bool shuffles = i.op >= LeafOp::k_unpack_lo32 && i.op <= LeafOp::k_shuffle128;
      if ((shuffles || i.op == LeafOp::k_move || i.op == LeafOp::k_blend) && pick(2)) exact = true;
      for (int s = 0; s < leaf_op_sources(i.op); ++s) i.src[s] = pick(exact ? exact_ : registers_);
      if (i.op == LeafOp::k_cvt_f32_i32 || i.op == LeafOp::k_extent_f32) exact = true;
      i.dst = exact ? pick(exact_) : exact_ + pick(registers_ - exact_);
      i.extent = any_extent();
      switch (kind) {
        case LeafOpKind::kMask:
          i.dst = pick(kMasks);
          i.var = pick(kVars + 1) - 1;
          i.var_add = pick(9) - 4;
          break;
        case LeafOpKind::kLoad: {
          const int from[] = {kIn, kInWalk, kOut, kWalk, kSegA, kSegB};
          const int which = pick(in_segments_ ? 6 : 4);
          i.mem = any_address(from[which]);
          if (which != 2 && which != 3 && pick(2)) i.dst = pick(exact_);
          i.type = any_type();
          if (i.op == LeafOp::k_load && pick(2)) i.mask = pick(kMasks);
          break;
        }
        case LeafOpKind::kStore:
          i.dst = -1;
          i.mem = any_address(pick(2) ? kOut : kWalk);
          i.type = any_type();
          // What keeps the low bits alone would show which NaN it was.
          if (i.type != MemType::b32) i.src[0] = pick(exact_);
          if (i.op == LeafOp::k_store && pick(2)) i.mask = pick(kMasks);
          break;
        case LeafOpKind::kHint:
          i.dst = -1;
          i.mem = any_address(kIn);
          break;
        default:
          if (i.op == LeafOp::k_blend) i.mask = pick(kMasks);
          if (i.op == LeafOp::k_constant) i.imm = pick(2) ? random_() : 0x3f800000u + (random_() & 0xffffffu);
          if (i.op >= LeafOp::k_shift_left && i.op <= LeafOp::k_shift_right_arith) i.imm = random_() % 32;
          if (i.op == LeafOp::k_shuffle128) i.imm = random_() % 256;
      }
      return i;
    }
  }

  // Each nested loop has the variable of its depth, so that no loop changes an outer one's.
  void append(Nodes& body, int count, int depth) {
    for (int k = 0; k < count; ++k) {
      const int kind = depth < 3 ? pick(12) : 11;
      if (kind == 0) {
        Node n = count_loop(depth, 1 + pick(3), any_extent(), {});
        n.init = pick(4) != 0;
        append(n.body, 1 + pick(6), depth + 1);
        if (pick(2)) n.steps.push_back({kWalk, 4 * pick(20), {{1, 1}}});
        if (pick(2)) n.steps.push_back({kInWalk, 4 * pick(20), {}});
        body.push_back(n);
      } else if (kind == 1) {
        Node n = block(pick(2) ? Node::Kind::if_less : Node::Kind::if_any, {});
        n.var = pick(kVars);
        n.mask = pick(kMasks);
        n.extent = any_extent();
        append(n.body, 1 + pick(5), depth + 1);
        body.push_back(n);
      } else if (kind == 2) {
        body.push_back(pick(2) ? set_pointer(kWalk, kOut) : set_pointer(kInWalk, kIn));
      } else {
        body.push_back(inst(any_inst()));
      }
    }
  }

  std::mt19937 random_;
  Shape shape_;
  const int registers_, exact_;
  LeafProgram program_;
  bool in_segments_ = false;
};

}  // namespace lathe::jit::llvm_test
