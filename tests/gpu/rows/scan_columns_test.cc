// Sums up to each element along any axis: what the emulator makes of them is what the interpreter does, for many
// columns and for few, and the real compiler takes them.
#include "search/gpu/rows/scan_columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/gpu/emulated.h"
#include "tests/gpu/integers/integer_kernels.h"

namespace lathe::test {
namespace {

// Along the dimension N, with what ops fuses: factors of elements, of steps and of columns, and a bias.
std::string columns(const std::string& type) {
  const std::string x = type == "f32" ? "s[b, n, m]" : "f32(s[b, n, m])";
  const std::string y = "a[b, m] + h[m]", z = type == "f32" ? y : type + "(" + y + ")";
  return "kernel cumsum(s: " + type + "[B, N, C] in, e: f32[B, N, C] in, g: f32[N] in, h: f32[C] in, d: " + type +
         "[B, N, C] out) family scan where B in 0..65536, N in 0..65536, C in 0..65536\n"
         "  a: f32[B, C] heap\n"
         "  for b < B [row]:\n    for c < C [clear]:\n      a[b, c] = 0.0\n    for n < N:\n      for m < C [col]:\n"
         "        a[b, m] += " +
         x + " * e[b, n, m] * g[n]\n        d[b, n, m] = " + z + "\n";
}
const char kTwoBehind[] =
    "kernel cumsum(s: f32[1, N, B, C] in, d: f32[1, N, B, C] out) family scan where N in 0..65536, B in 0..65536, "
    "C in 0..65536\n"
    "  a: f32[1, B, C] heap\n"
    "  for b < 1 [row]:\n    for c0 < B:\n      for c1 < C [clear]:\n        a[b, c0, c1] = 0.0\n    for n < N:\n"
    "      for m0 < B:\n        for m1 < C [col]:\n          a[b, m0, m1] += s[b, n, m0, m1]\n"
    "          d[b, n, m0, m1] = a[b, m0, m1]\n";

// B, N, C: one over and under the rows of a turn, the vectors and the columns of a block.
constexpr std::array<int64_t, 3> kSizes[] = {{0, 3, 5}, {3, 0, 5},  {2, 3, 0},  {1, 1, 1},   {3, 7, 4},
                                             {2, 8, 5}, {9, 9, 33}, {1, 97, 8}, {1, 9, 1027}};

void expect_as_interpreted_everywhere(const std::string& text) {
  const search::GeneralKernel general = search::general_kernel(kernel_of(text));
  // Vectors of columns, columns, and rows.
  for (const ir::SymbolValues& hint : {ir::SymbolValues{{"B", 64}, {"N", 1000}, {"C", 1024}},
                                       {{"B", 5}, {"N", 1000}, {"C", 1001}},
                                       {{"B", 300}, {"N", 50}, {"C", 17}},
                                       {{"B", 1}, {"N", 9000}, {"C", 7}}}) {
    if (text == columns("bf16") && hint.at("B") == 5) continue;
    const auto made = best_of(general, hint);
    ASSERT_TRUE(made.ok()) << made.status().to_string() << text;
    const bool few = hint.at("B") * hint.at("C") < 4096;
    EXPECT_EQ(made->schedule.recipe, few ? "scan.1" : "scan_columns.1");
    const auto again = search::replay_on_device(general, made->schedule);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(print(again->kernel), print(made->kernel));
    for (const auto& [b, n, c] : kSizes) {
      if (few && c > 33) continue;  // a block for each
      expect_as_interpreted(made->kernel, sizes_of(general, {{"B", b}, {"N", n}, {"C", c}}), few ? 1e-5 : 0);
    }
  }
}
TEST(ScanColumns, OfF32AreWhatTheInterpreterSays) { expect_as_interpreted_everywhere(columns("f32")); }
TEST(ScanColumns, OfBf16AreWhatTheInterpreterSays) { expect_as_interpreted_everywhere(columns("bf16")); }
TEST(ScanColumns, OfTwoDimensionsAreWhatTheInterpreterSays) { expect_as_interpreted_everywhere(kTwoBehind); }

// The values of the naive Kernel.
TEST(ScanColumns, KeepTheValues) {
  for (const std::string& text : {columns("f32"), std::string(kTwoBehind)}) {
    const ir::Kernel naive = kernel_of(text);
    const search::GeneralKernel general = search::general_kernel(naive);
    for (const ir::SymbolValues& s : {ir::SymbolValues{{"B", 2}, {"N", 13}, {"C", 6}},
                                      {{"B", 1}, {"N", 8}, {"C", 1}},
                                      {{"B", 3}, {"N", 7}, {"C", 2048}}})
      expect_values_kept(naive, general, best_of(general, s), s, 1e-5);
  }
}

TEST(ScanColumns, RefusesWhatHasNone) {
  const auto why = [](const std::string& text) { return search::column_sums(kernel_of(text)).status().message(); };
  using ::testing::HasSubstr;
  EXPECT_THAT(why(kCumsum), HasSubstr("expected a start and a loop in each row"));
  std::string other = columns("f32");
  other.replace(other.find("for c < C"), 9, "for c < B");
  EXPECT_THAT(why(other), HasSubstr("sums of other columns start"));
}

class ColumnMatrix : public KernelMatrix {};
TEST_P(ColumnMatrix, CompilesWithoutSpills) {
  compile_all({{columns("f32"), {{"B", 64}, {"N", 1000}, {"C", 1024}}, 16},
               {columns("bf16"), {{"B", 64}, {"N", 1000}, {"C", 1024}}, 8},
               {columns("f32"), {{"B", 1}, {"N", 9000}, {"C", 7}}},
               {kTwoBehind, {{"B", 64}, {"N", 1000}, {"C", 1024}}, 8}});
}
INSTANTIATE_TEST_SUITE_P(Gpus, ColumnMatrix, testing::Values("a100", "l40s", "h200", "rtx5090"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lathe::test
