// Loops that bring elements to shared memory ask once whether addresses are aligned, where they are so alike in all
// iterations; the results are those of the interpreter in any case.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/cuda/lower/lower_device.h"
#include "search/cut/launch_cut.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"

namespace lathe::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Rows of `columns` elements, four at a time, to shared memory and back in another order.
std::string staged(const std::string& columns, const std::string& threads) {
  return "kernel staged(x: f32[M, 4, " + columns + "] in, y: f32[M, 4, " + columns +
         "] out) family row where M in 0..100" + (columns == "N" ? ", N in 4..32" : "") +
         "\n"
         "  s: f32[4, 32] shared\n"
         "  for b < M @grid:\n"
         "    for i < 4 @unroll:\n"
         "      for t < " +
         threads +
         " @block:\n"
         "        for v < 4 @vector:\n"
         "          s[i, 4*t + v] = x[b, i, 4*t + v]\n"
         "    for i1 < 4:\n"
         "      for t1 < " +
         threads +
         " @block:\n"
         "        for v1 < 4:\n"
         "          y[b, i1, 4*t1 + v1] = s[3 - i1, 4*t1 + v1]\n";
}

jit::DeviceProgram lowered(const std::string& text) {
  const auto cut = search::cut_launches(kernel_of(text));
  return jit::lower_device(cut.value().leaves[0]).value();
}

TEST(RaiseAligned, IsAskedOnceBeforeALoop) {
  const jit::DeviceProgram program = lowered(staged("32", "8"));
  EXPECT_THAT(print(program), HasSubstr("  if aligned x4 p0[0]:\n"
                                        "    for i1 < 4 unrolled 4:\n"
                                        "      let i2 = thread\n"
                                        "      v1 = load x4 p0[128*i0 + 32*i1 + 4*i2]\n"
                                        "      store x4 s0[32*i1 + 4*i2] v1\n"
                                        "  else:\n"
                                        "    for i1s < 4 unrolled 4:\n"
                                        "      let i2s = thread\n"
                                        "      for i3s < 4:\n"));
  for (const int64_t rows : {0, 1, 7}) EXPECT_EQ(failure_of(program, kernel_of(staged("32", "8")), {{"M", rows}}), "");
}

// Lines of any length do not begin at multiples of 16 bytes alike.
TEST(RaiseAligned, NotWhereIterationsDiffer) {
  const std::string text = staged("N", "min(8, N // 4)");
  const jit::DeviceProgram program = lowered(text);
  EXPECT_THAT(print(program), Not(HasSubstr("p0[0]")));
  EXPECT_THAT(print(program), HasSubstr("unrolled 4:\n"));
  for (const int64_t columns : {4, 7, 9, 32})
    EXPECT_EQ(failure_of(program, kernel_of(text), {{"M", 3}, {"N", columns}}), "") << columns;
}

// What a program reads at once is verified to stand where its address was found aligned, or whole accesses beyond it.
TEST(RaiseAligned, OtherAddressesAreNotKnownToBeAligned) {
  jit::DeviceProgram program = lowered(staged("32", "8"));
  for (jit::DeviceStmt& s : program.body) {
    if (s.kind == jit::DeviceStmt::Kind::aligned) s.places[0].offset = ir::Expr(2);
  }
  EXPECT_THAT(verify(program).message(), HasSubstr("nothing says that they are aligned"));
}

}  // namespace
}  // namespace lathe::test
