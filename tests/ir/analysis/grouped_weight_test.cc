// Weights of few bits as an integer with factors that groups share.
#include "ir/analysis/grouped_weight.h"

#include <gtest/gtest.h>

#include "ir/core/text_form.h"

namespace lathe::ir {
namespace {

// "factor; byte - zero; rest" of a weight of 1024 by groups of so many.
std::string parts(const std::string& weight, int64_t group) {
  const Result<Kernel> k = parse_kernel(
      "kernel t(d: f16[4, 64] const, o: f32[4, 64] const, s: u8[4, 64] const, q: u8[4, 1024] const, "
      "w: i8[4, 1024] const, y: f32[4, 1024] out)\n  for n < 4:\n    for k < 1024:\n      y[n, k] = " +
      weight + "\n");
  if (!k.ok()) return k.status().to_string();
  const Stmt& assign = k->body[0].body[0].body[0];
  const std::optional<GroupedWeight> g = grouped_weight(assign.value, "k", 1024, group, "g", Ranges(*k));
  if (!g) return "none";
  return (g->factor ? print(g->factor) : "1") + "; " + print(g->byte) + " - " + std::to_string(g->zero) + "; " +
         (g->rest ? print(g->rest) : "0");
}

TEST(GroupedWeight, a_byte_with_a_factor) {
  EXPECT_EQ(parts("f32(q[n, k])", 1024), "1; i32(q[n, k]) - 0; 0");
  EXPECT_EQ(parts("f32(d[n, 3]) * f32(w[n, k])", 1024), "f32(d[n, 3]); i32(w[n, k]) + 128:i32 - 128; 0");
  EXPECT_EQ(parts("f32(w[n, k]) * o[n, k // 32]", 32), "o[n, g]; i32(w[n, 32*g + k]) + 128:i32 - 128; 0");
  EXPECT_EQ(parts("f32(w[n, k]) * o[n, k // 32]", 64), "none") << "the factor changes within the group";
  EXPECT_EQ(parts("-f32(q[n, k])", 32), "-1.0; i32(q[n, 32*g + k]) - 0; 0");
}

TEST(GroupedWeight, zero_points_and_minima) {
  EXPECT_EQ(parts("f32((i32(q[n, k]) & 15:i32) - 8:i32) * o[n, 0]", 64),
            "o[n, 0]; i32(q[n, 64*g + k]) & 15:i32 - 8; 0");
  EXPECT_EQ(parts("f32(i32(q[n, k]) - i32(s[n, k // 64])) * o[n, 0]", 64),
            "o[n, 0]; i32(q[n, 64*g + k]) - 0; o[n, 0] * -f32(i32(s[n, g]))");
  EXPECT_EQ(parts("o[n, 1] * f32(q[n, k]) + o[n, 0]", 64), "o[n, 1]; i32(q[n, 64*g + k]) - 0; o[n, 0]");
  EXPECT_EQ(parts("o[n, 0] - o[n, 1] * f32(q[n, k])", 64), "o[n, 1] * -1.0; i32(q[n, 64*g + k]) - 0; o[n, 0]");
  EXPECT_EQ(parts("(o[n, 1] * f32(q[n, k]) - o[n, 0]) * o[n, 2]", 64),
            "o[n, 1] * o[n, 2]; i32(q[n, 64*g + k]) - 0; -o[n, 0] * o[n, 2]");
}

TEST(GroupedWeight, indices_tell_groups_from_places) {
  EXPECT_EQ(parts("f32(d[n, k // 256]) * f32(i32(q[n, 32*(k % 256 // 64) + k % 32]) >> 4*(k // 32 % 2) & 15:i32)", 32),
            "f32(d[n, g // 8]); i32(q[n, k + 32*(g // 2 % 4)]) >> 4*(g % 2) & 15:i32 - 0; 0");
  EXPECT_EQ(parts("o[n, k % 256 // 16] * f32(q[n, k])", 16), "o[n, g % 16]; i32(q[n, 16*g + k]) - 0; 0");
}

TEST(GroupedWeight, what_is_no_byte) {
  EXPECT_EQ(parts("f32(i32(q[n, k]) + 1:i32)", 32), "none") << "up to 256";
  EXPECT_EQ(parts("f32(i32(q[n, k]) << 1)", 32), "none");
  EXPECT_EQ(parts("f32(q[n, k]) * f32(q[n, k])", 32), "none");
  EXPECT_EQ(parts("f32(q[n, k]) + f32(w[n, k])", 32), "none");
  EXPECT_EQ(parts("o[n, 0]", 32), "none");
  EXPECT_EQ(parts("o[n, 0] / f32(q[n, k])", 32), "none");
}

}  // namespace
}  // namespace lathe::ir
