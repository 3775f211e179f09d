// Random structured programs through the x64 generator against the portable executor: register allocation, preloads,
// spills of pointers and variables, folding of loads across everything that may not be crossed.
#include "jit/x64/registers.h"
#include "tests/jit/program/random_program.h"

namespace lathe::jit {
namespace {
using namespace x64_test;

class X64Random : public testing::TestWithParam<int> {};

TEST_P(X64Random, ProgramsEqualThePortableExecutor) {
  const Shape shape = all_shapes()[static_cast<size_t>(GetParam())];
  if (!can_run(shape)) GTEST_SKIP() << "the machine lacks " << ir::isa_name(shape.level);
  int refused = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    RandomProgram random(shape, seed);
    expect_equal(random.program(), random.operands(), fmt::format("{} seed {}", shape.name(), seed), &refused);
    if (HasFatalFailure()) return;
  }
  EXPECT_LT(refused, 100);
}
// Few registers: loads are read again at their uses, and what then fits must still be right.
TEST_P(X64Random, ProgramsWithFewRegisters) {
  const Shape shape = all_shapes()[static_cast<size_t>(GetParam())];
  if (!can_run(shape)) GTEST_SKIP() << "the machine lacks " << ir::isa_name(shape.level);
  int refused = 0;
  for (unsigned seed = 1000; seed < 1300; ++seed) {
    RandomProgram random(shape, seed);
    LeafProgram p = random.program();
    p.vector_registers = 8;
    expect_equal(p, random.operands(), fmt::format("{} seed {}", shape.name(), seed), &refused);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 250);
}

// Two loads with two uses each: where registers do not suffice, the one whose uses lie far apart is read again.
TEST(X64Registers, LoadsThatSitLongAreReadAgainFirst) {
  LeafProgram p = empty_program({ir::IsaLevel::avx512, 16}, "spans", 2);
  p.num_vregs = 40;
  constexpr int kSums = 4, kLong = 4, kShort = 5, kUse = 6;
  for (int a = 0; a < kSums; ++a) p.body.push_back(inst(load(a, 1)));
  p.body.push_back(inst(load(kLong, 0)));
  p.body.push_back(inst(arith(LeafOp::k_add, kUse, kLong, 0)));
  for (int i = 0; i < 20; ++i) p.body.push_back(inst(arith(LeafOp::k_mul, kUse + 1 + i, kUse + i, i % kSums)));
  p.body.push_back(inst(load(kShort, 0)));
  p.body.push_back(inst(arith(LeafOp::k_add, kUse + 21, kShort, kUse + 20)));
  p.body.push_back(inst(arith(LeafOp::k_add, kUse + 22, kShort, kUse + 21)));
  p.body.push_back(inst(arith(LeafOp::k_shift_right, kUse + 23, kLong)));
  p.body.push_back(inst(arith(LeafOp::k_add, kUse + 24, kUse + 23, kUse + 22)));
  for (int a = 0; a < kSums; ++a) p.body.push_back(inst(store(a, 1)));
  p.body.push_back(inst(store(kUse + 24, 1)));
  const auto folded = [&](int registers, int reg) -> bool {
    const auto a = x64::allocate(p, {true, 16, registers, true});
    EXPECT_TRUE(a.ok()) << registers << ": " << a.status().to_string();
    return a.ok() && a->info[static_cast<size_t>(reg)].folded;
  };
  EXPECT_FALSE(folded(7, kLong));
  EXPECT_TRUE(folded(6, kLong));
  EXPECT_FALSE(folded(6, kShort));
}

// acc[i] = fma(a[i], v, acc[i]) for 12 accumulators with 4 vectors v, each used three times: 17 registers, 13 with
// re-reading.
TEST(X64Registers, LoadsAreReadAgainBeforeRefusing) {
  LeafProgram p = empty_program({ir::IsaLevel::avx2, 8}, "tile3x32", 3);
  p.num_vregs = 32;
  for (int a = 0; a < 12; ++a) p.body.push_back(inst(arith(LeafOp::k_constant, a)));
  Node loop;
  loop.kind = Node::Kind::loop;
  loop.step = 1;
  loop.var = 0;
  loop.extent.arg = 0;
  loop.steps = {{0, 32, {}}, {1, 128, {}}};
  for (int v = 0; v < 4; ++v) {
    Inst from = load(12 + v, 1);
    from.mem.disp = 32 * v;
    loop.body.push_back(inst(from));
  }
  for (int row = 0; row < 3; ++row) {
    Inst from = load(16, 0);
    from.op = LeafOp::k_load_bcast;
    from.mem.disp = 4 * row;
    loop.body.push_back(inst(from));
    for (int v = 0; v < 4; ++v) loop.body.push_back(inst(arith(LeafOp::k_fma, 4 * row + v, 16, 12 + v, 4 * row + v)));
  }
  p.body.push_back(loop);
  for (int a = 0; a < 12; ++a) {
    Inst to = store(a, 2);
    to.mem.disp = 32 * a;
    p.body.push_back(inst(to));
  }
  for (const int registers : {12, 13, 16}) {
    p.vector_registers = registers;
    const auto image = compile_xbyak(p);
    EXPECT_EQ(image.ok(), registers >= 13) << registers << " " << image.status().to_string();
  }
  if (!can_run({ir::IsaLevel::avx2, 8})) return;
  Operands in;
  std::mt19937 random(5);
  std::uniform_real_distribution<float> value(-2, 2);
  for (int s = 0; s < 3; ++s) {
    in.data.emplace_back(1024);
    for (float& f : in.data.back()) f = value(random);
  }
  in.args.extent[0] = 9;
  expect_equal(p, in, "tile");
}

INSTANTIATE_TEST_SUITE_P(Shapes, X64Random, testing::Range(0, 3),
                         [](const auto& info) { return all_shapes()[static_cast<size_t>(info.param)].name(); });

}  // namespace
}  // namespace lathe::jit
