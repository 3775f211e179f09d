// Accesses of shared memory by a warp go to different banks: in the Schedules that are proposed, not in those planted
// here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/analysis/analysis.h"
#include "search/gpu/general_kernel.h"
#include "search/gpu/product_schedule.h"
#include "search/gpu/rows/transpose_schedule.h"
#include "search/gpu/tensor/tensor_schedule.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/tensor/tensor_products.h"

namespace lathe::test {
namespace {

// 32 x 32 elements turned round: rows are stored, columns are loaded.
std::string turned(const std::string& padding) {
  return "kernel turned(x: f32[32, 32] in, y: f32[32, 32] out) family row\n  s: f32[32, 32] shared" + padding +
         "\n  for b < 1 @grid:\n    for t < 32 @block:\n      for r < 32:\n        s[r, t] = x[r, t]\n"
         "    for u < 32 @block:\n      for q < 32:\n        y[q, u] = s[u, q]\n";
}

TEST(Banks, CountsPassesOfWarps) {
  BankLog log;
  BankCounts counts;
  static float memory[4096];
  const auto access = [&](int bytes, int step) {
    counts = {};
    for (int t = 0; t < 32; ++t) log.note(t, 1, memory + t * step, bytes);
    log.finish(counts);
    EXPECT_EQ(counts.accesses, 1);
    return counts.conflicts;
  };
  EXPECT_EQ(access(4, 1), 0);
  EXPECT_EQ(access(4, 0), 0);  // the same word for all
  EXPECT_EQ(access(4, 2), 1);
  EXPECT_EQ(access(4, 32), 31);
  EXPECT_EQ(access(4, 33), 0);
  EXPECT_EQ(access(8, 2), 0);
  EXPECT_EQ(access(8, 4), 2);  // by halves
  EXPECT_EQ(access(16, 4), 0);
  EXPECT_EQ(access(16, 8), 4);  // by quarters
  EXPECT_EQ(access(16, 36), 0);
  // What other warps do, or the same one at another time, is no part of it.
  for (int w = 0; w < 2; ++w) {
    for (int time = 0; time < 2; ++time) {
      for (int t = 0; t < 32; ++t) log.note(32 * w + t, 1, memory + 32 * time + t, 4);
    }
  }
  counts = {};
  log.finish(counts);
  EXPECT_EQ(counts.accesses, 4);
  EXPECT_EQ(counts.conflicts, 0);
}

TEST(Banks, FindsPlantedConflicts) {
  const BankCounts bad = bank_conflicts(kernel_of(turned("")), {}),
                   good = bank_conflicts(kernel_of(turned(" pad [1, 33]")), {});
  EXPECT_EQ(bad.accesses, 64);
  EXPECT_EQ(bad.conflicts, 32 * 31);
  EXPECT_EQ(good.accesses, 64);
  EXPECT_EQ(good.conflicts, 0);
}

TEST(Banks, ProposedSchedulesHaveNoConflicts) {
  int64_t conflicts = 0;
  const auto look = [&](const std::string& what, const ir::Kernel& scheduled, const ir::SymbolValues& symbols) {
    const BankCounts counts = bank_conflicts(scheduled, symbols);
    EXPECT_GT(counts.accesses, 0) << what;
    EXPECT_EQ(counts.conflicts, 0) << what << ", of " << counts.accesses;
    conflicts += counts.conflicts;
  };
  using search::ProductTile;
  for (const char* text : {kProduct, kTurnedProduct}) {
    const auto general = search::general_kernel(kernel_of(text));
    for (const ProductTile& t : {ProductTile{128, 128, 8, 8, 8},
                                 {128, 128, 16, 8, 8, 0, true},
                                 {128, 64, 16, 8, 4},
                                 {64, 64, 16, 4, 4},
                                 {64, 128, 8, 4, 8},
                                 {32, 32, 32, 4, 4},
                                 {16, 64, 32, 2, 4}}) {
      const ir::SymbolValues sizes = sizes_of(general, {{"M", t.rows}, {"N", t.columns}, {"K", 2 * t.depth}});
      const auto scheduled = search::product_schedule(general, t);
      ASSERT_TRUE(scheduled.ok()) << scheduled.status().to_string();
      look(std::string(text == kProduct ? "" : "turned ") + std::to_string(t.rows) + "x" + std::to_string(t.columns) +
               "x" + std::to_string(t.depth) + " " + std::to_string(t.thread_rows) + "x" +
               std::to_string(t.thread_columns),
           scheduled->kernel, sizes);
    }
  }
  for (const bool turn_a : {false, true}) {
    for (const bool turn_b : {false, true}) {
      const auto general = search::general_kernel(kernel_of(tensor_product("bf16", turn_a, turn_b)));
      for (const search::TensorTile& t : {search::TensorTile{32, 32, 32, 16, 32},
                                          {128, 64, 32, 32, 32, 2},
                                          {64, 32, 64, 32, 32, 2},
                                          {32, 16, 32, 16, 16, 2, true},
                                          {32, 8, 64, 16, 8, 2},
                                          {32, 8, 32, 16, 8, 3, true}}) {
        const int64_t m = t.swapped ? t.columns : t.rows, n = t.swapped ? t.rows : t.columns;
        const ir::SymbolValues sizes = sizes_of(general, {{"M", m}, {"N", n}, {"K", 2 * t.depth}});
        const auto scheduled = search::tensor_schedule(general, t);
        ASSERT_TRUE(scheduled.ok()) << scheduled.status().to_string();
        look("tensor cores, " + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(t.depth) +
                 (turn_a ? " a" : "") + (turn_b ? " b" : ""),
             scheduled->kernel, sizes);
      }
    }
  }
  const auto turn = search::general_kernel(
      kernel_of("kernel turn(s: f32[A, B] in, d: f32[B, A] out) family transpose where A in 0..999, B in 0..999\n"
                "  for i < B [row]:\n    for j < A [col]:\n      d[i, j] = s[j, i]\n"));
  look("transpose", search::transpose_schedule(turn, {})->kernel, sizes_of(turn, {{"A", 64}, {"B", 64}}));
  RecordProperty("conflicts", static_cast<int>(conflicts));
}

}  // namespace
}  // namespace lathe::test
