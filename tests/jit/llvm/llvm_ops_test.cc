// Every instruction of a leaf program through LLVM, against the portable executor, on special and
// random values at every level the machine runs.
#include "tests/jit/llvm/llvm_test_util.h"

namespace lathe::jit {
namespace {
using namespace llvm_test;

constexpr int kVectors = 24;

// d[n] = op(a[n], b[n], c[n]) for kVectors vectors; a comparison's mask blends b over a.
LeafProgram one_op(const Shape& shape, LeafOp op, uint32_t imm) {
  LeafProgram p = empty_program(shape, leaf_op_name(op), 4);
  Node loop;
  loop.kind = Node::Kind::loop;
  loop.var = 0;
  loop.step = shape.lanes;
  loop.extent.arg = 0;
  const int n = leaf_op_sources(op);
  Inst i = arith(op, 3, 0, n > 1 ? 1 : -1, n > 2 ? 2 : -1, imm);
  loop.body = {inst(load(0, 0, 0)), inst(load(1, 1, 0)), inst(load(2, 2, 0))};
  switch (leaf_op_kind(op)) {
    case LeafOpKind::kMask: {
      i.dst = 0;
      if (op == LeafOp::k_mask_tail) {
        i.src[0] = i.src[1] = -1;
        i.var = 0;
        i.var_add = 3;
        i.extent.arg = 1;
        i.extent.add = -2;
      }
      Inst blend = arith(LeafOp::k_blend, 3, 0, 1);
      blend.mask = 0;
      loop.body.insert(loop.body.end(), {inst(i), inst(blend), inst(store(3, 3, 0))});
      break;
    }
    case LeafOpKind::kLoad: {
      Inst from = load(3, 0, 0);
      from.op = op;
      loop.body.insert(loop.body.end(), {inst(from), inst(store(3, 3, 0))});
      break;
    }
    case LeafOpKind::kStore: {
      Inst to = store(0, 3, 0);
      to.op = op;
      loop.body.push_back(inst(to));
      break;
    }
    case LeafOpKind::kHint: {
      Inst touch = load(-1, 0, 0);
      touch.op = op;
      loop.body.insert(loop.body.end(), {inst(touch), inst(store(0, 3, 0))});
      break;
    }
    default:
      if (op == LeafOp::k_blend) {
        loop.body.push_back(inst(arith(LeafOp::k_cmp_lt, 1, 1, 2)));
        i.mask = 1;
      }
      if (n == 0) i.src[0] = -1;
      if (op == LeafOp::k_index_i32) i.var = 0;
      i.extent.arg = 1;
      loop.body.insert(loop.body.end(), {inst(i), inst(store(3, 3, 0))});
  }
  p.body = {loop};
  return p;
}

class LlvmOps : public testing::TestWithParam<int> {};

TEST_P(LlvmOps, EqualThePortableExecutor) {
  LATHE_NEEDS_LLVM();
  const auto op = static_cast<LeafOp>(GetParam());
  std::vector<uint32_t> immediates = {0};
  if (op == LeafOp::k_constant) immediates = {0, 0x3f800000, 0xff800000, 0x80000001};
  if (op >= LeafOp::k_shift_left && op <= LeafOp::k_shift_right_arith) immediates = {0, 1, 23, 31};
  if (op == LeafOp::k_index_i32) immediates = {0, 1};
  if (op == LeafOp::k_shuffle128) {
    immediates.clear();
    for (uint32_t imm = 0; imm < 256; imm += 3) immediates.push_back(imm);
  }
  int compared = 0;
  if (leaf_op_kind(op) == LeafOpKind::kTile) GTEST_SKIP() << "tiles are xbyak's";
  for (const Shape& shape : shapes_of(op)) {
    if (op == LeafOp::k_scalef && shape.level == ir::IsaLevel::avx2) continue;
    for (uint32_t imm : immediates) {
      const LeafProgram p = one_op(shape, op, imm);
      ASSERT_TRUE(verify_program(p).ok()) << verify_program(p).to_string() << to_text(p);
      const auto image = compile_llvm(p, "");
      ASSERT_TRUE(image.ok()) << image.status().to_string();
      if (!host_runs(shape)) continue;
      const Loaded code(*image);
      std::mt19937 random(imm + 7);
      const auto n = static_cast<size_t>(kVectors * shape.lanes);
      const auto a = test_values(random, n), b = test_values(random, n), c = test_values(random, n);
      alignas(64) float memory[2][kVectors * 16];
      std::vector<float> result[2];
      for (int who = 0; who < 2; ++who) {
        std::fill_n(memory[who], n, -7.0f);
        ir::LeafArgs args{};
        const std::vector<float>* in[] = {&a, &b, &c};
        for (int s = 0; s < 3; ++s) args.op[s].ptr = reinterpret_cast<char*>(const_cast<float*>(in[s]->data()));
        args.op[3].ptr = reinterpret_cast<char*>(memory[who]);
        args.extent[0] = static_cast<int64_t>(n);
        args.extent[1] = static_cast<int64_t>(n) - shape.lanes / 2 - 1;
        who == 0 ? execute_portable(p, args) : code(args);
        result[who].assign(memory[who], memory[who] + n);
      }
      const int64_t at = difference(result[0], result[1]);
      ASSERT_EQ(at, -1) << shape.name() << " imm " << imm << " element " << at << ": portable "
                        << result[0][static_cast<size_t>(at)] << ", llvm " << result[1][static_cast<size_t>(at)]
                        << " from " << a[static_cast<size_t>(at)] << " " << b[static_cast<size_t>(at)] << " "
                        << c[static_cast<size_t>(at)];
      ++compared;
    }
  }
  if (compared == 0) GTEST_SKIP() << "the machine has neither AVX2 nor AVX-512";
}

constexpr int kOps = 0
#define LATHE_LEAF_OP(id, sources, kind) +1
#include "jit/program/leaf_ops.def"
#undef LATHE_LEAF_OP
    ;
INSTANTIATE_TEST_SUITE_P(All, LlvmOps, testing::Range(0, kOps),
                         [](const auto& info) { return leaf_op_name(static_cast<LeafOp>(info.param)); });

TEST(LlvmOps, ScalefNeedsAvx512) {
  LATHE_NEEDS_LLVM();
  LeafProgram p = one_op({ir::IsaLevel::avx512, 8}, LeafOp::k_scalef, 0);
  p.level = ir::IsaLevel::avx2;
  EXPECT_FALSE(compile_llvm(p, "").ok());
}

TEST(LlvmOps, PortableLevelIsRefused) {
  LATHE_NEEDS_LLVM();
  LeafProgram p = one_op({ir::IsaLevel::portable, 8}, LeafOp::k_add, 0);
  const auto image = compile_llvm(p, "");
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.status().code(), ir::Code::kUNSUPPORTED) << image.status().to_string();
}

}  // namespace
}  // namespace lathe::jit
