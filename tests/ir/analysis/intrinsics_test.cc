// The intrinsic table: every meaning parses and matches its own row; what differs is refused with a reason.
#include "ir/analysis/intrinsics.h"

#include <gtest/gtest.h>

#include "ir/core/text_form.h"

namespace lathe::ir {
namespace {

std::string match(const std::string& text, const char* name) {
  Result<Kernel> k = parse_kernel(text);
  if (!k.ok()) return k.status().to_string();
  std::string why;
  return matches_intrinsic(*k, k->body[0], *find_intrinsic(name), &why) ? "yes" : why;
}

TEST(Intrinsics, EveryMeaningParses) {
  for (const Intrinsic& row : intrinsics()) {
    EXPECT_EQ(find_intrinsic(row.name), &row);
    EXPECT_TRUE(parse_kernel(row.meaning).ok()) << row.name;
  }
  EXPECT_EQ(match(find_intrinsic("mma")->meaning, "mma"), "yes");
  EXPECT_EQ(find_intrinsic("none"), nullptr);
}

const std::string kMma =
    "kernel t(x: f32[M, K] in, w: f32[32, K] in, c: f32[8, 32] out) where M in 8..64, K in 1..64\n"
    "  for k < K [k]:\n"
    "    prefetch w lines 8\n"
    "    for m < 8 @unroll:\n"
    "      for n < 2 @unroll:\n"
    "        for v < 16 @vector:\n"
    "          c[m, 16*n + v] += x[m, k] * w[16*n + v, k]\n";

std::string edited(std::string text, const std::string& from, const std::string& to) {
  EXPECT_NE(text.find(from), std::string::npos) << from;
  return text.replace(text.find(from), from.size(), to);
}

TEST(Intrinsics, Mma) {
  EXPECT_EQ(match(kMma, "mma"), "yes");
  EXPECT_EQ(match(edited(kMma, "+= x", "= x"), "mma"), "expected c[..] += a[..] * b[..]");
  EXPECT_EQ(match(edited(kMma, "m < 8 @unroll", "m < 8"), "mma"), "expected scope m to be @unroll or @vector");
  EXPECT_EQ(match(edited(kMma, "c[m, 16*n + v]", "c[m, k]"), "mma"), "expected c not to depend on k");
  EXPECT_EQ(match(edited(edited(kMma, "x[m, k]", "x[m, v]"), "16*n + v, k]", "16*n + v, v]"), "mma"),
            "expected an operand to depend on k");
  EXPECT_EQ(match(edited(kMma, "x: f32", "x: f64"), "mma"), "expected x to be f32");
  // A vector that is summed would need its lanes added up after the last k.
  EXPECT_EQ(match(edited(edited(kMma, "c[m, 16*n + v]", "c[m, n]"), "w[16*n + v, k]", "w[n, k + v]"), "mma"),
            "expected c to depend on vector scope v");
  EXPECT_EQ(match(kMma + "          c[m, v] += x[m, k] * w[v, k]\n", "mma"), "expected one statement in scope v");
}

const std::string kTranspose =
    "kernel t(s: f32[M, N] in, d: f32[N, M] out) where M in 16..64, N in 16..64\n"
    "  for i < 16 @unroll:\n"
    "    for j < 16 @vector:\n"
    "      d[j, i] = s[i, j]\n";

TEST(Intrinsics, Transpose) {
  EXPECT_EQ(match(kTranspose, "transpose"), "yes");
  EXPECT_EQ(match(edited(kTranspose, "d[j, i] = s[i, j]", "d[i, j] = s[j, i]"), "transpose"), "yes");
  EXPECT_EQ(match(edited(kTranspose, "d[j, i]", "d[i, j]"), "transpose"),
            "expected different iterators along the unit-stride dimensions");
  EXPECT_EQ(match(edited(kTranspose, "s[i, j]", "s[i, 2*j]"), "transpose"),
            "expected one iterator with step 1 along the unit-stride dimension of each buffer");
  EXPECT_EQ(match(edited(kTranspose, "d[j, i] =", "d[j, i] +="), "transpose"), "expected d[..] = s[..]");
}

}  // namespace
}  // namespace lathe::ir
