// Schedules of products of few rows with weights of few bits: which are first, and that they keep values at every
// number of rows, outputs and terms.
#include "search/gpu/weights/decoded_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search/gpu/choice/device_candidates.h"
#include "search/gpu/packed_constants.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/integers/integer_kernels.h"
#include "tests/gpu/integers/quantised_kernels.h"

namespace lathe::test {
namespace {

using ::testing::HasSubstr;

constexpr double kBound = 2e-4;

search::DecodedLines best_lines(const search::GeneralKernel& general, int64_t rows) {
  const auto all = search::decoded_lines_of(general, sizes_of(general, {{"M", rows}}), *ir::find_gpu_target("h100"));
  EXPECT_TRUE(all.ok()) << all.status().to_string();
  return all.ok() && !all->empty() ? all->front() : search::DecodedLines();
}

void expect_right(const ir::Kernel& naive, const search::GeneralKernel& general, const search::DecodedLines& lines,
                  const std::vector<int64_t>& rows) {
  const auto made = search::decoded_lines(general, lines);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  for (const int64_t m : rows) {
    expect_values_kept(search::reads_packed(naive), general, made, {{"M", m}}, kBound);
    expect_as_interpreted(made->kernel, sizes_of(general, {{"M", m}}), kBound);
  }
}

TEST(DecodedLines, ServeFewRows) {
  for (const char* format : {"q4_0", "q4_k", "q5_k", "q6_k", "q8_0", "nbits_4"}) {
    const search::GeneralKernel general = search::general_kernel(quantised_product(format, 4096, 4096));
    for (const int64_t rows : {1, 2, 8, 16, 17}) {
      const auto made = best_of(general, {{"M", rows}});
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      EXPECT_EQ(made->schedule.recipe, rows > 16 ? "decoded.1" : "decoded_lines.1") << format << " " << rows;
    }
  }
}

// Where the best has no Schedule, the next one serves, and parts of sums begin where groups do.
TEST(DecodedLines, ServeGroupsOfAnySize) {
  for (const int64_t group : {64, 256, 512, 1024}) {
    const search::GeneralKernel general =
        search::general_kernel(quantised_product("nbits_4", 1024, 4096, ir::DType::f32, group));
    for (const int64_t rows : {1, 4, 8, 16, 17, 100}) {
      const auto made = best_of(general, {{"M", rows}});
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      EXPECT_EQ(made->schedule.recipe, rows > 16 ? "decoded.1" : "decoded_lines.1") << group << " " << rows;
      EXPECT_EQ(made->schedule.knobs.count("threads"), 0u) << "a thread for each output";
    }
  }
}

// Each weight is read for all of up to 8 rows. Rows of 11008 terms, which are no whole parts, have no room together.
TEST(DecodedLines, ABlockHasAllRows) {
  const auto up_to_16 = [](int64_t terms) {  // with parts of sums, for which many rows leave no room
    return search::general_kernel(up_to(quantised_product("q4_k", 4096, terms), {{"M", 16}}));
  };
  const search::GeneralKernel general = up_to_16(4096);
  for (int64_t rows = 1; rows <= 8; ++rows) {
    const search::DecodedLines t = best_lines(general, rows);
    EXPECT_GE(t.rows, rows);
    EXPECT_LT(t.rows, 2 * rows);
    EXPECT_EQ(t.staged, rows > 1);
    EXPECT_GE(t.outputs, rows > 1 ? 2 : 1) << rows;
  }
  EXPECT_GE(best_lines(general, 16).rows, 8);
  EXPECT_LE(best_lines(up_to_16(11008), 8).rows, 4);
}

// What a choice between bits makes of a weight is long: a lane has few of them.
TEST(DecodedLines, FewOutputsWhereDecodingIsLong) {
  for (const int64_t rows : {1, 8})
    EXPECT_LE(best_lines(search::general_kernel(quantised_product("q6_k", 4096, 4096)), rows).outputs, 2);
}

TEST(DecodedLines, OthersAreCandidates) {
  const search::GeneralKernel general = search::general_kernel(quantised_product("q4_k", 4096, 4096));
  const auto all = search::device_candidates(general, sizes_of(general, {{"M", 8}}), *ir::find_gpu_target("h100"), 8);
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  EXPECT_EQ(all->size(), 8u);
  for (size_t i = 0; i + 1 < all->size(); ++i) EXPECT_EQ((*all)[i].schedule.recipe, "decoded_lines.1") << i;
  EXPECT_EQ(all->back().schedule.recipe, "decoded.1") << "one that needs fewer registers";
}

// The number of outputs is odd.
TEST(DecodedLines, KeepValues) {
  for (const char* format : {"q4_0", "q4_k", "q6_k", "q8_0", "nbits_4_zeros", "gptq"}) {
    const int64_t outputs = std::string(format) == "gptq" ? 40 : 37;
    const ir::Kernel naive = quantised_product(format, outputs, 256);
    const search::GeneralKernel general = search::general_kernel(naive);
    SCOPED_TRACE(format);
    expect_right(naive, general, best_lines(general, 1), {1, 3});
    expect_right(naive, general, best_lines(general, 3), {2, 3, 5});
    expect_right(naive, general, best_lines(general, 8), {7, 8, 9, 17});
  }
}

TEST(DecodedLines, KeepValuesOfLongLines) {
  for (const int64_t terms : {3584, 11008}) {
    for (const char* format : {"q4_k", "q8_0"}) {
      const ir::Kernel naive = quantised_product(format, 5, terms);
      const search::GeneralKernel general = search::general_kernel(naive);
      SCOPED_TRACE(format);
      expect_right(naive, general, best_lines(general, 2), {2});
      expect_right(naive, general, best_lines(general, 1), {1});
    }
  }
}

TEST(DecodedLines, AllFormsKeepValues) {
  const ir::Kernel naive = quantised_product("q4_k", 70, 1024);
  const search::GeneralKernel general = search::general_kernel(naive);
  const std::vector<search::DecodedLines> forms = {{.rows = 2, .outputs = 4, .lanes = 32},
                                                   {.rows = 4, .outputs = 1, .lanes = 8, .staged = true},
                                                   {.rows = 2, .outputs = 2, .terms = 512, .staged = true},
                                                   {.rows = 1, .outputs = 2, .lanes = 16, .at_once = 2},
                                                   {.rows = 1, .outputs = 1, .at_once = 4}};
  for (const search::DecodedLines& t : forms) expect_right(naive, general, t, {3});
}

TEST(DecodedLines, OfBf16AndF16) {
  for (const ir::DType type : {ir::DType::bf16, ir::DType::f16}) {
    const ir::Kernel naive = quantised_product("q4_k", 19, 256, type);
    const search::GeneralKernel general = search::general_kernel(naive);
    for (const int64_t rows : {1, 5}) expect_right(naive, general, best_lines(general, rows), {rows});
  }
}

TEST(DecodedLines, RefuseMoreRows) {
  const search::GeneralKernel general = search::general_kernel(quantised_product("q4_k", 64, 512));
  const auto all = search::decoded_lines_of(general, sizes_of(general, {{"M", 17}}), *ir::find_gpu_target("h100"));
  EXPECT_THAT(all.status().message(), HasSubstr("17 rows, expected at most 16"));
}

}  // namespace
}  // namespace lathe::test
