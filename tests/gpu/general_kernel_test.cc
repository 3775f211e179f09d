// The general Kernel: which sizes share a symbol, which stay, and what is known of each.
#include "search/gpu/general_kernel.h"

#include <gtest/gtest.h>

#include "ir/analysis/analysis.h"
#include "ir/analysis/verifier.h"
#include "tests/gpu/chains.h"

namespace lathe::search {
namespace {

using test::kernel_of;

std::string general(const std::string& text) {
  const GeneralKernel out = general_kernel(kernel_of(text));
  const ir::Status verified = ir::verify(out.kernel);
  EXPECT_TRUE(verified.ok()) << verified.message();
  return print(out.kernel);
}

TEST(GeneralKernel, ScopesAndTheirDimensionsShareASymbol) {
  EXPECT_EQ(general("kernel turn(s: f32[9, 9] in, d: f32[9, 9] out) family transpose\n"
                    "  for i < 9:\n    for j < 9:\n      d[i, j] = s[j, i]\n"),
            "kernel turn(s: f32[D1, D0] in, d: f32[D0, D1] out) family transpose where D0 in 1..1099511627776, D1 in "
            "1..1099511627776\n"
            "  for i < D0:\n    for j < D1:\n      d[i, j] = s[j, i]\n");
  // The same size twice on one dimension is one symbol.
  EXPECT_EQ(general("kernel both(s: f32[9, 9] in, d: f32[9, 9] out)\n"
                    "  for i < 9:\n    for j < 9:\n      d[i, j] = s[j, i] + s[i, j]\n"),
            "kernel both(s: f32[D0, D0] in, d: f32[D0, D0] out) where D0 in 1..1099511627776\n"
            "  for i < D0:\n    for j < D0:\n      d[i, j] = s[j, i] + s[i, j]\n");
}

TEST(GeneralKernel, ScalarsStayAsTheyAre) {
  EXPECT_EQ(general("kernel add(x: f32[] in, b: f32[8] in, y: f32[8] out)\n"
                    "  for i < 8:\n    y[i] = x[] + b[i]\n"),
            "kernel add(x: f32[] in, b: f32[D0] in, y: f32[D0] out) where D0 in 1..1099511627776\n"
            "  for i < D0:\n    y[i] = x[] + b[i]\n");
}

// A sum may have no terms; what is around everything has iterations.
TEST(GeneralKernel, Products) {
  EXPECT_EQ(general("kernel p(a: f32[M, 8] in, b: f32[16, 8] const, y: f32[M, 16] out) where M in 0..100\n"
                    "  c: f32[M, 16] heap\n"
                    "  for m < M:\n    for n < 16:\n      c[m, n] = 0.0\n      for k < 8:\n"
                    "        c[m, n] += a[m, k] * b[n, k]\n      y[m, n] = c[m, n]\n"),
            "kernel p(a: f32[D0, D2] in, b: f32[D1, D2] in, y: f32[D0, D1] out) where D0 in 1..1099511627776, D1 in "
            "1..1099511627776, D2 in 0..1099511627776\n"
            "  c: f32[D0, D1] heap\n"
            "  for m < D0:\n    for n < D1:\n      c[m, n] = 0.0\n      for k < D2:\n"
            "        c[m, n] += a[m, k] * b[n, k]\n      y[m, n] = c[m, n]\n");
}

TEST(GeneralKernel, IntegersEndWhereTheirDimensionDoes) {
  EXPECT_EQ(general("kernel g(s: f32[100, 7] in, ids: i32[N] in values 0..99, d: f32[N, 7] out) where N in 0..5\n"
                    "  for i < N:\n    for j < 7:\n      d[i, j] = s[i64(ids[i]), j]\n"),
            "kernel g(s: f32[D2, D1] in, ids: i32[D0] in values 0..D2 - 1, d: f32[D0, D1] out) where D0 in "
            "1..1099511627776, D1 in 1..1099511627776, D2 in 0..1099511627776\n"
            "  for i < D0:\n    for j < D1:\n      d[i, j] = s[i64(ids[i]), j]\n");
}

// Rows of groups: as many as their offsets go up to, whatever number that is.
TEST(GeneralKernel, OffsetsEndWhereTheirRowsDo) {
  EXPECT_EQ(general("kernel g(a: f32[7, 5] in, offsets: i32[9] in values 0..7, y: f32[7, 5] out)\n"
                    "  for zm < 7:\n    for zn < 5:\n      y[zm, zn] = 0.0\n"
                    "  for t < 8:\n    for m < i64(offsets[t + 1]) - i64(offsets[t]):\n      for n < 5:\n"
                    "        y[m + i64(offsets[t]), n] = a[i64(offsets[t]) + m, n]\n"),
            "kernel g(a: f32[D0, D1] in, offsets: i32[9] in values 0..D0, y: f32[D0, D1] out) where D0 in "
            "0..1099511627776, D1 in 1..1099511627776\n"
            "  for zm < D0:\n    for zn < D1:\n      y[zm, zn] = 0.0\n"
            "  for t < 8:\n    for m < i64(offsets[t + 1]) - i64(offsets[t]):\n      for n < D1:\n"
            "        y[m + i64(offsets[t]), n] = a[i64(offsets[t]) + m, n]\n");
}

// An index that is computed with an integer needs to know how large that is.
TEST(GeneralKernel, IntegersThatAreComputedWithKeepTheirValues) {
  EXPECT_EQ(general("kernel g(s: f32[64] in, w: f32[8] in, ids: i32[N] in values 0..63, d: f32[N] out) where N in "
                    "0..5\n  for i < N:\n    d[i] = s[i64(ids[i])] * w[i64(ids[i]) // 8]\n"),
            "kernel g(s: f32[64] in, w: f32[8] in, ids: i32[N0] in values 0..63, d: f32[N0] out) where N0 in 0..5\n"
            "  for i < N0:\n    d[i] = s[i64(ids[i])] * w[i64(ids[i]) // 8]\n");
}

// Where an index is more than an iterator, sizes stay; symbols that are left get names of their own.
TEST(GeneralKernel, OtherIndicesKeepTheirSizes) {
  EXPECT_EQ(
      general("kernel h(s: f32[jb, 128] in strides [256, 1], d: f32[jb, 64] out) where jb in 3..9\n"
              "  for i < jb:\n    for p < 64:\n      d[i, p] = s[i, 2*p + 1] + s[jb - 1 - i, p]\n"),
      "kernel h(s: f32[N0, 128] in strides [S0, 1], d: f32[N0, 64] out) where S0 in 0..1099511627776, N0 in 3..9\n"
      "  for i < N0:\n    for p < 64:\n      d[i, p] = s[i, 2*p + 1] + s[N0 - 1 - i, p]\n");
}

}  // namespace
}  // namespace lathe::search
