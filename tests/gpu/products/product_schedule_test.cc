// Schedules of products and transposes on a GPU: values stay in every tile, what is proven is proven, and the ranking
// prefers what it should.
#include "search/gpu/product_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ir/analysis/analysis.h"
#include "ir/meaning/interpreter.h"
#include "search/cut/launch_cut.h"
#include "search/cut/safe_kernel.h"
#include "search/gpu/choice/device_candidates.h"
#include "search/gpu/gemv_schedule.h"
#include "search/gpu/rows/transpose_schedule.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"

namespace lathe::search {
namespace {

using ir::Kernel;
using ir::SymbolValues;
using test::kernel_of;
using test::sizes_of;
using ::testing::HasSubstr;

// A bias, an activation and a residual; the second operand row by row of terms.
const char kFused[] =
    "kernel fused(a: f32[M, K] in, b: f32[N, K] const, e0: f32[N] in, e1: f32[M, N] in, y: f32[M, N] out) "
    "family matmul where M in 0..5000, N in 0..5000, K in 0..5000\n"
    "  c: f32[M, N] heap\n"
    "  for m < M [m]:\n    for n < N [n]:\n      c[m, n] = 0.0\n      for k < K [k]:\n"
    "        c[m, n] += a[m, k] * b[n, k]\n      y[m, n] = max(c[m, n] + e0[n], 0.0) + e1[m, n]\n";
// Batches of which one operand is shared, both the other way round, and an operand that is made first.
const char kMade[] =
    "kernel made(g: f32[2, K, M] in, u: f32[2, K, M] in, b: f32[K, N] in, y: f32[2, M, N] out) "
    "family matmul where M in 0..5000, N in 0..5000, K in 0..5000\n"
    "  a: f32[2, K, M] heap\n"
    "  c: f32[2, M, N] heap\n"
    "  for s0 < 2:\n    for s1 < K:\n      for s2 < M:\n        a[s0, s1, s2] = max(g[s0, s1, s2], 0.0) * u[s0, s1, "
    "s2]\n"
    "  for t < 2 [batch]:\n    for m < M [m]:\n      for n < N [n]:\n        c[t, m, n] = 0.0\n        for k < K [k]:\n"
    "          c[t, m, n] += a[t, k, m] * b[k, n]\n        y[t, m, n] = c[t, m, n]\n";
const char kTurn[] =
    "kernel turn(s: f32[C, A, B] in, d: f32[A, B, C] out) family transpose where A in 0..999, B in 0..999, C in "
    "0..999\n"
    "  for i0 < A [row]:\n    for i1 < B [row]:\n      for j < C [col]:\n        d[i0, i1, j] = s[j, i0, i1]\n";

void expect_same(const Kernel& naive, const GeneralKernel& general, const ir::Result<Scheduled>& scheduled,
                 const SymbolValues& symbols) {
  test::expect_values_kept(naive, general, scheduled, symbols, 1e-5);
}

TEST(ProductSchedule, EveryTileKeepsTheValues) {
  const Kernel fused = kernel_of(kFused), made = kernel_of(kMade);
  const GeneralKernel of_fused = general_kernel(fused), of_made = general_kernel(made);
  int number = 0;
  for (const ProductTile& tile : product_tiles()) {
    // One over and under the tile, and the depth, in turn.
    const int64_t by = number++ % 3 - 1;
    expect_same(fused, of_fused, product_schedule(of_fused, tile),
                {{"M", tile.rows + by}, {"N", tile.columns - by}, {"K", tile.depth + by}});
    ProductTile ahead = tile;
    ahead.ahead = true;
    if (check_tile(ahead).ok())
      expect_same(fused, of_fused, product_schedule(of_fused, ahead),
                  {{"M", tile.rows + by}, {"N", tile.columns - by}, {"K", 2 * tile.depth + by}});
    if (number % 4 == 0)
      expect_same(made, of_made, product_schedule(of_made, tile), {{"M", 7}, {"N", tile.columns + 1}, {"K", 3}});
  }
  for (const int64_t k : {0, 1, 2})
    expect_same(fused, of_fused, product_schedule(of_fused, product_tiles()[0]), {{"M", 1}, {"N", 2}, {"K", k}});
}

// Bytes with zero points, for which a nest before sums rows; the second operand row by row of terms, or not.
Kernel bytes(bool turned) {
  return kernel_of(
      fmt::format("kernel bytes(a: u8[M, K] in, b: i8[{}] in, z: u8[N] in, y: i32[M, N] out) "
                  "family matmul where M in 0..5000, N in 0..5000, K in 0..5000\n"
                  "  s: i32[M] heap\n  c: i32[M, N] heap\n"
                  "  for r < M [sums]:\n    s[r] = 0:i32\n    for q < K [sums]:\n      s[r] += i32(a[r, q])\n"
                  "  for m < M [m]:\n    for n < N [n]:\n      c[m, n] = 0:i32\n      for k < K [k]:\n"
                  "        c[m, n] += i32(a[m, k]) * i32(b[{}])\n      y[m, n] = c[m, n] - s[m] * i32(z[n])\n",
                  turned ? "N, K" : "K, N", turned ? "n, k" : "k, n"));
}

TEST(ProductSchedule, EveryTileOfIntegersKeepsTheValues) {
  int number = 0;
  for (const bool turned : {false, true}) {
    const Kernel naive = bytes(turned);
    const GeneralKernel general = general_kernel(naive);
    for (const ProductTile& tile : product_tiles()) {
      const int64_t by = number++ % 3 - 1;
      if (number % 2 == 0) continue;
      test::expect_values_kept(naive, general, integer_schedule(general, tile),
                               {{"M", tile.rows + by}, {"N", tile.columns - by}, {"K", tile.depth + by}}, 0);
    }
    for (const int64_t k : {0, 1, 33})
      test::expect_values_kept(naive, general, integer_schedule(general, product_tiles()[0]),
                               {{"M", 1}, {"N", 2}, {"K", k}}, 0);
    const ir::GpuTarget target = *ir::find_gpu_target("h200");
    const SymbolValues sizes = sizes_of(general, {{"M", 512}, {"N", 768}, {"K", 300}});
    const auto ranked = device_candidates(general, sizes, target, 8);
    ASSERT_TRUE(ranked.ok()) << ranked.status().to_string();
    EXPECT_EQ(ranked->size(), 8u);
    EXPECT_EQ(ranked->front().schedule.recipe, turned ? "tensor.1" : "integers.1");
    for (const auto& [m, n] :
         {std::pair<int64_t, int64_t>{1, 40}, {3, 129}, {turned ? 4 : 8, 63}, {40, 2}, {0, 5}, {4, 0}}) {
      for (const int64_t k : {0, 1, 15, 300, 515}) {
        const SymbolValues of = sizes_of(general, {{"M", m}, {"N", n}, {"K", k}});
        const auto few = gemv_schedule(general, of, target);
        ASSERT_TRUE(few.ok()) << few.status().to_string();
        EXPECT_EQ(to_text(device_schedule(general, of, target)->schedule), to_text(few->schedule));
        test::expect_values_kept(naive, general, few, {{"M", m}, {"N", n}, {"K", k}}, 0);
      }
    }
  }
}

// Steps that come ahead in registers: fewer terms than one, whole ones, one over and under.
TEST(ProductSchedule, StepsAheadOnTheEmulator) {
  int emulated = 0;
  for (const char* text : {kFused, kMade}) {
    const Kernel naive = kernel_of(text);
    const GeneralKernel general = general_kernel(naive);
    const auto made = product_schedule(general, ProductTile{32, 32, 8, 4, 4, 0, true});
    for (const int64_t k : {0, 1, 7, 8, 9, 16, 17, 40}) {
      const SymbolValues s = {{"M", 33}, {"N", 36}, {"K", k}};
      expect_same(naive, general, made, s);
      test::expect_as_interpreted(made->kernel, sizes_of(general, s), 1e-5);
      emulated += 3;
    }
  }
  RecordProperty("emulated", emulated);
}

TEST(ProductSchedule, FewLinesKeepTheValues) {
  const Kernel fused = kernel_of(kFused), made = kernel_of(kMade);
  const GeneralKernel of_fused = general_kernel(fused), of_made = general_kernel(made);
  const ir::GpuTarget target = *ir::find_gpu_target("h200");
  for (const int64_t few : {1, 2, 5, 8}) {
    for (const int64_t other : {1, 9, 130}) {
      for (const int64_t k : {0, 1, 129, few == 5 ? 1100 : 64}) {
        const SymbolValues rows = {{"M", few}, {"N", other}, {"K", k}}, columns = {{"M", other}, {"N", few}, {"K", k}};
        for (const SymbolValues& s : {rows, columns}) {
          expect_same(fused, of_fused, gemv_schedule(of_fused, sizes_of(of_fused, s), target), s);
          expect_same(made, of_made, gemv_schedule(of_made, sizes_of(of_made, s), target), s);
        }
      }
    }
  }
}

TEST(TransposeSchedule, KeepsTheValues) {
  const Kernel turn = kernel_of(kTurn);
  const GeneralKernel general = general_kernel(turn);
  for (const int64_t b : {8, 31, 33}) {
    for (const int64_t c : {8, 32, 65})
      expect_same(turn, general, transpose_schedule(general, sizes_of(general, {{"A", 2}, {"B", b}, {"C", c}})),
                  {{"A", 2}, {"B", b}, {"C", c}});
  }
}

TEST(ProductTiles, FollowTheShape) {
  const ir::GpuTarget gpu = *ir::find_gpu_target("h200");
  ir::GpuTarget half = gpu;
  half.multiprocessors /= 2;
  const auto best = [&](int64_t m, int64_t n, int64_t k, int64_t batch = 1) {
    const ProductTile t = ranked_tiles({batch, m, n, k, true}, gpu).front();
    return std::pair(t.rows, t.columns);
  };
  EXPECT_EQ(best(4096, 4096, 4096), (std::pair<int64_t, int64_t>(128, 128)));
  EXPECT_EQ(best(8192, 8192, 512), (std::pair<int64_t, int64_t>(128, 128)));
  // Enough blocks to go round.
  const ProductTile few = ranked_tiles({1, 256, 256, 4096, true}, gpu).front();
  EXPECT_TRUE(few.rows * few.columns <= 64 * 64 || few.terms > 0);
  EXPECT_LE(best(16, 4096, 4096).first, 32);
  // More work takes longer.
  for (const ProductTile& t : product_tiles()) {
    EXPECT_LT(product_cycles(t, {1, 512, 512, 512}, gpu), product_cycles(t, {1, 4096, 4096, 512}, gpu));
    EXPECT_LT(product_cycles(t, {1, 512, 512, 512}, gpu), product_cycles(t, {1, 512, 512, 4096}, gpu));
    EXPECT_LT(product_cycles(t, {1, 4096, 4096, 512}, gpu), product_cycles(t, {1, 4096, 4096, 512}, half));
    EXPECT_TRUE(check_tile(t).ok());
  }
}

TEST(ProductTiles, AreCandidatesInTheOrderOfTheirRank) {
  const GeneralKernel general = general_kernel(kernel_of(kFused));
  const SymbolValues sizes = sizes_of(general, {{"M", 512}, {"N", 768}, {"K", 300}});
  const ir::GpuTarget target = *ir::find_gpu_target("h200");
  const auto ranked = device_candidates(general, sizes, target, 9);
  ASSERT_TRUE(ranked.ok()) << ranked.status().to_string();
  ASSERT_EQ(ranked->size(), 9u);
  const auto tiles = tiles_of_product(general, sizes, target);
  ASSERT_TRUE(tiles.ok()) << tiles.status().to_string();
  for (size_t i = 0; i < 9; ++i) {
    const auto made = product_schedule(general, (*tiles)[i]);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    EXPECT_EQ(to_text((*ranked)[i].schedule), to_text(made->schedule));
  }
  EXPECT_EQ(device_candidates(general, sizes, target, 1)->size(), 1u);
}

TEST(ProductTiles, RefusesWhatNoGpuRuns) {
  const auto why = [](const ProductTile& t) { return check_tile(t).message(); };
  EXPECT_THAT(why({0, 64, 8, 4, 4}), HasSubstr("without elements"));
  EXPECT_THAT(why({100, 64, 8, 8, 4}), HasSubstr("does not divide"));
  EXPECT_THAT(why({8, 8, 8, 4, 4}), HasSubstr("4 threads"));
  EXPECT_THAT(why({256, 256, 8, 4, 4}), HasSubstr("4096 threads"));
  EXPECT_THAT(why({64, 64, 6, 4, 4}), HasSubstr("a depth of 6"));
  EXPECT_THAT(why({128, 128, 8, 16, 8}), HasSubstr("128 sums"));
  EXPECT_THAT(why({128, 128, 32, 8, 8}), HasSubstr("2048 products"));
  EXPECT_THAT(why({256, 256, 8, 8, 8}), HasSubstr("registers of a block"));
  EXPECT_THAT(why({128, 64, 64, 4, 4}), HasSubstr("bytes of shared memory"));
}

// Two operands of rows and none of columns, and the other way round.
TEST(ProductSchedule, RefusesOperandsOfOneKind) {
  const ir::GpuTarget target = *ir::find_gpu_target("h200");
  for (const char* term : {"x[k, m] * z[k, m]", "x[m, k] * z[m, k]", "x[k, n] * z[k, n]", "x[n, k] * z[n, k]"}) {
    const Kernel naive = kernel_of(
        std::string("kernel k(x: f32[9, 9] in, z: f32[9, 9] in, y: f32[9, 9] out)\n  c: f32[9, 9] heap\n"
                    "  for m < 9:\n    for n < 9:\n      c[m, n] = 0.0\n      for k < 9:\n        c[m, n] += ") +
        term + "\n      y[m, n] = c[m, n]\n");
    const GeneralKernel general = general_kernel(naive);
    const SymbolValues sizes = sizes_of(general, {});
    for (const auto& made : {product_schedule(general, product_tiles()[0]), gemv_schedule(general, sizes, target),
                             gemv_schedule(general, {}, target)})
      EXPECT_THAT(made.status().message(), HasSubstr("its terms have no operand of rows and one of columns")) << term;
    // Rows take it.
    expect_same(naive, general, device_schedule(general, sizes, target), {});
  }
}

TEST(ProductSchedule, RefusesWhatIsNoProduct) {
  const auto why = [](const std::string& text) {
    return product_schedule(general_kernel(kernel_of(text)), product_tiles()[0]).status().message();
  };
  EXPECT_THAT(why(test::kRows), HasSubstr("it has no sum of products"));
  EXPECT_THAT(why(test::kFlat), HasSubstr("it has no rows and columns"));
  EXPECT_THAT(why("kernel k(a: f32[9, 9] in, y: f32[9, 9] out)\n  c: f32[9, 9] heap\n  for m < 9:\n    for n < 9:\n"
                  "      c[m, n] = 0.0\n      for k < 9:\n        c[m, n] += a[m, k] * 2.0\n      y[m, n] = c[m, n]\n"),
              HasSubstr("its terms have no operand of rows and one of columns"));
  const GeneralKernel general = general_kernel(kernel_of(kFused));
  EXPECT_THAT(gemv_schedule(general, sizes_of(general, {{"M", 9}, {"N", 9}, {"K", 9}}), *ir::find_gpu_target("h200"))
                  .status()
                  .message(),
              HasSubstr("has 9 rows and 9 columns"));
}

}  // namespace
}  // namespace lathe::search
