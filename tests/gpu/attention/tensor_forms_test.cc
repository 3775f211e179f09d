// Attention on tensor cores of keys and values of bytes, and of sequences of unequal numbers of queries: values stay,
// what is proven is proven, on the emulator in every order of the threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/analysis/analysis.h"
#include "search/cut/launch_cut.h"
#include "tests/gpu/attention/attention_ops.h"
#include "tests/gpu/attention/tensor_attentions.h"

namespace lathe::search {
namespace {

using ir::SymbolValues;
using test::AttentionOp;
using test::kernel_of_op;
using test::of_heads;
using test::of_queries;
using ::testing::HasSubstr;

constexpr ir::DType kF16 = ir::DType::f16, kBf16 = ir::DType::bf16;

// B sequences with S queries each, and T keys or pages of 16 of as many.
SymbolValues sizes(int64_t b, int64_t s, int64_t t) {
  return {{"B", b}, {"S", s}, {"T", t}, {"P", 3 * (t / 16) + 1}, {"N", t / 16}};
}
// R queries of B sequences, with N pages each.
SymbolValues rows(int64_t b, int64_t r, int64_t n) { return {{"B", b}, {"R", r}, {"P", 3 * n + 1}, {"N", n}}; }

struct Case {
  AttentionOp op;
  std::initializer_list<AttentionTile> tiles;
  std::initializer_list<SymbolValues> sizes;
};
void expect_attention(std::initializer_list<Case> cases) {
  int emulated = 0;
  for (const Case& c : cases) {
    const ir::Kernel naive = kernel_of_op(c.op);
    const GeneralKernel general = general_kernel(naive);
    for (const AttentionTile& tile : c.tiles) {
      const auto made = tensor_attention(general, tile);
      ASSERT_TRUE(made.ok()) << made.status().to_string() << "\n" << print(general.kernel);
      SCOPED_TRACE(to_text(made->schedule));
      // Weights with all their bits differ by the rounding of results alone.
      const double bound = tile.split ? 1e-2 : 4e-2;
      for (const SymbolValues& s : c.sizes) {
        test::expect_values_kept(naive, general, made, s, bound);
        test::expect_as_interpreted(made->kernel, test::sizes_of(general, s), test::kRoundedWeights);
        ++emulated;
      }
    }
  }
  testing::Test::RecordProperty("emulated", emulated);
}

TEST(TensorForms, KeysOfBytes) {
  expect_attention(
      {{{.bytes = true},
        {of_queries(32, 32, 1), of_queries(16, 16, 1, true), of_heads(16, 32, 1), of_heads(16, 16, 1, true, 64)},
        {sizes(2, 35, 75), sizes(1, 1, 0), sizes(1, 2, 1), sizes(2, 1, 129), sizes(1, 33, 32)}},
       {{.depth = 48, .columns = 16, .bytes = true, .causal = false, .type = kF16, .scales = kBf16},
        {of_queries(32, 32, 1), of_heads(16, 32, 1)},
        {sizes(2, 35, 75), sizes(1, 17, 31)}},
       {{.op = "paged_attention", .columns = 64, .bytes = true, .scales = kF16},
        {of_queries(32, 32, 1), of_heads(16, 32, 1), of_heads(16, 16, 1, false, 64)},
        {sizes(2, 3, 64), sizes(1, 33, 32), sizes(1, 1, 0)}},
       {{.bytes = true, .masked = true, .sinks = true},
        {of_queries(32, 32, 1, true), of_heads(16, 32, 1, true)},
        {sizes(2, 35, 75)}},
       {{.bytes = true}, {of_heads(16, 64, 1), of_heads(16, 48, 1)}, {sizes(2, 1, 150)}},
       {{.bytes = true, .window = 40}, {of_queries(16, 16, 1), of_heads(16, 16, 1)}, {sizes(2, 35, 75)}}});
}

// One sequence has all rows, or some have none.
TEST(TensorForms, UnequalSequences) {
  expect_attention(
      {{{.op = "ragged_attention"},
        {of_queries(32, 32, 2), of_queries(16, 16, 1, true), of_queries(32, 16, 3)},
        {rows(3, 50, 4), rows(1, 1, 2), rows(2, 0, 1), rows(0, 3, 1), rows(5, 33, 3), rows(1, 70, 4)}},
       {{.op = "ragged_attention", .type = kF16, .sequences = 3},
        {of_queries(32, 32, 2), of_heads(16, 16, 2)},
        {rows(3, 50, 4), rows(3, 1, 2)}},
       {{.op = "ragged_attention", .heads = 6},
        {of_heads(16, 32, 2), of_heads(16, 16, 1, true)},
        {rows(3, 5, 4), rows(1, 1, 2), rows(4, 3, 0)}},
       {{.op = "ragged_attention", .causal = false, .sinks = true},
        {of_queries(32, 32, 2), of_heads(16, 32, 2)},
        {rows(3, 40, 4)}},
       {{.op = "ragged_attention", .window = 70}, {of_queries(16, 16, 2), of_heads(16, 16, 2)}, {rows(3, 40, 8)}},
       {{.op = "ragged_attention", .masked = true}, {of_queries(32, 32, 2), of_heads(16, 32, 2)}, {rows(3, 40, 4)}},
       {{.op = "ragged_attention", .bytes = true}, {of_queries(32, 32, 1), of_heads(16, 32, 1)}, {rows(3, 40, 4)}}});
}

// Rows of a sequence are tiles of their own, from its first one on: a launch has as many blocks for each sequence as it
// may have rows, which are those of all.
TEST(TensorForms, BlocksFollowTheBoundOfOffsets) {
  const GeneralKernel general = general_kernel(kernel_of_op({.op = "ragged_attention"}));
  const auto blocks = [&](const AttentionTile& tile) {
    const auto cut = cut_launches(tensor_attention(general, tile)->kernel);
    EXPECT_EQ(cut->launches.size(), 2u);
    int64_t out = 1;
    const SymbolValues symbols = test::sizes_of(general, rows(5, 70, 2));
    for (const ir::Expr& e : cut->launches[1].grid) out *= ir::evaluate(e, symbols).value();
    return out;
  };
  EXPECT_EQ(blocks(of_queries(32, 32, 2)), 5 * 4 * 3);
  EXPECT_EQ(blocks(of_heads(16, 32, 2)), 5 * 2 * 70);
}

TEST(TensorForms, HaveNoConflictsOfBanks) {
  int64_t conflicts = 0;
  for (const AttentionOp& op : {AttentionOp{.heads = 2, .depth = 64, .columns = 64, .bytes = true, .causal = false},
                                {.heads = 2, .depth = 96, .columns = 80, .bytes = true, .causal = false},
                                {.op = "ragged_attention", .heads = 2, .depth = 64, .columns = 64, .causal = false}}) {
    const GeneralKernel general = general_kernel(kernel_of_op(op));
    for (const AttentionTile& tile : {of_queries(32, 32, 1), of_queries(32, 32, 2)}) {
      if (op.bytes && tile.stages > 1) continue;
      const auto made = tensor_attention(general, tile);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      const SymbolValues s = op.ragged() ? rows(1, 32, 6) : sizes(1, 32, 96);
      const test::BankCounts counts = test::bank_conflicts(made->kernel, test::sizes_of(general, s));
      EXPECT_GT(counts.accesses, 0);
      EXPECT_EQ(counts.conflicts, 0) << to_text(made->schedule) << ", of " << counts.accesses;
      conflicts += counts.conflicts;
    }
  }
  RecordProperty("conflicts", static_cast<int>(conflicts));
}

TEST(TensorForms, EveryBarrierOfBytesIsNeeded) {
  const GeneralKernel general =
      general_kernel(kernel_of_op({.heads = 1, .kept = 1, .depth = 16, .columns = 16, .bytes = true}));
  const auto made = tensor_attention(general, of_queries(32, 32, 1));
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  test::expect_each_needed(*made, test::sizes_of(general, sizes(1, 32, 70)), {jit::DeviceStmt::Kind::barrier});
}

TEST(TensorForms, RefuseWhatTheyAreNotFor) {
  const auto why = [](const AttentionOp& op, const AttentionTile& tile) {
    return tensor_attention(general_kernel(kernel_of_op(op)), tile).status().message();
  };
  EXPECT_THAT(why({.bytes = true}, of_queries(32, 32, 2)), HasSubstr("2 stages of keys of bytes"));
  EXPECT_THAT(why({.bytes = true, .type = kF16}, of_queries(32, 32, 1, true)), HasSubstr("not bf16 in three numbers"));
  EXPECT_THAT(why({.bytes = true, .type = ir::DType::f32}, of_queries(32, 32, 1)), HasSubstr("values of bf16"));
  EXPECT_THAT(why({.op = "ragged_attention"}, of_heads(16, 16, 1, false, 64)),
              HasSubstr("parts of keys of unequal sequences"));
}

}  // namespace
}  // namespace lathe::search
