// Products with weights of few bits on tensor cores: values are those of the f32 weights in every format, on the
// emulator in every order of threads and of copies, without conflicts of banks in the loop; each synchronisation is
// needed; the real compiler makes of them what the tile predicts.
#include "search/gpu/tensor/decoded_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/cuda/lower/lower_device.h"
#include "ops/quant_formats.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/choice/device_schedules.h"
#include "search/gpu/packed_constants.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/counted_kernels.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/integers/quantised_kernels.h"
#include "tests/gpu/memory/mutations.h"
#include "tests/gpu/tensor/tensor_products.h"

namespace lathe::test {
namespace {

using ir::DType;
using search::TensorTile;
using Kind = jit::DeviceStmt::Kind;
using ::testing::HasSubstr;

TensorTile tile_of(TensorTile tile, int64_t stages, bool swapped) {
  tile.stages = stages;
  tile.swapped = swapped;
  return tile;
}
TensorTile parts_of(TensorTile tile, int64_t terms) {
  tile.terms = terms;
  return tile;
}
const TensorTile kPlain = tile_of({32, 32, 32, 16, 32}, 2, false), kOneStage = tile_of({32, 32, 32, 16, 32}, 1, false),
                 kSwapped = tile_of({32, 16, 32, 16, 16}, 2, true), kFew = tile_of({32, 8, 32, 16, 8}, 2, true),
                 kParts = parts_of(tile_of({32, 16, 32, 16, 16}, 1, true), 256);

constexpr double kF32 = 2e-4;

search::GeneralKernel general_of(const std::string& format, int64_t n, int64_t k) {
  return search::general_kernel(quantised_product(format, n, k, DType::bf16));
}

TEST(DecodedTensor, EveryFormatOnTheEmulator) {
  int emulated = 0, number = 0;
  for (const ops::QuantFormat& f : ops::quant_formats()) {
    // Of words that hold several outputs there are whole tiles.
    const bool words = f.name.rfind("gptq", 0) == 0 || f.name == "awq";
    const ir::Kernel naive = quantised_product(f.name, words ? 64 : 40, 512, DType::bf16);
    const search::GeneralKernel general = search::general_kernel(naive);
    const TensorTile& tile = number % 4 == 0 ? kPlain : number % 4 == 1 ? kSwapped : number % 4 == 2 ? kOneStage : kFew;
    const auto made = search::decoded_tensor(general, tile);
    if (f.name == "int8_channel") {  // of any depth
      EXPECT_THAT(made.status().message(), HasSubstr("no whole blocks"));
      continue;
    }
    ASSERT_TRUE(made.ok()) << f.name << ": " << made.status().to_string();
    const int64_t rows = number++ % 2 == 0 ? 33 : 9;
    // In f32 the results differ by the order of sums; one rounding to bf16 hides more.
    expect_values_kept(search::reads_packed(naive), general, made, {{"M", rows}}, kBf16);
    expect_as_interpreted(made->kernel, sizes_of(general, {{"M", rows}}), kBf16);
    emulated += 3;
  }
  RecordProperty("emulated", emulated);
}

TEST(DecodedTensor, EveryTileOnTheEmulator) {
  for (const TensorTile& tile : {kPlain, kOneStage, kSwapped, kFew}) {
    const search::GeneralKernel general = general_of("q4_0", 33, 96);
    const auto made = search::decoded_tensor(general, tile);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    for (const int64_t rows : {1, 16, 35}) expect_as_interpreted(made->kernel, sizes_of(general, {{"M", rows}}), kBf16);
  }
}

TEST(DecodedTensor, PartsOfSumsOnTheEmulator) {
  for (const auto& [format, terms] : {std::pair{"q4_0", 800}, {"q4_k", 768}, {"awq", 640}}) {
    const ir::Kernel naive = quantised_product(format, 64, terms, DType::bf16);
    const search::GeneralKernel general = search::general_kernel(naive);
    const auto made = search::decoded_tensor(general, kParts);
    ASSERT_TRUE(made.ok()) << format << ": " << made.status().to_string();
    EXPECT_EQ(search::cut_launches(made->kernel)->leaves.size(), 2u);
    for (const int64_t rows : {1, 16, 19}) {
      expect_values_kept(search::reads_packed(naive), general, made, {{"M", rows}}, kBf16);
      expect_as_interpreted(made->kernel, sizes_of(general, {{"M", rows}}), kBf16);
    }
  }
  EXPECT_FALSE(search::decoded_tensor(general_of("q4_k", 64, 768), parts_of(kParts, 128)).ok());  // no whole blocks
}

// Of rows of f32 and of bf16, against products of what is rounded.
TEST(DecodedTensor, RoundedFactorsOnTheEmulator) {
  int number = 0;
  for (const ops::QuantFormat& f : ops::quant_formats()) {
    if (f.name == "int8_channel") continue;  // of any depth
    const bool words = f.name.rfind("gptq", 0) == 0 || f.name == "awq", narrow = number % 3 == 1;
    const ir::Kernel naive = quantised_product(f.name, words ? 64 : 40, 512, narrow ? DType::bf16 : DType::f32);
    const search::GeneralKernel general = search::general_kernel(naive);
    const TensorTile& tile = number % 4 == 0 ? kPlain : number % 4 == 1 ? kSwapped : number % 4 == 2 ? kOneStage : kFew;
    const auto made = search::decoded_tensor(general, tile, true);
    ASSERT_TRUE(made.ok()) << f.name << ": " << made.status().to_string();
    EXPECT_EQ(made->schedule.numeric & ir::kQuantisedActivations, ir::kQuantisedActivations);
    const auto rounded = search::redefined(search::reads_packed(naive), made->schedule);
    ASSERT_TRUE(rounded.ok()) << rounded.status().to_string();
    SCOPED_TRACE(f.name);
    for (const int64_t rows : {0, 1, 33}) {
      expect_values_kept(*rounded, general, made, {{"M", rows}}, narrow ? kBf16 : kF32);
      expect_as_interpreted(made->kernel, sizes_of(general, {{"M", rows}}), narrow ? kBf16 : kF32);
    }
    ++number;
  }
}

TEST(DecodedTensor, RoundedFactorsInParts) {
  const ir::Kernel naive = quantised_product("q4_k", 64, 768);
  const search::GeneralKernel general = search::general_kernel(naive);
  const auto made = search::decoded_tensor(general, kParts, true);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const auto rounded = search::redefined(search::reads_packed(naive), made->schedule);
  for (const int64_t rows : {1, 16, 19}) {
    expect_values_kept(*rounded, general, made, {{"M", rows}}, kF32);
    expect_as_interpreted(made->kernel, sizes_of(general, {{"M", rows}}), kF32);
  }
}

// Where a caller allows it, from 5 rows on, and nowhere else.
TEST(DecodedTensor, RoundsWhereItIsAllowed) {
  const search::GeneralKernel general = search::general_kernel(quantised_product("q4_k", 4096, 4096));
  const auto recipe = [&](int64_t rows, uint32_t allowed) {
    const auto made =
        search::device_schedule(general, sizes_of(general, {{"M", rows}}), *ir::find_gpu_target("h100"), allowed);
    return made.ok() ? made->schedule.recipe : made.status().to_string();
  };
  EXPECT_EQ(recipe(4, ir::kQuantisedActivations), "decoded_lines.1");
  EXPECT_EQ(recipe(5, ir::kQuantisedActivations), "decoded_tensor.1");
  EXPECT_EQ(recipe(5, 0), "decoded_lines.1");
  EXPECT_EQ(recipe(128, ir::kQuantisedActivations), "decoded_tensor.1");
  EXPECT_EQ(recipe(128, 0), "decoded.1");
}

TEST(DecodedTensor, FewRowsShareSums) {
  const search::GeneralKernel general =
      search::general_kernel(up_to(quantised_product("q4_0", 4096, 4096, DType::bf16), {{"M", 16}}));
  for (const char* gpu : {"h100", "h200"}) {
    const auto tiles = search::decoded_tiles_of(general, sizes_of(general, {{"M", 16}}), *ir::find_gpu_target(gpu));
    ASSERT_TRUE(tiles.ok()) << tiles.status().to_string();
    const TensorTile& t = tiles->front();
    EXPECT_GT(t.terms, 0) << gpu;
    EXPECT_LE(t.swapped ? t.columns : t.rows, 16) << gpu;
  }
}

// With stages, a loop that always runs ends with a barrier, and what comes behind it begins with one: one of them could
// be left out.
TEST(DecodedTensor, EverySynchronisationIsNeeded) {
  PlantedBugs bugs;
  for (const TensorTile& tile : {kPlain, kOneStage}) {
    const auto made = search::decoded_tensor(general_of("q4_0", 32, 192), tile);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    const auto whole = jit::lower_device(search::cut_launches(made->kernel)->leaves[0]);
    ASSERT_TRUE(whole.ok()) << whole.status().to_string();
    int spare = 0;
    for (const Kind kind : {Kind::commit, Kind::await, Kind::barrier}) {
      for (int i = 0; i < count_of(*whole, kind); ++i) {
        const bool found = !verify(without(*whole, kind, i)).ok();
        if (!found && kind == Kind::barrier && tile.stages > 1) {
          ++spare;
        } else {
          bugs.plant(fmt::format("statement {} of kind {}\n{}", i, static_cast<int>(kind), print(*whole)), found);
        }
      }
    }
    EXPECT_LE(spare, 1) << print(*whole);
  }
  EXPECT_GE(bugs.planted(), 4);
}

TEST(DecodedTensor, WithoutConflictsOfBanks) {
  for (const TensorTile& tile : {tile_of({64, 64, 32, 32, 32}, 2, false), kSwapped}) {
    for (const char* format : {"q4_0", "q4_k", "gptq"}) {
      const search::GeneralKernel general = general_of(format, 64, 512);
      const auto made = search::decoded_tensor(general, tile);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      const BankCounts counts = bank_conflicts(made->kernel, sizes_of(general, {{"M", 64}}));
      EXPECT_GT(counts.accesses, 0);
      EXPECT_EQ(counts.conflicts, 0) << to_text(made->schedule);
    }
  }
}

TEST(DecodedTensor, Refuses) {
  const auto why = [](const ir::Kernel& kernel, const TensorTile& tile) {
    return search::decoded_tensor(search::general_kernel(kernel), tile).status().message();
  };
  EXPECT_THAT(why(quantised_product("q4_0", 32, 64), kPlain), HasSubstr("expected rows of bf16 that are given"));
  EXPECT_THAT(why(quantised_product("nbits_4", 32, 37, DType::bf16), kPlain), HasSubstr("no whole blocks"));
  EXPECT_THAT(why(kernel_of(kProduct), kPlain), HasSubstr("decodes no weight"));
  EXPECT_THAT(why(quantised_product("q4_0", 32, 64, DType::bf16), {64, 64, 64, 32, 32}), HasSubstr("a depth of 64"));
  const auto few = search::decoded_tiles_of(
      general_of("q4_0", 32, 64), sizes_of(general_of("q4_0", 32, 64), {{"M", 8}}), *ir::find_gpu_target("h200"));
  EXPECT_THAT(few.status().message(), HasSubstr("8 rows, expected more than 8"));
}

class DecodedTensorMatrix : public CountedKernels<testing::TestWithParam<const char*>> {};
TEST_P(DecodedTensorMatrix, CompilesAsPredicted) {
  const ir::GpuTarget target = *ir::find_gpu_target(GetParam());
  for (const char* format : {"q4_0", "q4_k", "gptq"}) {
    for (const int64_t rows : {16, 1000}) {
      const search::GeneralKernel general = general_of(format, 4096, 4096);
      const auto tiles = search::decoded_tiles_of(general, sizes_of(general, {{"M", rows}}), target);
      ASSERT_TRUE(tiles.ok()) << tiles.status().to_string();
      const TensorTile& t = tiles->front();
      const auto made = search::decoded_tensor(general, t);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      const std::string what = to_text(made->schedule);
      const auto code = compiled(search::cut_launches(made->kernel)->leaves[0], target, what);
      if (!code) continue;
      // A product for each part of a weight and square of the result, of 32 terms, in the loop and, with stages, of the
      // last step, and at most as often in a loop for tiles that are not whole. A weight of f16 times an integer of 4
      // bits has two parts.
      const int64_t parts = made->kernel.find_buffer("w_p_f")->dims[0]->ival;
      EXPECT_EQ(parts == 2, format == std::string("q4_0")) << what;
      const int64_t products = t.warp_rows / 16 * (t.warp_columns / 8) * 2 * parts * (t.stages > 1 ? 2 : 1);
      const int64_t more = products / (t.stages > 1 ? 2 : 1);
      expect_predicted(code->mma >= products && code->mma <= products + more && code->matrix_loads > 0,
                       fmt::format("{} products of {}, {} squares\n{}", code->mma, products, code->matrix_loads, what));
    }
  }
}
TEST_P(DecodedTensorMatrix, RoundedFactorsCompileAsPredicted) {
  const ir::GpuTarget target = *ir::find_gpu_target(GetParam());
  for (const auto& [format, type] :
       {std::pair("q4_k", DType::f32), {"q6_k", DType::f32}, {"gptq", DType::f32}, {"q4_k", DType::bf16}}) {
    for (const int64_t rows : {8, 16, 128, 1000}) {
      const search::GeneralKernel general = search::general_kernel(quantised_product(format, 4096, 4096, type));
      const auto tiles = search::decoded_tiles_of(general, sizes_of(general, {{"M", rows}}), target, true);
      ASSERT_TRUE(tiles.ok()) << tiles.status().to_string();
      const TensorTile& t = tiles->front();
      const auto made = search::decoded_tensor(general, t, true);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      const std::string what = to_text(made->schedule);
      const auto code = compiled(search::cut_launches(made->kernel)->leaves[0], target, what);
      if (!code) continue;
      const int64_t products = t.warp_rows / 16 * (t.warp_columns / 8) * 2 * (t.stages > 1 ? 2 : 1);
      const int64_t more = products / (t.stages > 1 ? 2 : 1);
      expect_predicted(code->mma >= products && code->mma <= products + more && code->matrix_loads > 0,
                       fmt::format("{} products of {}, {} squares\n{}", code->mma, products, code->matrix_loads, what));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Gpu, DecodedTensorMatrix, testing::Values("a100", "h200"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lathe::test
