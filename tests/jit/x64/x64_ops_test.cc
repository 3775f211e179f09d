// Every instruction through the x64 generator against the portable executor, on special and random values, at every
// level the machine runs, with each source in a register, folded from memory, broadcast from memory or constant, and
// with the result in a register of its own or over a source.
#include "tests/jit/x64/x64_test_util.h"

namespace lathe::jit {
namespace {
using namespace x64_test;

constexpr int kVectors = 24;
enum Form { kRegister, kFolded, kBroadcast, kConstant, kForms };

// d[n] = op(a[n], b[n], c[n]); source s in form forms[s]; over >= 0: the result overwrites that source's register.
LeafProgram one_op(const Shape& shape, LeafOp op, uint32_t imm, const int* forms, int over) {
  LeafProgram p = empty_program(shape, leaf_op_name(op), 4);
  p.vector_registers = ir::isa_row(shape.level).vector_registers;
  Node loop;
  loop.kind = Node::Kind::loop;
  loop.var = 0;
  loop.step = shape.lanes;
  loop.extent.arg = 0;
  const int n = leaf_op_sources(op);
  for (int s = 0; s < n; ++s) {
    Inst from = load(s, s, 0);
    if (forms[s] == kBroadcast) from.op = LeafOp::k_load_bcast;
    if (forms[s] == kConstant)
      from = arith(LeafOp::k_constant, s, -1, -1, -1, 0x3fc00000 + 0x00400000 * static_cast<unsigned>(s));
    loop.body.push_back(inst(from));
    if (forms[s] == kRegister) loop.body.push_back(inst(arith(LeafOp::k_move, 8 + s, s)));  // a second use: no folding
  }
  Inst i = arith(op, over >= 0 ? over : 3, 0, n > 1 ? 1 : -1, n > 2 ? 2 : -1, imm);
  for (int s = n; s < 3; ++s) i.src[s] = -1;
  const int result = i.dst;
  if (op == LeafOp::k_blend) {
    loop.body.insert(loop.body.begin(),
                     {inst(load(6, 1, 0)), inst(load(7, 2, 0)), inst(arith(LeafOp::k_cmp_lt, 1, 6, 7))});
    i.mask = 1;
  }
  if (leaf_op_kind(op) == LeafOpKind::kMask) {
    i.dst = 0;
    loop.body.push_back(inst(i));
    loop.body.push_back(inst(load(6, 0, 0)));
    loop.body.push_back(inst(load(7, 1, 0)));
    Inst pick = arith(LeafOp::k_blend, result, 6, 7);
    pick.mask = 0;
    loop.body.push_back(inst(pick));
  } else {
    loop.body.push_back(inst(i));
  }
  loop.body.push_back(inst(store(result, 3, 0)));
  for (int s = 0; s < n; ++s) {  // the copies are used, so that they exist
    if (forms[s] == kRegister) loop.body.push_back(inst(store(8 + s, s, 0)));
  }
  p.body = {loop};
  return p;
}

Operands operands(const Shape& shape, unsigned seed) {
  Operands in;
  std::mt19937 random(seed);
  const auto n = static_cast<size_t>(kVectors * shape.lanes);
  for (int s = 0; s < 3; ++s) in.data.push_back(test_values(random, n));
  in.data.emplace_back(n, -7.0f);
  in.args.extent[0] = static_cast<int64_t>(n);
  in.args.extent[1] = static_cast<int64_t>(n) - shape.lanes / 2 - 1;
  return in;
}

class X64Ops : public testing::TestWithParam<int> {};

TEST_P(X64Ops, EqualThePortableExecutor) {
  const auto op = static_cast<LeafOp>(GetParam());
  const LeafOpKind kind = leaf_op_kind(op);
  std::vector<uint32_t> immediates = {0};
  if (op >= LeafOp::k_shift_left && op <= LeafOp::k_shift_right_arith) immediates = {0, 1, 23, 31};
  if (op == LeafOp::k_shuffle128) {
    immediates.clear();
    for (uint32_t imm = 0; imm < 256; imm += 7) immediates.push_back(imm);
  }
  const int n = leaf_op_sources(op);
  const bool to_mask = kind == LeafOpKind::kMask;
  int compared = 0;
  for (const Shape& shape : shapes_of(op)) {
    if ((op == LeafOp::k_scalef && shape.level == ir::IsaLevel::avx2) || !can_run(shape)) continue;
    const Operands in = operands(shape, static_cast<unsigned>(GetParam()));
    for (const uint32_t imm : immediates) {
      for (int combo = 0; combo < (n == 3 ? 64 : n == 2 ? 16 : 4); ++combo) {
        const int forms[3] = {combo % kForms, combo / kForms % kForms, combo / kForms / kForms};
        for (int over = -1; over < (to_mask ? 0 : n); ++over) {
          expect_equal(
              one_op(shape, op, imm, forms, over), in,
              fmt::format("{} imm {} forms {} {} {} over {}", shape.name(), imm, forms[0], forms[1], forms[2], over));
          if (HasFatalFailure()) return;
          ++compared;
        }
      }
    }
  }
  if (compared == 0) GTEST_SKIP() << "the machine has neither AVX2 nor AVX-512";
}

// Loads, stores, constants and mask_tail: x64_memory_test.
std::vector<int> arithmetic() {
  std::vector<int> ops;
  for (int i = 0; i < kLeafOpCount; ++i) {
    if (leaf_op_sources(static_cast<LeafOp>(i)) > 0 && leaf_op_kind(static_cast<LeafOp>(i)) != LeafOpKind::kStore)
      ops.push_back(i);
  }
  return ops;
}
INSTANTIATE_TEST_SUITE_P(All, X64Ops, testing::ValuesIn(arithmetic()),
                         [](const auto& info) { return leaf_op_name(static_cast<LeafOp>(info.param)); });

// Every instruction in every form, disassembled as one text: nothing beyond its level, wherever it was generated.
TEST(X64Ops, UseOnlyTheirLevelsInstructions) {
  if (disassemble({0xc3}).empty()) GTEST_SKIP() << "objdump is not installed";
  for (const Shape& shape : all_shapes()) {
    std::vector<uint8_t> text;
    for (const int i : arithmetic()) {
      const auto op = static_cast<LeafOp>(i);
      if (op == LeafOp::k_dot2_bf16) continue;  // an extra's: tests/jit/x64/dot2_test.cc
      if (op == LeafOp::k_scalef && shape.level == ir::IsaLevel::avx2) continue;
      for (int form = 0; form < kForms; ++form) {
        const int forms[3] = {form, form == kRegister ? kFolded : kRegister, form};
        const auto image = compile_xbyak(one_op(shape, op, 1, forms, -1));
        ASSERT_TRUE(image.ok()) << leaf_op_name(op) << " " << image.status().to_string();
        EXPECT_EQ(image->features & ~ir::isa_features(shape.level), 0u) << leaf_op_name(op);
        text.insert(text.end(), image->code.begin(), image->code.begin() + image->text_bytes);
      }
    }
    const std::string listing = disassemble(text);
    EXPECT_EQ(forbidden_words(listing, shape), "") << shape.name() << "\n" << listing;
    EXPECT_EQ(listing.find("zmm") != std::string::npos, shape.lanes == 16);
  }
}

TEST(X64Ops, RefusesWhatTheLevelLacks) {
  const int forms[3] = {};
  EXPECT_EQ(compile_xbyak(one_op({ir::IsaLevel::avx2, 8}, LeafOp::k_scalef, 0, forms, -1)).status().code(),
            ir::Code::kUNSUPPORTED);
  EXPECT_EQ(compile_xbyak(one_op({ir::IsaLevel::avx2, 16}, LeafOp::k_add, 0, forms, -1)).status().code(),
            ir::Code::kUNSUPPORTED);
  EXPECT_EQ(compile_xbyak(one_op({ir::IsaLevel::portable, 8}, LeafOp::k_add, 0, forms, -1)).status().code(),
            ir::Code::kUNSUPPORTED);
}

// Where no register is left for a constant it is built in the destination: not where that is the mask, which is a
// vector without mask registers.
TEST(X64Ops, AConstantIsNotBuiltOverTheMask) {
  for (const Shape& shape : all_shapes()) {
    if (!can_run(shape)) continue;
    for (int live = shape.level == ir::IsaLevel::avx2 ? 8 : 24;; ++live) {
      LeafProgram p = empty_program(shape, "blend", 4);
      p.vector_registers = shape.level == ir::IsaLevel::avx2 ? 16 : 32;
      p.num_vregs = live + 2;
      for (int v = 0; v < live; ++v) {
        Inst from = load(v, v % 3);
        from.mem.disp = 4 * shape.lanes * (v / 3);
        p.body.push_back(inst(from));
      }
      p.body.push_back(inst(arith(LeafOp::k_cmp_lt, 0, 0, 1)));
      p.body.push_back(inst(arith(LeafOp::k_constant, live, -1, -1, -1, 0x40200000)));
      Inst blend = arith(LeafOp::k_blend, live + 1, live, 2);
      blend.mask = 0;
      p.body.push_back(inst(blend));
      for (int v = 0; v <= live; ++v) {
        Inst to = store(v == live ? live + 1 : v, 3);
        to.mem.disp = 4 * shape.lanes * v;
        p.body.push_back(inst(to));
      }
      Operands in = operands(shape, 5);
      in.data[3].resize(static_cast<size_t>(live + 1) * shape.lanes);
      int refused = 0;
      expect_equal(p, in, fmt::format("{} live {}", shape.name(), live), &refused);
      if (HasFatalFailure() || refused > 0) break;
    }
  }
}

TEST(X64Ops, RefusesMoreLiveVectorsThanRegisters) {
  for (const Shape& shape : all_shapes()) {
    const int registers = shape.level == ir::IsaLevel::avx2 ? 16 : 32;
    for (const int live : {registers, registers + 1}) {
      LeafProgram p = empty_program(shape, "pressure", 2);
      p.vector_registers = registers;
      p.num_vregs = live;
      for (int v = 0; v < live; ++v) {
        Inst from = load(v, 0);
        from.mem.disp = 4 * v;
        p.body.push_back(inst(from));
      }
      for (int round = 0; round < 2; ++round) {
        for (int v = 0; v < live; ++v) {
          Inst to = store(v, 1);
          to.mem.disp = 64 * (v + round * live);
          p.body.push_back(inst(to));
        }
      }
      const auto image = compile_xbyak(p);
      EXPECT_EQ(image.ok(), live == registers) << shape.name() << " " << live << " " << image.status().to_string();
      if (!image.ok()) {
        EXPECT_EQ(image.status().code(), ir::Code::kUNSUPPORTED);
      }
    }
  }
}

}  // namespace
}  // namespace lathe::jit
