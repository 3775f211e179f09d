// Schedules of products with weights of few bits that integers choose: every format has them, with few rows and with
// many, on tensor cores where rows are of bf16; they keep values; the real compiler takes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/quant_formats.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/choice/device_candidates.h"
#include "search/gpu/packed_constants.h"
#include "search/gpu/tensor/decoded_tensor.h"
#include "search/gpu/weights/decoded_lines.h"
#include "search/gpu/weights/decoded_schedule.h"
#include "tests/gpu/counted_kernels.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/integers/integer_kernels.h"
#include "tests/gpu/integers/quantised_kernels.h"

namespace lathe::test {
namespace {

using ir::DType;
using ::testing::HasSubstr;

constexpr double kBound = 2e-4, kBf16 = 0.0079;

TEST(ChosenWeights, EveryFormatIsServedByItsForm) {
  for (const ops::QuantFormat& f : ops::quant_formats()) {
    for (const DType type : {DType::f32, DType::bf16}) {
      const auto of = [&](bool grouped, int64_t rows) {
        const auto made =
            best_of(search::general_kernel(chosen_product(grouped, f.name, 8, 256, 512, type)), {{"M", rows}});
        EXPECT_TRUE(made.ok()) << f.name << ": " << made.status().to_string();
        return made.ok() ? made->schedule.recipe : "";
      };
      SCOPED_TRACE(f.name);
      if (f.name == "int8_channel") {  // of any depth
        EXPECT_EQ(of(false, 8), "lines.1");
        EXPECT_EQ(of(true, 1000), "decoded.1");
        continue;
      }
      EXPECT_EQ(of(false, 8), "decoded_lines.1");
      EXPECT_EQ(of(true, 16), "decoded_lines.1");
      EXPECT_EQ(of(true, 1000), type == DType::bf16 ? "decoded_tensor.1" : "decoded.1");
    }
  }
}

// What integers choose is packed as one weight is.
TEST(ChosenWeights, ArePacked) {
  for (const bool grouped : {false, true}) {
    const auto packed = search::packed_constants(chosen_product(grouped, "gptq", 3, 16, 64));
    ASSERT_EQ(packed.size(), 2u);
    EXPECT_EQ(packed[0].layout[0].dim, 0);
    EXPECT_EQ(packed[0].layout[1].dim, 2) << "inputs are neighbours";
    EXPECT_EQ(packed[0].layout[2].dim, 1);
  }
}

TEST(ChosenWeights, TokensKeepValues) {
  for (const char* format : {"q4_k", "q8_0", "nbits_4_zeros", "gptq", "int8_channel"}) {
    const ir::Kernel naive = chosen_product(false, format, 3, 40, 256);
    const search::GeneralKernel general = search::general_kernel(naive);
    SCOPED_TRACE(format);
    const auto made = best_of(general, {{"M", 3}});
    for (const int64_t tokens : {0, 1, 5}) {
      expect_values_kept(search::reads_packed(naive), general, made, {{"M", tokens}}, kBound);
      expect_as_interpreted(made->kernel, sizes_of(general, {{"M", tokens}}), kBound);
    }
  }
}

class ChosenGroups : public testing::TestWithParam<const char*> {
 protected:
  static void expect_right(const ir::Kernel& naive, const ir::Result<search::Scheduled>& made, double bound) {
    const search::GeneralKernel general = search::general_kernel(naive);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    for (const int64_t rows : {0, 1, 7, 40}) {
      expect_values_kept(search::reads_packed(naive), general, made, {{"M", rows}}, bound);
      expect_as_interpreted(made->kernel, sizes_of(general, {{"M", rows}}), bound);
    }
  }
};

TEST_P(ChosenGroups, KeepValuesInEveryForm) {
  const ir::Kernel naive = chosen_product(true, GetParam(), 3, 40, 256);
  const search::GeneralKernel general = search::general_kernel(naive);
  for (const search::DecodedLines& lines :
       {search::DecodedLines{}, {.rows = 4, .outputs = 2, .staged = true}, {.rows = 2, .outputs = 1}})
    expect_right(naive, search::decoded_lines(general, lines), kBound);
  for (const int64_t rows : {16, 32}) expect_right(naive, search::decoded_schedule(general, {rows}), kBound);
  expect_right(naive, search::outputs_schedule(general, {}), kBound);
}

TEST_P(ChosenGroups, KeepValuesOnTensorCores) {
  const std::string format = GetParam();
  const ir::Kernel naive = chosen_product(true, format, 3, 64, 256, DType::bf16);
  const search::GeneralKernel general = search::general_kernel(naive);
  search::TensorTile plain{32, 32, 32, 16, 32}, swapped{32, 16, 32, 16, 16};
  plain.stages = swapped.stages = 2;
  swapped.swapped = true;
  for (const search::TensorTile& tile : {plain, swapped, search::TensorTile{32, 32, 32, 16, 32}})
    expect_right(naive, search::decoded_tensor(general, tile), kBf16);
}
INSTANTIATE_TEST_SUITE_P(Gpu, ChosenGroups, testing::Values("q4_0", "q4_k", "nbits_4", "awq"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ChosenWeights, SumsOfGroupsAreWhole) {
  const search::GeneralKernel general = search::general_kernel(chosen_product(true, "q4_k", 3, 64, 1024));
  EXPECT_THAT(search::decoded_schedule(general, {16, 512}).status().message(), HasSubstr("to be whole"));
  EXPECT_THAT(search::decoded_lines(general, {.terms = 512}).status().message(), HasSubstr("to be whole"));
}

constexpr int64_t kFewRows = 64;  // of 128 groups: no tile of tensor cores is filled
class ChosenMatrix : public CountedKernels<testing::TestWithParam<const char*>> {};
TEST_P(ChosenMatrix, CompilesAsPredicted) {
  const ir::GpuTarget target = *ir::find_gpu_target(GetParam());
  for (const auto& [format, type] :
       {std::pair("q4_k", DType::f32), {"q4_k", DType::bf16}, {"q6_k", DType::f32}, {"nbits_4", DType::bf16}}) {
    for (const auto& [grouped, rows] : {std::pair<bool, int64_t>{false, 8}, {true, 64}, {true, 4096}}) {
      const search::GeneralKernel general =
          search::general_kernel(chosen_product(grouped, format, 128, 768, 2048, type));
      const auto made = best_of(general, {{"M", rows}});
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      const std::string what = to_text(made->schedule);
      const auto cut = search::cut_launches(made->kernel);
      ASSERT_TRUE(cut.ok()) << cut.status().to_string();
      // Products are of tensor cores, whose factors are copied on their way, or each thread's own; these load by 8
      // bytes or more.
      const bool tensor = made->schedule.recipe == "decoded_tensor.1";
      EXPECT_EQ(tensor, grouped && rows > kFewRows && type == DType::bf16) << what;
      int mma = 0, squares = 0, copies = 0, fma = 0, wide = 0;
      for (const ir::Leaf& leaf : cut->leaves) {
        const auto code = compiled(leaf, target, what);
        if (!code) continue;
        mma += code->mma, squares += code->matrix_loads, copies += code->async_copies, fma += code->fma;
        wide += code->loads.bits128 + code->loads.bits64;
      }
      expect_predicted(tensor ? mma > 0 && squares > 0 && copies > 0 : mma == 0 && fma > 0 && wide > 0,
                       fmt::format("{} products of tensor cores, {} squares, {} copies, {} products, {} wide loads\n{}",
                                   mma, squares, copies, fma, wide, what));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Gpu, ChosenMatrix, testing::Values("a100", "h100"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lathe::test
