// Schedules of products on tensor cores: values stay in every tile, what is proven is proven, and the ranking prefers
// what it should.
#include "search/gpu/tensor/tensor_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "ir/analysis/analysis.h"
#include "ir/meaning/interpreter.h"
#include "search/cut/launch_cut.h"
#include "search/cut/safe_kernel.h"
#include "search/gpu/choice/device_candidates.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/tensor/tensor_products.h"

namespace lathe::search {
namespace {

using ir::Kernel;
using ir::SymbolValues;
using test::kBf16;
using test::kernel_of;
using test::sizes_of;
using test::tensor_product;
using ::testing::HasSubstr;

void expect_same(const Kernel& naive, const GeneralKernel& general, const ir::Result<Scheduled>& scheduled,
                 const SymbolValues& symbols) {
  test::expect_values_kept(naive, general, scheduled, symbols, kBf16);
}

TEST(TensorSchedule, EveryTileKeepsTheValues) {
  const Kernel naive = kernel_of(tensor_product("bf16", false, true));
  const GeneralKernel general = general_kernel(naive);
  int number = 0;
  for (TensorTile tile : tensor_tiles()) {
    const int64_t least = std::exchange(tile.stages, 1 + number % 3);
    if (!check_tile(tile).ok()) tile.stages = least;
    const auto made = tensor_schedule(general, tile);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    if (number++ % 9 != 0) continue;
    // One over and under the tile, and the depth, in turn.
    const int64_t by = number / 9 % 3 - 1, m = tile.swapped ? tile.columns : tile.rows,
                  n = tile.swapped ? tile.rows : tile.columns;
    expect_same(naive, general, made, {{"M", m + by}, {"N", n - by}, {"K", tile.depth + by}});
  }
  for (const int64_t k : {0, 1, 2, 17})
    expect_same(naive, general, tensor_schedule(general, tensor_tiles()[0]), {{"M", 1}, {"N", 2}, {"K", k}});
}

// Every layout and type, what is made before a product and after it, on the emulator in every order of the threads.
// Tiles below each other before those beside them: as many as divide the rows of tiles, or not; swapped, staged, of a
// batch.
TEST(TensorSchedule, RastersKeepTheValues) {
  for (const int64_t raster : {1, 2, 3, 16}) {
    for (const bool swapped : {false, true}) {
      const Kernel naive =
          kernel_of(swapped ? tensor_product("bf16", false, true) : std::string(test::kTensorEpilogue));
      const GeneralKernel general = general_kernel(naive);
      TensorTile tile{16, 16, 32, 16, 16, 2};
      tile.swapped = swapped;
      tile.swizzled = raster % 2 == 0;
      tile.raster = raster;
      const auto made = tensor_schedule(general, tile);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      EXPECT_EQ(made->schedule.knobs.at("raster"), raster);
      for (const int64_t m : {15, 33, 64}) {
        const ir::SymbolValues s = {{"M", m}, {"N", 40}, {"K", 72}};
        expect_same(naive, general, made, s);
        test::expect_as_interpreted(made->kernel, test::sizes_of(general, s), kBf16);
      }
    }
  }
  for (const int64_t raster : {-1, 17}) {
    TensorTile tile{16, 16, 32, 16, 16};
    tile.raster = raster;
    EXPECT_THAT(check_tile(tile).message(), ::testing::HasSubstr("tiles below each other, expected at most 16"));
  }
}

TEST(TensorSchedule, OnTheEmulator) {
  int emulated = 0;
  for (const std::string& text :
       {tensor_product("bf16", false, false), tensor_product("f16", false, true), tensor_product("bf16", true, false),
        tensor_product("f16", true, true), std::string(test::kTensorFused)}) {
    const Kernel naive = kernel_of(text);
    const GeneralKernel general = general_kernel(naive);
    const auto made = tensor_schedule(general, TensorTile{32, 32, 32, 16, 32});
    for (const SymbolValues& s : {SymbolValues{{"M", 35}, {"N", 33}, {"K", 75}},
                                  {{"M", 32}, {"N", 64}, {"K", 64}},
                                  {{"M", 1}, {"N", 9}, {"K", 1}},
                                  {{"M", 31}, {"N", 40}, {"K", 47}}}) {
      expect_same(naive, general, made, s);
      test::expect_as_interpreted(made->kernel, sizes_of(general, s), kBf16);
      emulated += 3;
    }
  }
  // Tiles of every kind.
  const Kernel naive = kernel_of(tensor_product("bf16", false, false));
  const GeneralKernel general = general_kernel(naive);
  for (size_t i = 0; i < tensor_tiles().size(); i += 29) {
    const TensorTile& tile = tensor_tiles()[i];
    const auto made = tensor_schedule(general, tile);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    test::expect_as_interpreted(made->kernel,
                                sizes_of(general, {{"M", (tile.swapped ? tile.columns : tile.rows) + 1},
                                                   {"N", (tile.swapped ? tile.rows : tile.columns) - 1},
                                                   {"K", 2 * tile.depth + 3}}),
                                kBf16);
    emulated += 3;
  }
  RecordProperty("emulated", emulated);
}

TEST(TensorTiles, FollowTheShape) {
  const ir::GpuTarget gpu = *ir::find_gpu_target("h200");
  ir::GpuTarget half = gpu;
  half.multiprocessors /= 2;
  const auto best = [&](int64_t m, int64_t n, int64_t k) {
    return ranked_tensor_tiles({1, m, n, k, true}, gpu).front();
  };
  EXPECT_EQ(best(4096, 4096, 4096).rows * best(4096, 4096, 4096).columns, 128 * 128);
  // The weights are the rows of the instruction, which are 16 at least, whichever operand they are.
  for (const int64_t few : {1, 5, 8}) {
    EXPECT_TRUE(best(few, 14336, 4096).swapped);
    EXPECT_EQ(best(few, 14336, 4096).columns, 8);
    EXPECT_FALSE(best(14336, few, 4096).swapped);
    EXPECT_EQ(best(14336, few, 4096).columns, 8);
  }
  for (const int64_t few : {16, 32}) EXPECT_LE(std::min(best(few, 4096, 4096).rows, best(few, 4096, 4096).columns), 32);
  // As many stages as the GPU has memory for.
  EXPECT_GE(best(8, 4096, 4096).stages, 3);
  EXPECT_GE(best(4096, 4096, 4096).stages, 2);
  EXPECT_EQ(ranked_tensor_tiles({1, 4096, 4096, 4096, false}, gpu).front().stages, 1);
  for (const char* name : {"a100", "l40s", "h200"}) {
    const ir::GpuTarget target = *ir::find_gpu_target(name);
    for (const TensorTile& t : ranked_tensor_tiles({1, 4096, 4096, 4096, true}, target))
      EXPECT_LE(shared_bytes(t), most_shared(target));
  }
  const TensorTile small = best(256, 256, 4096);  // enough blocks to go round
  EXPECT_TRUE(small.rows * small.columns <= 64 * 64 || small.terms > 0);
  for (const TensorTile& t : tensor_tiles()) {
    EXPECT_LT(tensor_cycles(t, {1, 512, 512, 512}, gpu), tensor_cycles(t, {1, 4096, 4096, 512}, gpu));
    EXPECT_LT(tensor_cycles(t, {1, 512, 512, 512}, gpu), tensor_cycles(t, {1, 512, 512, 4096}, gpu));
    EXPECT_LT(tensor_cycles(t, {1, 4096, 4096, 512}, gpu), tensor_cycles(t, {1, 4096, 4096, 512}, half));
    EXPECT_TRUE(check_tile(t).ok());
  }
}

TEST(TensorTiles, AreCandidatesInTheOrderOfTheirRank) {
  const GeneralKernel general = general_kernel(kernel_of(tensor_product("f16", false, true)));
  const SymbolValues sizes = sizes_of(general, {{"M", 512}, {"N", 768}, {"K", 300}});
  const ir::GpuTarget target = *ir::find_gpu_target("a100");
  const auto ranked = device_candidates(general, sizes, target, 9);
  ASSERT_TRUE(ranked.ok()) << ranked.status().to_string();
  ASSERT_EQ(ranked->size(), 9u);
  const auto tiles = tensor_tiles_of(general, sizes, target);
  ASSERT_TRUE(tiles.ok()) << tiles.status().to_string();
  for (size_t i = 0; i < 9; ++i)
    EXPECT_EQ(to_text((*ranked)[i].schedule), to_text(tensor_schedule(general, (*tiles)[i])->schedule));
}

TEST(TensorTiles, RefusesWhatNoGpuRuns) {
  const auto why = [](const TensorTile& t) { return check_tile(t).message(); };
  EXPECT_THAT(why({0, 64, 32, 32, 32}), HasSubstr("without elements"));
  EXPECT_THAT(why({24, 64, 32, 32, 32}), HasSubstr("24 elements, expected a multiple of 16"));
  EXPECT_THAT(why({64, 20, 32, 32, 32}), HasSubstr("20 elements, expected a multiple of 8"));
  EXPECT_THAT(why({64, 48, 32, 32, 24}), HasSubstr("24 columns of a warp, expected 8 or a multiple of 16"));
  EXPECT_THAT(why({64, 64, 32, 32, 32, 9}), HasSubstr("9 stages, expected 1..8"));
  EXPECT_THAT(why({128, 128, 64, 64, 32, 7}), HasSubstr("bytes of shared memory"));
  EXPECT_THAT(why({64, 64, 24, 32, 32}), HasSubstr("a depth of 24, expected a multiple of 32"));
  EXPECT_THAT(why({64, 64, 16, 32, 32}), HasSubstr("a depth of 16, expected a multiple of 32"));
  EXPECT_THAT(why({64, 64, 32, 48, 32}), HasSubstr("does not divide"));
  EXPECT_THAT(why({256, 256, 32, 16, 16}), HasSubstr("8192 threads"));
  EXPECT_THAT(why({128, 128, 32, 128, 64}), HasSubstr("256 sums"));
  EXPECT_THAT(why({256, 512, 32, 64, 64}), HasSubstr("registers of a thread"));
  EXPECT_THAT(why({128, 128, 128, 64, 32}), HasSubstr("bytes of shared memory"));
}

TEST(TensorSchedule, RefusesWhatIsNoProductOfHalves) {
  const auto why = [](const std::string& text) {
    return tensor_schedule(general_kernel(kernel_of(text)), tensor_tiles()[0]).status().message();
  };
  EXPECT_THAT(why(test::kProduct), HasSubstr("expected factors that are loaded and widened"));
  EXPECT_THAT(why(test::kRows), HasSubstr("it has no sum of products"));
  const auto with = [](const char* a, const char* b, const char* term) {
    return std::string("kernel k(a: ") + a + " in, b: " + b +
           " in, y: f32[9, 9] out)\n  c: f32[9, 9] heap\n  for m < 9:\n    for n < 9:\n      c[m, n] = 0.0\n"
           "      for k < 9:\n        c[m, n] += " +
           term + "\n      y[m, n] = c[m, n]\n";
  };
  EXPECT_THAT(why(with("bf16[9, 9]", "f16[9, 9]", "f32(a[m, k]) * f32(b[k, n])")),
              HasSubstr("expected operands of bf16, or of f16"));
  EXPECT_THAT(why(with("bf16[9, 9]", "bf16[9]", "f32(a[m, k]) * f32(b[k])")),
              HasSubstr("no operand of rows and one of columns"));
  EXPECT_THAT(why(with("bf16[9, 9]", "f32[9, 9]", "f32(a[m, k]) * b[k, n]")),
              HasSubstr("expected factors that are loaded and widened"));
  // Plain tiles take it.
  const GeneralKernel mixed = general_kernel(kernel_of(with("bf16[9, 9]", "f16[9, 9]", "f32(a[m, k]) * f32(b[k, n])")));
  const auto made = device_schedule(mixed, sizes_of(mixed, {}), *ir::find_gpu_target("h200"));
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made->schedule.recipe, "tiles.1");
}

}  // namespace
}  // namespace lathe::search
