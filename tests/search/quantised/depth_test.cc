// How the depth of weights of few bits is cut: what each format needs, and that the parts cover the depth once.
#include "search/quantised/depth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/analysis/verifier.h"
#include "tests/search/model/problems.h"

namespace lathe::search {
namespace {

using ::testing::ElementsAre;

// The cut of a depth of 4096 for this value of k; q: bytes, d: halves.
DepthCut cut_of(const std::string& value) {
  const ir::Kernel kernel = kernel_of(
      "kernel t(d: f16[4096] in, q: u8[4096] in, y: f32[4096] out)\n  for k < 4096 [k]:\n    y[k] = " + value + "\n");
  return depth_cut({kernel.body[0].body[0].value}, "k", 4096);
}

TEST(QuantisedDepth, WhatValuesNeed) {
  const DepthCut plain = cut_of("f32(q[k]) * f32(d[0])");
  EXPECT_EQ(plain.step, 1);
  EXPECT_EQ(plain.levels.size(), 1u);
  const DepthCut halves = cut_of("f32(d[k // 32]) * f32(i32(q[16*(k // 32) + k % 16]) >> 4*(k % 32 // 16) & 15:i32)");
  EXPECT_THAT(halves.levels, ElementsAre(32, 16)) << "low nibbles of 16 bytes, then the high ones";
  EXPECT_EQ(halves.step, 1);
  EXPECT_EQ(halves.copies(), 2);
  const DepthCut neighbours = cut_of("f32(i32(q[k // 2]) >> 4*(k % 2) & 15:i32)");
  EXPECT_EQ(neighbours.step, 2) << "neighbours share a byte";
  const DepthCut bits = cut_of("f32(d[k // 32]) * f32(i32(q[k // 8]) >> k % 8 & 1:i32)");
  EXPECT_EQ(bits.step, 8) << "a bit of a byte for each of eight";
  const DepthCut scales = cut_of("f32(d[k // 256]) * f32(q[k // 16])");
  EXPECT_EQ(scales.run(), 16) << "a scale for each sixteen";
  EXPECT_EQ(scales.levels.front(), 256);
  EXPECT_EQ(scales.copies(), 1) << "an address is no reason for a copy";
  const DepthCut choice = cut_of("select(k % 256 // 32 < 4, f32(q[k // 32 % 4]), f32(q[k // 32 % 4 + 8]))");
  EXPECT_EQ(choice.copies(), 8) << "a comparison has to be one of numbers";
}

// Every weight once, whatever the depth: the moves are legal, and the result means what the nest meant.
TEST(QuantisedDepth, PartsCoverEveryDepth) {
  for (const int64_t k : {1, 2, 7, 8, 16, 31, 32, 33, 47, 64, 96, 255, 256, 300}) {
    for (const DepthCut& c :
         {DepthCut{{16}, 0, 1}, DepthCut{{32, 16}, 0, 8}, DepthCut{{256, 64, 32}, 1, 2}, DepthCut{{64, 32}, 0, 4}}) {
      const ir::Kernel kernel = kernel_of(fmt::format(
          "kernel t(x: f32[{0}] in, y: f32[4] out)\n  for n < 4 [n]:\n    y[n] = 0.0\n    for k < {0} [k]:\n"
          "      y[n] += x[k]\n",
          k));
      Script s(kernel);
      const std::vector<DepthPart> parts = cut_depth(s, "k", k, c);
      ASSERT_TRUE(s.ok()) << k;
      EXPECT_TRUE(ir::verify(s.kernel()).ok());
      int64_t covered = 0;
      for (const DepthPart& part : parts) {
        int64_t here = 1;
        for (const std::string& scope : part.scopes) {
          const ir::Stmt* at = ir::find_scope(s.kernel(), scope);
          ASSERT_NE(at, nullptr) << scope;
          ASSERT_TRUE(ir::is_const_int(at->extent)) << scope;
          here *= at->extent->ival;
        }
        covered += here;
        for (const std::string& scope : part.unrolled) EXPECT_LE(ir::find_scope(s.kernel(), scope)->extent->ival, 32);
      }
      EXPECT_EQ(covered, k);
    }
  }
}

}  // namespace
}  // namespace lathe::search
