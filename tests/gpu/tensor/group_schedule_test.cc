// Products of groups of four warps: Schedules keep the values, the emulator gives what the interpreter does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "search/gpu/choice/device_candidates.h"
#include "search/gpu/choice/device_schedules.h"
#include "search/gpu/tensor/hopper_schedule.h"
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

TEST(GroupSchedule, OnTheEmulator) {
  int emulated = 0;
  for (const std::string& text :
       {tensor_product("bf16", false, true), tensor_product("f16", false, false), tensor_product("bf16", true, false),
        tensor_product("f16", true, true), std::string(test::kTensorFused)}) {
    const Kernel naive = kernel_of(text);
    const GeneralKernel general = general_kernel(naive);
    const auto made = hopper_schedule(general, GroupTile{128, 64, 64});
    for (const SymbolValues& s : {SymbolValues{{"M", 65}, {"N", 70}, {"K", 139}},
                                  {{"M", 128}, {"N", 64}, {"K", 128}},
                                  {{"M", 1}, {"N", 9}, {"K", 63}}}) {
      test::expect_values_kept(naive, general, made, s, kBf16);
      test::expect_as_interpreted(made->kernel, sizes_of(general, s), kBf16);
      emulated += 3;
    }
  }
  RecordProperty("emulated", emulated);
}

TEST(GroupSchedule, EveryTileKeepsTheValues) {
  const Kernel naive = kernel_of(tensor_product("bf16", false, true));
  const GeneralKernel general = general_kernel(naive);
  int number = 0, emulated = 0;
  for (const GroupTile& tile : group_tiles()) {
    const auto made = hopper_schedule(general, tile);
    // One over and under the tile, and a step of terms, in turn.
    const int64_t by = number++ % 3 - 1;
    const SymbolValues s = {{"M", tile.rows + by}, {"N", tile.columns - by}, {"K", 64 + by}};
    test::expect_values_kept(naive, general, made, s, kBf16);
    test::expect_as_interpreted(made->kernel, sizes_of(general, s), kBf16);
    emulated += 3;
  }
  for (const int64_t k : {0, 1, 2, 17})
    test::expect_values_kept(naive, general, hopper_schedule(general, group_tiles().back()),
                             {{"M", 1}, {"N", 2}, {"K", k}}, kBf16);
  RecordProperty("emulated", emulated);
}

// Operands have maps where lines begin at multiples of 16 bytes; else threads copy. Rings go round from never to twice.
TEST(GroupSchedule, BoxesOnTheEmulator) {
  int emulated = 0;
  for (const std::string& text : {tensor_product("bf16", false, true), tensor_product("f16", true, false)}) {
    const Kernel naive = kernel_of(text);
    const GeneralKernel general = general_kernel(naive);
    const auto made = hopper_schedule(general, GroupTile{128, 64, 64, 3});
    for (const int64_t k : {0, 64, 136, 448}) {
      const SymbolValues s = {{"M", 136}, {"N", 72}, {"K", k}};
      test::expect_values_kept(naive, general, made, s, kBf16);
      test::expect_as_interpreted(made->kernel, sizes_of(general, s), kBf16);
      emulated += 8;
    }
    for (const SymbolValues& s : {SymbolValues{{"M", 65}, {"N", 70}, {"K", 203}},
                                  {{"M", 1}, {"N", 8}, {"K", 64}},
                                  {{"M", 8}, {"N", 1}, {"K", 65}}}) {
      test::expect_as_interpreted(made->kernel, sizes_of(general, s), kBf16);
      emulated += 8;
    }
  }
  RecordProperty("emulated", emulated);
}

// Warps of their own ask for boxes. Steps are whole: beyond the last term are zeros, of boxes and of what threads copy.
TEST(GroupSchedule, RolesOnTheEmulator) {
  int emulated = 0;
  for (const std::string& text : {tensor_product("bf16", false, true), tensor_product("f16", true, false)}) {
    const Kernel naive = kernel_of(text);
    const GeneralKernel general = general_kernel(naive);
    const auto made = hopper_schedule(general, GroupTile{128, 64, 64, 3, 2, true});
    for (const SymbolValues& s : {SymbolValues{{"M", 136}, {"N", 72}, {"K", 0}},
                                  {{"M", 136}, {"N", 72}, {"K", 8}},
                                  {{"M", 264}, {"N", 72}, {"K", 456}},
                                  {{"M", 65}, {"N", 70}, {"K", 203}},
                                  {{"M", 1}, {"N", 8}, {"K", 64}},
                                  {{"M", 8}, {"N", 1}, {"K", 65}}}) {
      test::expect_values_kept(naive, general, made, s, kBf16);
      test::expect_as_interpreted(made->kernel, sizes_of(general, s), kBf16);
      emulated += 8;
    }
  }
  RecordProperty("emulated", emulated);
}

// Two blocks go through all tiles, of which some are none.
TEST(GroupSchedule, PersistentOnTheEmulator) {
  int emulated = 0;
  const Kernel naive = kernel_of(tensor_product("bf16", false, true));
  const GeneralKernel general = general_kernel(naive);
  for (const int64_t raster : {0, 2}) {
    const auto made = hopper_schedule(general, GroupTile{64, 64, 64, 3, raster, true, true});
    for (const SymbolValues& s : {SymbolValues{{"M", 168}, {"N", 136}, {"K", 72}},
                                  {{"M", 320}, {"N", 65}, {"K", 130}},
                                  {{"M", 8}, {"N", 200}, {"K", 0}},
                                  {{"M", 1}, {"N", 1}, {"K", 1}}}) {
      test::expect_values_kept(naive, general, made, s, kBf16);
      test::expect_as_interpreted(made->kernel, sizes_of(general, s), kBf16);
      emulated += 8;
    }
  }
  RecordProperty("emulated", emulated);
}

// What is fused behind a product, at edges of tiles.
TEST(GroupSchedule, FusedBehindRolesOnTheEmulator) {
  int emulated = 0;
  const Kernel naive = kernel_of(test::kTensorEpilogue);
  const GeneralKernel general = general_kernel(naive);
  for (const bool persistent : {false, true}) {
    const auto made = hopper_schedule(general, GroupTile{64, 64, 64, 3, 0, true, persistent});
    const SymbolValues s =
        persistent ? SymbolValues{{"M", 67}, {"N", 69}, {"K", 139}} : SymbolValues{{"M", 63}, {"N", 72}, {"K", 8}};
    test::expect_values_kept(naive, general, made, s, kBf16);
    test::expect_as_interpreted(made->kernel, sizes_of(general, s), kBf16);
    emulated += 8;
  }
  RecordProperty("emulated", emulated);
}

// Tiles below each other come one after the other, in groups of which the last may have fewer.
TEST(GroupSchedule, TilesInGroups) {
  const Kernel naive = kernel_of(tensor_product("bf16", false, true));
  const GeneralKernel general = general_kernel(naive);
  int emulated = 0;
  for (const int64_t stages : {0, 3}) {
    const auto made = hopper_schedule(general, GroupTile{64, 64, 64, stages, 2});
    for (const int64_t m : {64, 72, 136, 192}) {
      const SymbolValues s = {{"M", m}, {"N", 72}, {"K", 64}};
      test::expect_values_kept(naive, general, made, s, kBf16);
      test::expect_as_interpreted(made->kernel, sizes_of(general, s), kBf16);
      emulated += stages == 0 ? 4 : 8;
    }
  }
  RecordProperty("emulated", emulated);
}

TEST(GroupTiles, FollowTheShape) {
  const ir::GpuTarget h200 = *ir::find_gpu_target("h200");
  ir::GpuTarget half = h200;
  half.multiprocessors /= 2;
  const auto best = [&](int64_t m, int64_t n, int64_t k) { return ranked_group_tiles({1, m, n, k}, h200).front(); };
  EXPECT_GE(best(4096, 4096, 4096).rows * best(4096, 4096, 4096).columns, 128 * 192);
  EXPECT_LE(best(256, 512, 4096).rows * best(256, 512, 4096).columns, 128 * 128);  // enough blocks to go round
  for (const GroupTile& t : group_tiles()) {
    EXPECT_LT(group_cycles(t, {1, 512, 512, 512}, h200), group_cycles(t, {1, 8192, 8192, 512}, h200));
    EXPECT_LT(group_cycles(t, {1, 512, 512, 512}, h200), group_cycles(t, {1, 512, 512, 4096}, h200));
    EXPECT_LT(group_cycles(t, {1, 8192, 8192, 512}, h200), group_cycles(t, {1, 8192, 8192, 512}, half));
    EXPECT_TRUE(check_tile(t).ok());
  }
}

TEST(GroupTiles, AreFirstOnHopperWhereThereAreManyRowsAndColumns) {
  const GeneralKernel general = general_kernel(kernel_of(tensor_product("f16", false, true)));
  const auto recipe = [&](const char* gpu, int64_t m, int64_t n) {
    const auto made =
        device_schedule(general, sizes_of(general, {{"M", m}, {"N", n}, {"K", 300}}), *ir::find_gpu_target(gpu));
    return made.ok() ? made->schedule.recipe : made.status().to_string();
  };
  EXPECT_EQ(recipe("h200", 512, 768), "groups.1");
  EXPECT_EQ(recipe("h100", 65, 65), "groups.1");
  EXPECT_EQ(recipe("h200", 64, 768), "tensor.1");  // 300 terms make no boxes, which swapped tiles take
  EXPECT_EQ(recipe("h200", 512, 64), "tensor.1");
  for (const char* gpu : {"a100", "l40s", "rtx5090"}) EXPECT_EQ(recipe(gpu, 512, 768), "tensor.1");
  const SymbolValues sizes = sizes_of(general, {{"M", 512}, {"N", 768}, {"K", 300}});
  const auto ranked = device_candidates(general, sizes, *ir::find_gpu_target("h200"), 9);
  ASSERT_TRUE(ranked.ok()) << ranked.status().to_string();
  ASSERT_EQ(ranked->size(), 9u);
  const auto of = [&](const char* name) {
    return std::count_if(ranked->begin(), ranked->end(), [&](const Scheduled& s) { return s.schedule.recipe == name; });
  };
  EXPECT_EQ(of("groups.1"), 7);
  EXPECT_EQ(of("tensor.1"), 2);
  EXPECT_EQ(ranked->front().schedule.recipe, "groups.1");
  EXPECT_EQ(ranked->front().schedule.knobs.count("stages"), 0u);
  // Lines of a multiple of 16 bytes are copied by boxes.
  const auto boxes =
      device_schedule(general, sizes_of(general, {{"M", 512}, {"N", 768}, {"K", 304}}), *ir::find_gpu_target("h200"));
  ASSERT_TRUE(boxes.ok()) << boxes.status().to_string();
  EXPECT_EQ(boxes->schedule.knobs.count("stages"), 1u);
  EXPECT_EQ(boxes->schedule.knobs.count("roles"), 1u);
  EXPECT_EQ(boxes->schedule.knobs.count("raster"), 0u);
  const auto many =
      device_schedule(general, sizes_of(general, {{"M", 8192}, {"N", 8192}, {"K", 512}}), *ir::find_gpu_target("h200"));
  ASSERT_TRUE(many.ok()) << many.status().to_string();
  EXPECT_EQ(many->schedule.knobs.count("raster"), 1u);
}

// Blocks go through several tiles where there are more of these than multiprocessors; the same tile without is next.
TEST(GroupTiles, BlocksGoOnWhereThereAreMoreTilesThanMultiprocessors) {
  const GeneralKernel general = general_kernel(kernel_of(tensor_product("bf16", false, true)));
  const ir::GpuTarget h200 = *ir::find_gpu_target("h200");
  const auto tiles = [&](int64_t m, int64_t n) {
    return group_tiles_of(general, sizes_of(general, {{"M", m}, {"N", n}, {"K", 4096}}), h200).value();
  };
  for (const int64_t m : {1024, 1536, 2048, 4096, 8192}) {
    for (const GroupTile& t : tiles(m, 2048)) {
      const int64_t all = (m + t.rows - 1) / t.rows * ((2048 + t.columns - 1) / t.columns);
      EXPECT_TRUE(!t.persistent || (t.roles && all > h200.multiprocessors)) << m;
    }
    const GroupTile first = tiles(m, 2048)[0], second = tiles(m, 2048)[1];
    const bool more =
        (m + first.rows - 1) / first.rows * ((2048 + first.columns - 1) / first.columns) > h200.multiprocessors;
    EXPECT_EQ(first.persistent, first.roles && more) << m;
    EXPECT_EQ(second.rows == first.rows && second.columns == first.columns && second.roles && !second.persistent &&
                  second.staged == first.staged,
              first.persistent)
        << m;
  }
  EXPECT_TRUE(tiles(8192, 8192)[0].persistent);
}

// Pairs of blocks share what they read where there is enough of it in a tile; the same tile without is proposed, too.
TEST(GroupTiles, PairsWhereThereAreManyTiles) {
  const GeneralKernel general = general_kernel(kernel_of(tensor_product("bf16", false, true)));
  ir::GpuTarget gpu = *ir::find_gpu_target("h200");
  const auto tiles = [&](int64_t m, int64_t n, int64_t k) {
    return group_tiles_of(general, sizes_of(general, {{"M", m}, {"N", n}, {"K", k}}), gpu).value();
  };
  const auto many = tiles(2048, 4096, 14336);
  EXPECT_EQ(many[0].pairs, TilePairs::below);
  EXPECT_TRUE(std::any_of(many.begin(), many.end(), [&](const GroupTile& t) {
    return t.rows == many[0].rows && t.columns == many[0].columns && t.persistent && t.staged == many[0].staged &&
           t.pairs == TilePairs::none;
  }));
  for (const int64_t m : {65, 512, 1024, 1536, 4096}) {
    for (const GroupTile& t : tiles(m, 2048, 4096)) {
      const int64_t rows = (m + t.rows - 1) / t.rows, columns = (2048 + t.columns - 1) / t.columns;
      EXPECT_TRUE(t.pairs == TilePairs::none || (t.roles && 2 * rows * columns > gpu.multiprocessors)) << m;
    }
  }
  // What is longer is better shared, where reading takes the time.
  gpu.multiprocessors *= 2;
  GroupTile wide = {128, 256, 256, 4, 8, true, true, false, TilePairs::below}, narrow = wide;
  narrow.pairs = TilePairs::beside;
  EXPECT_LT(group_cycles(wide, {1, 8192, 8192, 4096}, gpu), group_cycles(narrow, {1, 8192, 8192, 4096}, gpu));
  gpu.multiprocessors = 131;  // of which one would have no other
  EXPECT_EQ(tiles(2048, 4096, 14336)[0].pairs, TilePairs::none);
}

// Steps, turns of the grid and edges, of pairs below each other and beside.
TEST(GroupSchedule, PairsOnTheEmulator) {
  int emulated = 0;
  for (const TilePairs pairs : {TilePairs::below, TilePairs::beside}) {
    const bool fused = pairs == TilePairs::beside;
    const Kernel naive = kernel_of(fused ? std::string(test::kTensorEpilogue) : tensor_product("bf16", false, true));
    const GeneralKernel general = general_kernel(naive);
    const auto made = hopper_schedule(general, GroupTile{64, 64, 64, 3, 2, true, true, true, pairs});
    for (const SymbolValues& s : {SymbolValues{{"M", 200}, {"N", 72}, {"K", 72}},
                                  {{"M", 8}, {"N", 136}, {"K", 328}},
                                  {{"M", 65}, {"N", 69}, {"K", 139}},
                                  {{"M", 1}, {"N", 1}, {"K", 0}}}) {
      test::expect_values_kept(naive, general, made, s, kBf16);
      test::expect_as_interpreted(made->kernel, sizes_of(general, s), kBf16);
      emulated += 8;
    }
  }
  RecordProperty("emulated", emulated);
}

TEST(GroupTiles, RefusesWhatNoGpuRuns) {
  const auto why = [](const GroupTile& t) { return std::string(check_tile(t).message()); };
  EXPECT_THAT(why({0, 64, 64}), HasSubstr("without elements"));
  EXPECT_THAT(why({96, 64, 64}), HasSubstr("96 rows, expected a multiple of 64"));
  EXPECT_THAT(why({64, 264, 264}), HasSubstr("264 columns of a group"));
  EXPECT_THAT(why({64, 512, 512}), HasSubstr("512 columns of a group"));
  EXPECT_THAT(why({128, 64, 48}), HasSubstr("do not divide"));
  EXPECT_THAT(why({64, 160, 160}), HasSubstr("expected lines of 64"));
  EXPECT_THAT(why({64, 20, 20, 3}), HasSubstr("20 columns of a group, expected a multiple of 8"));
  EXPECT_THAT(why({1024, 64, 64}), HasSubstr("2048 threads"));
  EXPECT_THAT(why({128, 128, 128, 2}), HasSubstr("2 stages, expected none or 3..8"));
  EXPECT_THAT(why({128, 128, 128, 9}), HasSubstr("9 stages"));
  EXPECT_THAT(why({128, 128, 128, 3, 17}), HasSubstr("17 tiles below each other"));
  EXPECT_THAT(why({320, 64, 64, 3}), HasSubstr("boxes of 320 rows"));
  EXPECT_THAT(why({128, 128, 128, 0, 0, true}), HasSubstr("roles of 2 groups with 0 stages"));
  EXPECT_THAT(why({256, 128, 128, 4, 0, true}), HasSubstr("roles of 4 groups with 4 stages, expected at most 3"));
  EXPECT_THAT(why({192, 256, 256, 3, 0, true}), HasSubstr("176 registers of a thread, expected at most 152"));
  EXPECT_THAT(why({128, 256, 256, 4, 0, false, true}), HasSubstr("several tiles, expected roles in them"));
  EXPECT_THAT(why({128, 256, 256, 5}), HasSubstr("bytes of shared memory"));
  EXPECT_THAT(std::string(hopper_schedule(general_kernel(kernel_of(test::kTensorFused)), GroupTile{128, 128, 128, 3})
                              .status()
                              .message()),
              HasSubstr("of which there are no boxes"));
  EXPECT_THAT(why({256, 256, 256}), HasSubstr("registers of a thread"));
  const GeneralKernel floats = general_kernel(kernel_of(test::kProduct));
  EXPECT_THAT(std::string(hopper_schedule(floats, group_tiles()[0]).status().message()),
              HasSubstr("expected factors that are loaded and widened"));
  EXPECT_THAT(std::string(group_tiles_of(floats, {}, *ir::find_gpu_target("a100")).status().message()),
              HasSubstr("multiplies no tiles of shared memory"));
}

}  // namespace
}  // namespace lathe::search
