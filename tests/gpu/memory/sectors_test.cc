// Sectors of 32 bytes that accesses of warps take: no more than their bytes fill in the Schedules that are proposed,
// where lines begin at multiples of 32 bytes; and as many as they are in those planted here.
#include <gtest/gtest.h>

#include <utility>

#include "ir/analysis/analysis.h"
#include "search/gpu/choice/device_schedules.h"
#include "search/gpu/tensor/tensor_schedule.h"
#include "tests/gpu/attention/tensor_attentions.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/rows.h"
#include "tests/gpu/tensor/tensor_products.h"

namespace lathe::test {
namespace {

TEST(Sectors, AreCountedByRequest) {
  BankLog log;
  alignas(256) static char memory[1 << 16];
  // Threads of a warp, `step` bytes apart.
  const auto access = [&](int bytes, int step, int first = 0) {
    BankCounts counts;
    for (int t = 0; t < 32; ++t) log.note_memory(t, 1, memory + first + t * step, bytes, false);
    log.finish(counts);
    EXPECT_EQ(counts.loads.requests, 1);
    EXPECT_EQ(counts.stores.requests, 0);
    return std::pair(counts.loads.sectors, counts.loads.wasted);
  };
  using Pair = std::pair<int64_t, int64_t>;
  EXPECT_EQ(access(4, 4), Pair(4, 0));
  EXPECT_EQ(access(4, 0), Pair(1, 0));  // the same element for all
  EXPECT_EQ(access(4, 8), Pair(8, 4));
  EXPECT_EQ(access(4, 128), Pair(32, 28));
  EXPECT_EQ(access(16, 16), Pair(16, 0));
  EXPECT_EQ(access(16, 64), Pair(32, 16));
  EXPECT_EQ(access(4, 4, 16), Pair(5, 1));  // it begins inside of a sector
  EXPECT_EQ(access(1, 1), Pair(1, 0));
}

BankCounts counted(const search::GeneralKernel& general, const ir::Result<search::Scheduled>& made,
                   const ir::SymbolValues& symbols) {
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? bank_conflicts(made->kernel, sizes_of(general, symbols)) : BankCounts();
}

// Columns are loaded one after another by each thread: neighbours are a row apart.
TEST(Sectors, FindWhatIsWasted) {
  const auto by_threads = [](const char* at) {
    return kernel_of(
        std::string("kernel turned(x: f32[32, 32] in, y: f32[32, 32] out) family row\n"
                    "  for b < 1 @grid:\n    for t < 32 @block:\n      for r < 32:\n        y[r, t] = x[") +
        at + "]\n");
  };
  const BankCounts bad = bank_conflicts(by_threads("t, r"), {}), good = bank_conflicts(by_threads("r, t"), {});
  EXPECT_EQ(bad.loads.requests, 32);
  EXPECT_EQ(bad.loads.sectors, 32 * 32);
  EXPECT_EQ(bad.loads.wasted, 32 * 28);
  EXPECT_EQ(bad.stores.wasted, 0);
  EXPECT_EQ(good.loads.sectors, 32 * 4);
  EXPECT_EQ(good.loads.wasted, 0);
}

class ProposedSchedules : public testing::Test {
 protected:
  void expect_none(const std::string& what, const ir::Kernel& naive, const ir::SymbolValues& symbols) {
    const search::GeneralKernel general = search::general_kernel(naive);
    const auto made =
        search::device_schedule(general, sizes_of(general, symbols), *ir::find_gpu_target("h200"), ir::kBf16Dots);
    expect_none(what, general, made, symbols);
  }
  // stores: of results as well.
  void expect_none(const std::string& what, const search::GeneralKernel& general,
                   const ir::Result<search::Scheduled>& made, const ir::SymbolValues& symbols, bool stores = true) {
    const BankCounts counts = counted(general, made, symbols);
    EXPECT_GT(counts.loads.requests, 0) << what;
    EXPECT_EQ(counts.loads.wasted, 0) << what << ", of " << counts.loads.sectors;
    if (stores) {
      EXPECT_EQ(counts.stores.wasted, 0) << what << ", of " << counts.stores.sectors;
    }
    ++emulated_;
  }
  void TearDown() override { RecordProperty("emulated", emulated_); }

 private:
  int emulated_ = 0;
};

TEST_F(ProposedSchedules, OfChainsAndRowsWasteNoSector) {
  expect_none("chain", kernel_of(kFlat), {{"N", 4096}});
  expect_none("rows", kernel_of(kRows), {{"M", 40}});
  for (const char* type : {"f32", "bf16"}) {
    for (const char* length : {"64", "1024", "N"})
      expect_none("softmax", kernel_of(softmax_rows(length, type)), {{"B", 9}, {"N", 4096}});
  }
}

TEST_F(ProposedSchedules, OfProductsWasteNoSector) {
  expect_none("few lines", kernel_of(kTurnedProduct), {{"M", 1}, {"N", 512}, {"K", 512}});
  for (const bool turned : {false, true}) {
    const search::GeneralKernel general = search::general_kernel(kernel_of(tensor_product("bf16", false, turned)));
    const ir::SymbolValues symbols = {{"M", 128}, {"N", 64}, {"K", 64}};
    // Results of bf16 lie in halves of sectors there.
    for (const search::TensorTile& t : {search::TensorTile{128, 64, 32, 32, 32, 2}, {64, 32, 64, 32, 32, 3}})
      expect_none("tensor cores", general, search::tensor_schedule(general, t), symbols, false);
  }
}

TEST_F(ProposedSchedules, OfAttentionWasteNoSector) {
  const search::GeneralKernel general = general_attention({"bf16", 4, 2, 64, 64, false});
  for (const search::AttentionTile& t : {of_queries(32, 32, 2), of_heads(16, 32, 1)})
    expect_none("attention", general, search::tensor_attention(general, t), {{"B", 1}, {"S", 32}, {"T", 96}}, false);
}

}  // namespace
}  // namespace lathe::test
