// Schedules of rows: values within the tolerance of sums in another order, at every size of rows and columns, in
// registers and in loops.
#include "search/gpu/rows/rows_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/analysis/analysis.h"
#include "search/cut/safe_kernel.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/rows.h"

namespace lathe::search {
namespace {

using ir::Kernel;
using ir::SymbolValues;
using ::testing::HasSubstr;

Scheduled scheduled(const std::string& text, const SymbolValues& symbols) {
  const Kernel naive = test::kernel_of(text);
  const GeneralKernel general = general_kernel(naive);
  SymbolValues sizes;
  for (const auto& [name, size] : general.sizes) sizes.emplace_back(name, ir::evaluate(size, symbols).value());
  auto made = rows_schedule(general, sizes);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  const ir::Status safe = check_safe(general.kernel, made->kernel);
  EXPECT_TRUE(safe.ok()) << safe.to_string() << print(made->kernel);
  return std::move(*made);
}

void expect_same(const std::string& text, const SymbolValues& hint, const SymbolValues& symbols) {
  const GeneralKernel general = general_kernel(test::kernel_of(text));
  SymbolValues sizes;
  for (const auto& [name, size] : general.sizes) sizes.emplace_back(name, ir::evaluate(size, symbols).value());
  test::expect_as_interpreted(scheduled(text, hint).kernel, sizes, 2e-6);
}

TEST(RowsSchedule, InRegisters) {
  for (const int64_t n : {1, 2, 3, 127, 128, 129, 1000, 1025, 4097}) {
    const std::string text = test::softmax_rows(std::to_string(n));
    for (const int64_t m : {1, 7}) expect_same(text, {{"B", 129}, {"N", n}}, {{"B", m}, {"N", n}});
  }
}

TEST(RowsSchedule, OfLayernorm) {
  for (const int64_t n : {1, 130, 1000, 4100}) {
    const SymbolValues sizes = {{"B", 5}, {"N", n}};
    expect_same(test::layernorm_rows(std::to_string(n)), sizes, sizes);
    expect_same(test::layernorm_rows("N"), sizes, sizes);
  }
}

TEST(RowsSchedule, InLoops) {
  for (const int64_t n : {1, 2, 3, 127, 128, 129, 1000, 1025, 4097}) {
    expect_same(test::softmax_rows("N"), {{"B", 129}, {"N", 1000}}, {{"B", 3}, {"N", n}});
    expect_same(test::kSumRows, {{"B", 129}, {"N", 1000}}, {{"B", 3}, {"N", n}});
  }
  expect_same(test::softmax_rows("70000"), {{"B", 1}, {"N", 70000}}, {{"B", 1}, {"N", 70000}});
}

TEST(RowsSchedule, IsWrittenOut) {
  EXPECT_EQ(print(scheduled(test::kSumRows, {{"B", 100}, {"N", 1000}}).kernel),
            "kernel sum(s: f32[D0, D1] in, d: f32[D0] out) family row where D0 in 1..1099511627776, D1 in "
            "0..1099511627776, N0 in 0..1000000 numeric reassociate\n"
            "  a: f32[] reg\n"
            "  for bb < D0 [row] @grid:\n"
            "    for bt < 1 [row] @block:\n"
            "      a[] = 0.0\n"
            "      for nt < min(256, ceildiv(D1, 4)) [col] @block:\n"
            "        for ni < ceildiv(ceildiv(D1, 4) - nt, 256) [col]:\n"
            "          for nv < min(4, D1 - 1024*ni - 4*nt) [col] @vector:\n"
            "            a[] += s[bb, 1024*ni + 4*nt + nv]\n"
            "      d[bb] = a[] / f32(N0)\n");
}

TEST(RowsSchedule, FollowsTheShape) {
  const auto knobs = [](const std::string& n, int64_t rows, int64_t columns) {
    const auto k = scheduled(test::softmax_rows(n), {{"B", rows}, {"N", columns}}).schedule.knobs;
    return std::vector<int64_t>{k.at("threads"), k.at("rows"), k.at("longest")};
  };
  EXPECT_EQ(knobs("3", 1000, 3), (std::vector<int64_t>{1, 256, 4}));
  EXPECT_EQ(knobs("128", 1000, 128), (std::vector<int64_t>{8, 32, 128}));
  EXPECT_EQ(knobs("1024", 1000, 1024), (std::vector<int64_t>{32, 8, 1024}));
  EXPECT_EQ(knobs("1024", 3, 1024), (std::vector<int64_t>{32, 4, 1024}));
  EXPECT_EQ(knobs("4096", 1000, 4096), (std::vector<int64_t>{256, 1, 4096}));
  EXPECT_EQ(knobs("32768", 1000, 32768), (std::vector<int64_t>{1024, 1, 32768}));
  EXPECT_EQ(knobs("32772", 1000, 32772), (std::vector<int64_t>{256, 1, 0}));
  EXPECT_EQ(knobs("N", 1000, 64), (std::vector<int64_t>{16, 16, 0}));
}

// The bound on lengths is of the calls that there are, whoever wrote the knob.
TEST(RowsSchedule, AStoredBoundIsNoneOfCalls) {
  const GeneralKernel general = general_kernel(test::kernel_of(test::softmax_rows("1000")));
  Schedule schedule = scheduled(test::softmax_rows("1000"), {{"B", 7}, {"N", 1000}}).schedule;
  const auto longest = [&] {
    int64_t out = 0;
    for (const ir::Symbol& s : kernel_of_rows(general, schedule).symbols) {
      if (s.multiple_of == 4) out = s.max;  // a thousand is a multiple of it
    }
    return out;
  };
  EXPECT_EQ(longest(), 1024);
  schedule.knobs["longest"] = 4;
  EXPECT_EQ(longest(), 1000);
  schedule.knobs["longest"] = -4;
  EXPECT_EQ(longest(), int64_t{1} << 40);
  schedule.knobs["longest"] = INT64_MAX;
  EXPECT_EQ(longest(), int64_t{1} << 40);
  schedule.knobs.clear();
  EXPECT_EQ(longest(), int64_t{1} << 40);
  schedule.recipe = "launch.1";
  EXPECT_EQ(print(kernel_of_rows(general, schedule)), print(general.kernel));
}

TEST(RowsSchedule, RefusesWhatHasNoRows) {
  const auto why = [](const std::string& text) {
    const GeneralKernel general = general_kernel(test::kernel_of(text));
    return rows_schedule(general, {}).status().message();
  };
  EXPECT_EQ(why(test::kFlat), "silu has no rows that are reduced");
  EXPECT_EQ(why("kernel k(x: f32[9, 9, 9] in, y: f32[9] out)\n  for i < 9:\n    y[i] = 0.0\n    for j < 9:\n"
                "      for k < 9:\n        y[i] += x[i, j, k]\n"),
            "k is more than rows with loops in each");
}

}  // namespace
}  // namespace lathe::search
