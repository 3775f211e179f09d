// Products on tensor cores whose next steps are on their way, and those with few rows or columns: values stay, on the
// emulator too, and each synchronisation is needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/cuda/lower/lower_device.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/tensor/tensor_schedule.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/memory/mutations.h"
#include "tests/gpu/tensor/tensor_products.h"

namespace lathe::test {
namespace {

using jit::DeviceProgram;
using jit::DeviceStmt;
using search::TensorTile;
using Kind = DeviceStmt::Kind;

TensorTile tile_of(const TensorTile& tile, int64_t stages, bool swapped = false) {
  TensorTile out = tile;
  out.stages = stages;
  out.swapped = swapped;
  return out;
}

DeviceProgram lowered(const ir::Kernel& kernel) {
  const auto cut = search::cut_launches(kernel);
  EXPECT_TRUE(cut.ok()) << cut.status().to_string();
  auto program = jit::lower_device(cut->leaves[0]);
  EXPECT_TRUE(program.ok()) << program.status().to_string() << "\n" << cut->leaves[0].text;
  return std::move(*program);
}

// Steps on their way, in every layout, where lines begin at multiples of 16 bytes and where they do not.
TEST(TensorStages, OnTheEmulator) {
  int emulated = 0;
  for (const bool turn_a : {false, true}) {
    for (const bool turn_b : {false, true}) {
      const ir::Kernel naive = kernel_of(tensor_product(turn_a ? "f16" : "bf16", turn_a, turn_b));
      const search::GeneralKernel general = search::general_kernel(naive);
      for (const TensorTile& tile : {tile_of({32, 32, 32, 16, 32}, 3), tile_of({32, 16, 32, 16, 16}, 2, true),
                                     tile_of({32, 8, 32, 16, 8}, 4, true), tile_of({32, 8, 32, 32, 8}, 2)}) {
        const auto made = search::tensor_schedule(general, tile);
        ASSERT_TRUE(made.ok()) << made.status().to_string();
        for (const int64_t k : {0, 1, 31, 32, 75, 136}) {
          const ir::SymbolValues s = {{"M", tile.swapped ? 9 : 40}, {"N", tile.swapped ? 40 : 17}, {"K", k}};
          if (k == 75) expect_values_kept(naive, general, made, s, kBf16);
          expect_as_interpreted(made->kernel, sizes_of(general, s), kBf16);
          emulated += 3;
        }
      }
    }
  }
  RecordProperty("emulated", emulated);
}

// The last step is a short one: of one term, one under and over 16 and a step, and of many steps.
TEST(TensorStages, EveryDepth) {
  int emulated = 0;
  for (const bool turn : {false, true}) {
    const ir::Kernel naive = kernel_of(tensor_product(turn ? "f16" : "bf16", turn, !turn));
    const search::GeneralKernel general = search::general_kernel(naive);
    for (const int64_t stages : {1, 3}) {
      const auto made = search::tensor_schedule(general, tile_of({16, 16, 32, 16, 16}, stages));
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      for (const int64_t k : {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 1031}) {
        const ir::SymbolValues s = {{"M", 9}, {"N", 17}, {"K", k}};
        expect_values_kept(naive, general, made, s, kBf16);
        expect_as_interpreted(made->kernel, sizes_of(general, s), kBf16);
        emulated += 3;
      }
    }
  }
  RecordProperty("emulated", emulated);
}

TEST(TensorStages, EverySynchronisationIsNeeded) {
  const search::GeneralKernel general = search::general_kernel(kernel_of(tensor_product("bf16", false, true)));
  const ir::Kernel kernel = search::tensor_schedule(general, tile_of({32, 32, 32, 16, 32}, 3))->kernel;
  // Whole steps, and others: their loops are apart.
  const ir::SymbolValues whole_steps = sizes_of(general, {{"M", 32}, {"N", 32}, {"K", 192}}),
                         others = sizes_of(general, {{"M", 32}, {"N", 32}, {"K", 184}});
  const DeviceProgram whole = lowered(kernel);
  EXPECT_EQ(count_of(whole, Kind::commit), 3) << print(whole);
  PlantedBugs bugs;
  bugs.leave_out(whole, {Kind::commit, Kind::await, Kind::barrier}, [&](const DeviceProgram& p) {
    const std::string failure = failure_of(p, kernel, others, kBf16);
    return failure.empty() ? failure_of(p, kernel, whole_steps, kBf16) : failure;
  });
}

}  // namespace
}  // namespace lathe::test
