// What a kernel is, as far as its tolerance depends on it.
#include <gtest/gtest.h>

#include "ir/core/text_form.h"
#include "runtime/oracle/oracle_reference.h"

namespace lathe::runtime {
namespace {

std::set<std::string> words(const std::string& last) {
  const ir::Result<ir::Kernel> kernel = ir::parse_kernel(
      "kernel k(x: f32[9] in, g: f32[9] in, u: f32[9] in, y: f32[1] out)\n  a: f32[1] heap\n  b: f32[1] heap\n"
      "  a[0] = 0.0\n  b[0] = 0.0\n  for p < 9:\n    a[0] += x[p] * g[p]\n    b[0] += x[p] * u[p]\n  y[0] = " +
      last + "\n");
  EXPECT_TRUE(kernel.ok()) << kernel.status().to_string();
  return kernel.ok() ? kernel_traits(*kernel).words : std::set<std::string>();
}

// No row of the table has the word: the a-priori bound decides.
TEST(KernelTraits, AProductOfTwoSumsIsOne) {
  using Words = std::set<std::string>;
  EXPECT_EQ(words("a[0] * sigmoid(a[0]) * b[0]"), (Words{"product", "sigmoid", "sum"}));
  EXPECT_EQ(words("b[0] * 2.0 * (a[0] + 1.0)"), (Words{"product", "sum"}));
  EXPECT_EQ(words("a[0] * sigmoid(a[0])"), (Words{"sigmoid", "sum"})) << "of one sum";
  EXPECT_EQ(words("a[0] * sigmoid(a[0]) + b[0] * x[0]"), (Words{"sigmoid", "sum"})) << "a sum of sums";
}

}  // namespace
}  // namespace lathe::runtime
