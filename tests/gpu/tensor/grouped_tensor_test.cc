// Products of groups of rows on tensor cores: values stay whatever groups there are, on the emulator in every order of
// threads and of copies, without conflicts of banks in the loop, and each synchronisation is needed.
#include "search/gpu/tensor/grouped_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/cuda/lower/lower_device.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/choice/device_candidates.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/memory/mutations.h"
#include "tests/gpu/tensor/grouped_products.h"
#include "tests/gpu/tensor/tensor_products.h"

namespace lathe::test {
namespace {

using ir::DType;
using ir::SymbolValues;
using jit::DeviceProgram;
using search::TensorTile;
using Kind = jit::DeviceStmt::Kind;
using ::testing::HasSubstr;

TensorTile tile_of(TensorTile tile, int64_t stages, bool swapped) {
  tile.stages = stages;
  tile.swapped = swapped;
  return tile;
}

// Offsets rise from 0 to the number of rows, in steps of every size (inputs_of).
TEST(GroupedTensor, OnTheEmulator) {
  int emulated = 0, number = 0;
  constexpr std::pair<int64_t, int64_t> kSizes[] = {{40, 75}, {33, 1}, {64, 136}};
  for (const bool turned : {false, true}) {
    for (const TensorTile& tile : {tile_of({32, 32, 32, 16, 32}, 1, false), tile_of({32, 32, 32, 16, 32}, 3, false),
                                   tile_of({32, 16, 32, 16, 16}, 2, true), tile_of({32, 8, 32, 16, 8}, 4, true)}) {
      const auto& [n, k] = kSizes[number % 3];
      const ir::Kernel naive = grouped_product(turned ? DType::f16 : DType::bf16, turned, 5, n, k);
      const search::GeneralKernel general = search::general_kernel(naive);
      const auto made = search::grouped_tensor(general, tile);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      for (const int64_t rows : {0, 1, 67}) {
        const SymbolValues s = {{"S", rows}};
        if (rows == 67) expect_values_kept(naive, general, made, s, kBf16);
        if (rows > 0 || number % 4 == 0) expect_as_interpreted(made->kernel, sizes_of(general, s), kBf16);
        emulated += 3;
      }
      ++number;
    }
  }
  RecordProperty("emulated", emulated);
}

TEST(GroupedTensor, EverySynchronisationIsNeeded) {
  const search::GeneralKernel general = search::general_kernel(grouped_product(DType::bf16, true, 2, 32, 184));
  const auto made = search::grouped_tensor(general, tile_of({32, 32, 32, 16, 32}, 3, false));
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const auto cut = search::cut_launches(made->kernel);
  ASSERT_EQ(cut->leaves.size(), 2u);
  const auto whole = jit::lower_device(cut->leaves[1]);
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  // Of the second launch alone, which the verifier goes through.
  PlantedBugs bugs;
  bugs.leave_out(*whole, {Kind::commit, Kind::await, Kind::barrier},
                 [](const DeviceProgram& p) { return std::string(verify(p).message()); });
  EXPECT_GE(bugs.planted(), 5);
}

TEST(GroupedTensor, WithoutConflictsOfBanks) {
  for (const bool turned : {false, true}) {
    const search::GeneralKernel general = search::general_kernel(grouped_product(DType::bf16, turned, 2, 64, 128));
    for (const TensorTile& tile : {tile_of({64, 64, 32, 32, 32}, 3, false), tile_of({64, 64, 32, 32, 32}, 1, false),
                                   tile_of({64, 16, 64, 16, 16}, 2, true)}) {
      const auto made = search::grouped_tensor(general, tile);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      const BankCounts counts = bank_conflicts(made->kernel, sizes_of(general, {{"S", 100}}));
      EXPECT_GT(counts.accesses, 0);
      EXPECT_EQ(counts.conflicts, 0) << to_text(made->schedule);
    }
  }
}

TEST(GroupedTensor, IsTheFirstChoiceOfHalves) {
  const ir::GpuTarget target = *ir::find_gpu_target("h200");
  const auto recipe = [&](DType type, const SymbolValues& s) {
    const search::GeneralKernel general = search::general_kernel(grouped_product(type, true, 8, 4096, 512));
    const auto ranked = search::device_candidates(general, sizes_of(general, s), target, 4);
    EXPECT_TRUE(ranked.ok()) << ranked.status().to_string();
    EXPECT_EQ(ranked->size(), type == DType::f32 ? 1u : 4u);
    return ranked->front().schedule;
  };
  EXPECT_EQ(recipe(DType::f32, {{"S", 500}}).recipe, "experts.1");
  EXPECT_EQ(recipe(DType::bf16, {{"S", 500}}).recipe, "groups_tensor.1");
  // With few rows of a group the columns of the instruction are rows.
  EXPECT_EQ(recipe(DType::f16, {{"S", 32}}).knobs.count("swapped"), 1u);
}

TEST(GroupedTensor, Refuses) {
  const auto why = [](const ir::Kernel& kernel, const TensorTile& tile) {
    return search::grouped_tensor(search::general_kernel(kernel), tile).status().message();
  };
  const TensorTile tile{32, 32, 32, 16, 32};
  TensorTile parts = tile;
  parts.terms = 64;
  EXPECT_THAT(why(grouped_product(DType::f32, true, 2, 8, 8), tile), HasSubstr("expected operands of bf16, or of f16"));
  EXPECT_THAT(why(grouped_product(DType::f16, true, 2, 8, 8), parts), HasSubstr("parts of 64 terms"));
  EXPECT_THAT(why(kernel_of(kProduct), tile), HasSubstr("has no products of groups"));
}

}  // namespace
}  // namespace lathe::test
