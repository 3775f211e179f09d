// Candidates of a GPU: the text of each, as stores and workers get it, makes the same Kernel again.
#include "search/gpu/choice/device_candidates.h"

#include <gtest/gtest.h>

#include "ir/analysis/analysis.h"
#include "search/cut/safe_kernel.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/rows.h"

namespace lathe::search {
namespace {

using ir::SymbolValues;

const char kTurn[] =
    "kernel turn(s: f32[B, A] in, d: f32[A, B] out) family transpose where A in 0..999, B in 0..999\n"
    "  for i < A [row]:\n    for j < B [col]:\n      d[i, j] = s[j, i]\n";

// recipe: of the first one.
void expect_replayed(const std::string& text, const SymbolValues& symbols, const std::string& recipe) {
  SCOPED_TRACE(text);
  const GeneralKernel general = general_kernel(test::kernel_of(text));
  SymbolValues sizes;
  for (const auto& [name, size] : general.sizes) sizes.emplace_back(name, ir::evaluate(size, symbols).value());
  const auto ranked = device_candidates(general, sizes, *ir::find_gpu_target("h200"), 9);
  ASSERT_TRUE(ranked.ok()) << ranked.status().to_string();
  EXPECT_EQ(ranked->front().schedule.recipe, recipe);
  for (const Scheduled& made : *ranked) {
    const auto read = parse_schedule(to_text(made.schedule));
    ASSERT_TRUE(read.ok()) << read.status().to_string();
    const auto again = replay_on_device(general, *read);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(print(again->kernel), print(made.kernel));
    EXPECT_EQ(to_text(again->schedule), to_text(made.schedule));
    EXPECT_TRUE(check_safe(general.kernel, again->kernel).ok());
  }
}

TEST(DeviceCandidates, ChosenWeightsOfFewBitsAreReplayed) {
  expect_replayed(
      "kernel chosen(a: f32[T, 1, 64] in, d: f16[3, 40, 2] in, q: i8[3, 40, 64] in, ids: i32[T] in values 0..3 - 1, "
      "y: f32[T, 1, 40] out) family quantised where T in 1..99\n  c: f32[T, 1, 40] heap\n"
      "  for t < T [batch]:\n    for m < 1 [m]:\n      for n < 40 [n]:\n        c[t, m, n] = 0.0\n"
      "        for k < 64 [k]:\n"
      "          c[t, m, n] += a[t, m, k] * (f32(d[i64(ids[t]), n, k // 32]) * f32(q[i64(ids[t]), n, k]))\n"
      "        y[t, m, n] = c[t, m, n]\n",
      {{"T", 5}}, "decoded_lines.1");
}

TEST(DeviceCandidates, ChainsAreReplayed) {
  expect_replayed(test::kFlat, {{"N", 1003}}, "launch.1");
  expect_replayed(test::kRows, {{"M", 77}}, "launch.1");
  expect_replayed(test::kTurned, {{"A", 64}, {"B", 7}, {"C", 31}}, "launch.1");
}

TEST(DeviceCandidates, RowsAreReplayed) {
  for (const int64_t n : {1, 3, 128, 129, 1000, 4097, 32768, 70000}) {
    for (const std::string& length : {std::to_string(n), std::string("N")}) {
      expect_replayed(test::softmax_rows(length), {{"B", 129}, {"N", n}}, "rows.1");
      expect_replayed(test::layernorm_rows(length), {{"B", 5}, {"N", n}}, "rows.1");
    }
    expect_replayed(test::kSumRows, {{"B", 5}, {"N", n}}, "rows.1");
  }
}

TEST(DeviceCandidates, ProductsAreReplayed) {
  for (const char* text : {test::kProduct, test::kTurnedProduct}) {
    expect_replayed(text, {{"M", 512}, {"N", 768}, {"K", 300}}, "tiles.1");
    expect_replayed(text, {{"M", 1}, {"N", 768}, {"K", 300}}, "lines.1");
    expect_replayed(text, {{"M", 768}, {"N", 5}, {"K", 301}}, "lines.1");
  }
}

// Two loops of columns in a row, as rope has, narrower and wider than a block's threads, under one scope of rows and
// two.
TEST(DeviceCandidates, ColumnsAreReplayed) {
  for (const int64_t half : {1, 3, 64, 1000}) {
    const std::string loops = fmt::format(
        "p < {0} [col]:\n{{1}}  y[{{0}}p] = x[{{0}}p] - x[{{0}}p + {0}]\n{{1}}  y[{{0}}p + {0}] = x[{{0}}p] + x[{{0}}p "
        "+ {0}]\n"
        "{{1}}for q < R [col]:\n{{1}}  y[{{0}}q + {1}] = x[{{0}}q + {1}]\n",
        half, 2 * half);
    const auto rows = [&](const std::string& dims, const std::string& scopes, const std::string& at,
                          const std::string& indent) {
      return fmt::format(
          "kernel turn(x: f32[{0}{1} + R] in, y: f32[{0}{1} + R] out) family rope where B in 0..9, "
          "T in 0..5000, R in 1..999\n{2}{3}for {4}",
          dims, 2 * half, scopes, indent, fmt::format(fmt::runtime(loops), at, indent));
    };
    for (const int64_t rest : {1, 37}) {
      expect_replayed(rows("T, ", "  for t < T [row]:\n", "t, ", "    "), {{"B", 2}, {"T", 300}, {"R", rest}},
                      "columns.1");
      expect_replayed(rows("B, T, ", "  for b < B [row]:\n    for t < T [row]:\n", "b, t, ", "      "),
                      {{"B", 2}, {"T", 3}, {"R", rest}}, "columns.1");
    }
  }
}

TEST(DeviceCandidates, TransposesAreReplayed) { expect_replayed(kTurn, {{"A", 65}, {"B", 96}}, "squares.1"); }

}  // namespace
}  // namespace lathe::search
