// Random structured programs through the x64 generator against the portable executor: register allocation, preloads, spills of
// pointers and variables, folding of loads across everything that may not be crossed.
#include "tests/jit/random_program.h"

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
INSTANTIATE_TEST_SUITE_P(Shapes, X64Random, testing::Range(0, 3), [](const auto& info) {
  return all_shapes()[static_cast<size_t>(info.param)].name();
});

}  // namespace
}  // namespace lathe::jit
