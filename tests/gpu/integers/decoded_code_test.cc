// Schedules of products with weights of few bits: what they are for which sizes and formats, that they keep values,
// without conflicts of banks, and that the real compiler takes them for every architecture.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search/gpu/packed_constants.h"
#include "search/gpu/weights/decoded_lines.h"
#include "search/gpu/weights/decoded_schedule.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/integers/integer_kernels.h"
#include "tests/gpu/integers/quantised_kernels.h"

namespace lathe::test {
namespace {

using ::testing::HasSubstr;

std::string recipe_of(const ir::Kernel& naive, int64_t rows) {
  const auto made = best_of(search::general_kernel(up_to(naive, {{"M", rows}})), {{"M", rows}});
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? to_text(made->schedule) : "";
}

TEST(DecodedCode, WhichScheduleServes) {
  EXPECT_THAT(recipe_of(quantised_product("q4_0", 64, 4096), 17),
              HasSubstr("from decoded.1 block=32 rows=16 terms=256\n"));
  EXPECT_THAT(recipe_of(quantised_product("q4_0", 64, 4096), 4000), HasSubstr("from decoded.1 block=32 rows=128"));
  EXPECT_THAT(recipe_of(quantised_product("q4_k", 4096, 4096), 128), HasSubstr("from decoded.1 block=256 rows=128 "));
  EXPECT_THAT(recipe_of(quantised_product("int8_channel", 64, 4096), 1), HasSubstr("from lines.1"));
  EXPECT_THAT(recipe_of(quantised_product("nbits_4", 64, 37), 17), HasSubstr("from decoded.1 threads=128\n"));
}

// Blocks share sums where there are few of them, in parts of whole blocks of terms.
TEST(DecodedCode, PartsOfSums) {
  const ir::GpuTarget gpu = *ir::find_gpu_target("h100");
  const search::GeneralKernel few = search::general_kernel(quantised_product("q4_k", 1024, 4096)),
                              many = search::general_kernel(quantised_product("q4_k", 65536, 4096));
  const auto best = [&](const search::GeneralKernel& general) {
    const auto tiles = search::decoded_rows_of(general, sizes_of(general, {{"M", 128}}), gpu);
    EXPECT_TRUE(tiles.ok()) << tiles.status().to_string();
    return tiles.ok() ? tiles->front() : search::DecodedTile();
  };
  EXPECT_GT(best(few).terms, 0);
  EXPECT_EQ(best(few).terms % 256, 0);
  EXPECT_EQ(best(many).terms, 0);
  const ir::Kernel naive = quantised_product("q6_k", 24, 512);
  const search::GeneralKernel general = search::general_kernel(naive);
  for (const search::DecodedTile& tile : {search::DecodedTile{16, 256}, {128, 256}}) {
    const auto made = search::decoded_schedule(general, tile);
    expect_values_kept(search::reads_packed(naive), general, made, {{"M", 130}}, 2e-4);
    expect_as_interpreted(made->kernel, sizes_of(general, {{"M", 130}}), 2e-4);
  }
}

// A Schedule that is stored is made again from what it was made of.
TEST(DecodedCode, IsReplayed) {
  for (const int64_t rows : {1, 40}) {
    const search::GeneralKernel general = search::general_kernel(quantised_product("q6_k", 64, 512));
    const auto made = best_of(general, {{"M", rows}});
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    const auto again = search::replay_on_device(general, made->schedule);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(print(again->kernel), print(made->kernel));
  }
}

// A constant is read in its packed form, whose fields are whole.
TEST(DecodedCode, AKernelOfPackedFields) {
  const search::GeneralKernel general = search::general_kernel(quantised_product("q5_0", 64, 64));
  EXPECT_EQ(general.packed.size(), 3u);
  const std::string text = print(general.kernel);
  for (const char* field : {"f0: f16[D1, 2] in", "f1: u8[D1, 2, 4] in", "f2: u8[D1, 2, 16] in"})
    EXPECT_THAT(text, HasSubstr(field));
  EXPECT_TRUE(search::general_kernel(kernel_of(kProduct)).packed.empty());
  EXPECT_TRUE(search::general_kernel(quantised_product("int8_group", 64, 64)).packed.empty());
}

// As the caller gives it a made constant is decoded in one nest.
TEST(DecodedCode, AKernelWithTheWeightApart) {
  const search::GeneralKernel general = search::general_kernel(search::reads_given(quantised_product("q5_0", 64, 64)));
  EXPECT_TRUE(general.packed.empty());
  const std::string text = print(general.kernel);
  EXPECT_THAT(text, HasSubstr("w: f32[D0, 64] heap"));
  EXPECT_THAT(text, HasSubstr("* w[n, k]"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("_made")));
  const search::GeneralKernel plain = search::general_kernel(kernel_of(kProduct));
  EXPECT_THAT(print(plain.kernel), ::testing::Not(HasSubstr("w: f32")));
}

TEST(DecodedCode, KeepsValues) {
  const int64_t k = 256;
  for (const ir::Kernel& naive :
       {quantised_product("q6_k", 24, k), search::reads_given(quantised_product("q6_k", 24, k)),
        quantised_product("nbits_4_zeros", 24, k), quantised_product("gptq", 24, k)}) {
    const search::GeneralKernel general = search::general_kernel(naive);
    for (const int64_t rows : {1, 40}) {
      const auto made = best_of(general, {{"M", rows}});
      for (const int64_t m : {5, 65}) {
        expect_values_kept(search::reads_packed(naive), general, made, {{"M", m}}, 2e-4);
        expect_as_interpreted(made->kernel, sizes_of(general, {{"M", m}}), 2e-4);
      }
    }
  }
}

// Words of terms by outputs, or of outputs, are packed so that the bytes of an output lie together.
TEST(DecodedCode, WordsOfOutputsAreTurned) {
  for (const char* format : {"gptq", "gptq_v2", "awq"}) {
    const ir::Kernel naive = quantised_product(format, 24, 64);
    const search::GeneralKernel general = search::general_kernel(naive);
    ASSERT_EQ(general.packed.size(), 2u) << format;
    EXPECT_EQ(general.packed[0].name, "f0");
    EXPECT_EQ(print(search::packing_kernel(general.packed[0])).find("dst: u8[24, 32] out") != std::string::npos, true);
    const std::string text = print(general.kernel);
    EXPECT_THAT(text, HasSubstr("f0: u8[D1, 32] in")) << format;
    EXPECT_THAT(text, HasSubstr("f2: u8[D1, 2] in")) << format;
    // A thread of few rows loads 32 terms at once.
    const auto made = best_of(general, {{"M", 1}});
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    EXPECT_EQ(made->schedule.recipe, "decoded_lines.1") << format;
    EXPECT_THAT(to_text(made->schedule), HasSubstr("vectorize_scope f0_")) << format;
  }
}

TEST(DecodedCode, NoConflictsOfBanks) {
  for (const char* format : {"q4_0", "q4_k"}) {
    const search::GeneralKernel general = search::general_kernel(quantised_product(format, 128, 256));
    const auto made = best_of(general, {{"M", 128}});
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    const BankCounts banks = bank_conflicts(made->kernel, sizes_of(general, {{"M", 128}}));
    EXPECT_GT(banks.accesses, 0);
    EXPECT_EQ(banks.conflicts, 0) << format;
  }
}

TEST(DecodedCode, RefusesWhatDecodesNothing) {
  const search::GeneralKernel general = search::general_kernel(kernel_of(kProduct));
  const auto gpu = *ir::find_gpu_target("h100");
  EXPECT_THAT(search::decoded_schedule(general, {}, gpu).status().message(), HasSubstr("decodes no weight"));
  EXPECT_THAT(search::decoded_lines(general, {}, gpu).status().message(), HasSubstr("decodes no weight"));
  const search::GeneralKernel odd = search::general_kernel(quantised_product("nbits_4", 64, 37));
  EXPECT_THAT(search::decoded_schedule(odd, {}, gpu).status().message(),
              HasSubstr("no whole blocks of a power of two"));
  EXPECT_THAT(search::decoded_lines(odd, {}, gpu).status().message(), HasSubstr("no whole blocks of a power of two"));
}

class DecodedMatrix : public KernelMatrix {};
TEST_P(DecodedMatrix, CompilesWithoutSpills) {
  std::vector<MatrixForm> forms;
  const bool all = std::string(GetParam()) == "h200";
  for (const ops::QuantFormat& f : ops::quant_formats()) {
    const bool some = f.name == "q4_0" || f.name == "q5_k" || f.name == "nbits_4";
    if (!all && !some) continue;
    for (const int64_t rows : {1, 8, 100}) {
      if (!some && rows == 8) continue;
      // Bytes of a chunk lie together, and are loaded 16 at once where all blocks begin so; packed, all do.
      const ir::Kernel naive = quantised_product(f.name, 64, 4096, ir::DType::bf16);
      const bool packs = f.place == ops::FieldsIn::kBlocks, words = f.name.rfind("gptq", 0) == 0 || f.name == "awq";
      const bool wide = rows < 9 && (f.name == "q4_k" || f.name == "nbits_4");
      if ((packs || words) && rows != 8) forms.push_back({print(naive), {{"M", rows}}, rows < 9 ? 2 : 0});
      if (!packs || some) forms.push_back({print(search::reads_given(naive)), {{"M", rows}}, wide ? 2 : 0});
    }
  }
  compile_all(forms);
}
INSTANTIATE_TEST_SUITE_P(Gpus, DecodedMatrix, testing::Values("a100", "l40s", "h200", "rtx5090"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lathe::test
