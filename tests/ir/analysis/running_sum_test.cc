// Which sums of a scope are running ones.
#include <gmock/gmock.h>

#include "ir/analysis/dependence.h"
#include "ir/core/text_form.h"

namespace lathe::ir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> found(const std::string& statements) {
  const Result<Kernel> k = parse_kernel(
      "kernel t(x: f32[9] in, i: i32[9] in, s: f32[9] out, c: i32[9] out, y: f32[9] out, z: i32[9] out)\n"
      "  for b < 9:\n    for n < 9:\n" +
      statements);
  EXPECT_TRUE(k.ok()) << k.status().to_string();
  return k.ok() ? running_sums(*k, k->body[0].body[0]) : std::vector<std::string>{"does not parse"};
}

TEST(RunningSum, IsReadBehindWhereItAdds) {
  EXPECT_THAT(found("      s[b] += x[n]\n      y[n] = s[b]\n"), ElementsAre("s"));
  EXPECT_THAT(found("      s[b] += x[n] * 2.0\n      y[n] = s[b] + x[n]\n      x[n] = s[b] * s[b]\n"),
              ElementsAre("s"));
}

TEST(RunningSum, IsNoOtherSum) {
  EXPECT_THAT(found("      s[b] += x[n]\n"), IsEmpty()) << "nothing reads it";
  EXPECT_THAT(found("      y[n] = s[b]\n      s[b] += x[n]\n"), IsEmpty()) << "read before";
  EXPECT_THAT(found("      y[n] = s[b]\n      s[b] += x[n]\n      x[n] = s[b]\n"), IsEmpty()) << "read before as well";
  EXPECT_THAT(found("      s[b] += s[b] * x[n]\n      y[n] = s[b]\n"), IsEmpty()) << "reads itself";
  EXPECT_THAT(found("      s[b] += x[n]\n      y[n] = s[0]\n"), IsEmpty()) << "another cell, or it may be";
  EXPECT_THAT(found("      s[n] += x[n]\n      y[n] = s[n]\n"), IsEmpty()) << "a cell for each iteration";
  EXPECT_THAT(found("      s[b] += x[n]\n      y[n] = s[b]\n      s[b] += x[n]\n"), IsEmpty()) << "adds twice";
  EXPECT_THAT(found("      s[b] += x[n]\n      y[n] = s[b]\n      s[b] = 0.0\n"), IsEmpty()) << "starts anew";
  EXPECT_THAT(found("      s[b] max= x[n]\n      y[n] = s[b]\n"), IsEmpty()) << "a maximum";
  EXPECT_THAT(found("      c[b] += i[n]\n      z[n] = c[b]\n"), IsEmpty()) << "of integers";
}

}  // namespace
}  // namespace lathe::ir
