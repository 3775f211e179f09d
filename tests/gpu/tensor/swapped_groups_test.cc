// Products of groups of four warps whose rows are columns of the result, tiles of any number of columns, and sums that
// blocks share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "search/cut/launch_cut.h"
#include "search/gpu/choice/device_candidates.h"
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

GroupTile swapped(int64_t rows, int64_t columns, int64_t terms = 0, bool persistent = false) {
  GroupTile t{rows, columns, columns, 3, 0, true, persistent};
  t.swapped = true;
  t.terms = terms;
  return t;
}

int expect_right(const std::string& text, const GroupTile& tile, const std::vector<SymbolValues>& sizes) {
  const Kernel naive = kernel_of(text);
  const GeneralKernel general = general_kernel(naive);
  const auto made = hopper_schedule(general, tile);
  for (const SymbolValues& s : sizes) {
    test::expect_values_kept(naive, general, made, s, kBf16);
    if (!made.ok()) return 0;
    test::expect_as_interpreted(made->kernel, sizes_of(general, s), kBf16);
  }
  return static_cast<int>(8 * sizes.size());
}

// Whole tiles, one over and under, fewer terms than a step, and lines that no box is of.
TEST(SwappedGroups, OnTheEmulator) {
  int emulated = 0;
  emulated += expect_right(tensor_product("bf16", false, true), swapped(64, 8),
                           {{{"M", 8}, {"N", 64}, {"K", 64}},
                            {{"M", 9}, {"N", 72}, {"K", 328}},
                            {{"M", 1}, {"N", 65}, {"K", 8}},
                            {{"M", 7}, {"N", 63}, {"K", 67}},
                            {{"M", 3}, {"N", 1}, {"K", 0}}});
  emulated += expect_right(tensor_product("f16", false, false), swapped(128, 24),
                           {{{"M", 24}, {"N", 128}, {"K", 136}}, {{"M", 25}, {"N", 136}, {"K", 8}}});
  emulated += expect_right(tensor_product("bf16", true, true), swapped(64, 64, 0, true),
                           {{{"M", 72}, {"N", 136}, {"K", 72}}, {{"M", 65}, {"N", 3}, {"K", 9}}});
  emulated += expect_right(test::kTensorEpilogue, swapped(64, 16), {{{"M", 17}, {"N", 72}, {"K", 72}}});
  RecordProperty("emulated", emulated);
}

// Columns of no whole panels, which boxes of lines of terms may have.
TEST(SwappedGroups, AnyColumnsOnTheEmulator) {
  int emulated = 0;
  emulated += expect_right(tensor_product("bf16", false, true), GroupTile{64, 40, 40, 3, 0, true},
                           {{{"M", 64}, {"N", 40}, {"K", 64}}, {{"M", 65}, {"N", 88}, {"K", 200}}});
  emulated += expect_right(tensor_product("bf16", false, true), GroupTile{64, 96, 96, 3, 2, true, true, true},
                           {{{"M", 136}, {"N", 96}, {"K", 72}}, {{"M", 63}, {"N", 97}, {"K", 129}}});
  RecordProperty("emulated", emulated);
}

// Less than a part, whole parts, one over and one under; steps at the end of a part, and of all of them.
TEST(SwappedGroups, PartsOfSumsOnTheEmulator) {
  const GeneralKernel general = general_kernel(kernel_of(tensor_product("bf16", false, true)));
  GroupTile tile{64, 64, 64, 3, 0, true};
  tile.terms = 256;
  const auto made = hopper_schedule(general, tile);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(cut_launches(made->kernel)->launches.size(), 2u);
  int emulated = 0;
  std::vector<SymbolValues> sizes;
  for (const int64_t k : {0, 8, 248, 256, 264, 520, 203, 257}) sizes.push_back({{"M", 65}, {"N", 72}, {"K", k}});
  emulated += expect_right(tensor_product("bf16", false, true), tile, sizes);
  emulated += expect_right(test::kTensorEpilogue, swapped(64, 16, 256), {{{"M", 17}, {"N", 72}, {"K", 600}}});
  RecordProperty("emulated", emulated);
}

TEST(SwappedGroups, AreFirstWhereThereAreFewRows) {
  const ir::GpuTarget h100 = *ir::find_gpu_target("h100");
  const auto best = [&](int64_t m, int64_t n, int64_t k) {
    const ir::SymbolValues sizes = {{"M", m}, {"N", n}, {"K", k}};
    const GeneralKernel general = general_kernel(test::up_to(kernel_of(tensor_product("bf16", false, true)), sizes));
    return group_tiles_of(general, sizes_of(general, sizes), h100);
  };
  for (const int64_t m : {5, 8, 16, 33, 64}) {
    const auto tiles = best(m, 4096, 4096);
    ASSERT_TRUE(tiles.ok()) << tiles.status().to_string();
    if (m <= 16) EXPECT_EQ(tiles->front().columns, (m + 7) / 8 * 8);
    for (const GroupTile& t : *tiles) EXPECT_TRUE(t.swapped && t.roles);
  }
  EXPECT_FALSE(best(16, 4096, 4100).ok());  // no boxes
  EXPECT_FALSE(best(16, 64, 4096).ok());
  EXPECT_FALSE(best(64, 4096, 4096)->front().staged);
  // Of few tiles blocks share the sums.
  EXPECT_GT(best(128, 1024, 14336)->front().terms, 0);
  // As many columns as make two whole rounds.
  EXPECT_EQ(best(512, 14336, 4096)->front().columns, 224);
  EXPECT_EQ(best(512, 14336, 4096)->front().raster, 4);
  EXPECT_EQ(best(1152, 14336, 4096)->front().raster, 5);  // nine rows of tiles
  // Where neighbours are lines of the tile, these have 64 of them; one tile of fewer is there to be measured.
  const GeneralKernel across = general_kernel(kernel_of(tensor_product("bf16", false, false)));
  const auto tiles = group_tiles_of(across, sizes_of(across, {{"M", 512}, {"N", 14336}, {"K", 4096}}), h100);
  ASSERT_TRUE(tiles.ok()) << tiles.status().to_string();
  const auto is_narrow = [](const GroupTile& t) { return (t.swapped ? t.rows : t.columns) % 64 != 0; };
  EXPECT_FALSE(is_narrow(tiles->front()));
  EXPECT_EQ(std::count_if(tiles->begin(), tiles->end(), is_narrow), 1);
}

TEST(SwappedGroups, RefusesWhatNoGpuRuns) {
  const auto why = [](const GroupTile& t) { return std::string(check_tile(t).message()); };
  GroupTile t = swapped(64, 16);
  EXPECT_EQ(why(t), "");
  t.roles = false;
  EXPECT_THAT(why(t), HasSubstr("a swapped tile, or parts of sums, expected roles"));
  t = swapped(64, 64);
  t.staged = true;
  EXPECT_THAT(why(t), HasSubstr("results that are stored as they are"));
  EXPECT_THAT(why(swapped(64, 16, 100)), HasSubstr("parts of 100 terms"));
  EXPECT_THAT(why(swapped(64, 16, 128)), HasSubstr("parts of 2 steps in 3 stages"));
  EXPECT_THAT(why(swapped(64, 12)), HasSubstr("12 columns of a group, expected a multiple of 8"));
  const GeneralKernel across = general_kernel(kernel_of(tensor_product("bf16", true, true)));
  EXPECT_THAT(std::string(hopper_schedule(across, swapped(64, 24)).status().message()),
              HasSubstr("stages lines of 64 x 24 elements, expected multiples of 16"));
}

}  // namespace
}  // namespace lathe::search
