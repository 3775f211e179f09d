// Attention on tensor cores, in tiles of queries and of the heads that share keys, with masks and windows: values stay,
// what is proven is proven, on the emulator in every order of the threads.
#include "search/gpu/attention/tensor_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/meaning/interpreter.h"
#include "tests/gpu/attention/tensor_attentions.h"

namespace lathe::search {
namespace {

using ir::SymbolValues;
using test::attention_text;
using test::AttentionText;
using test::expect_attention;
using test::general_attention;
using test::of_heads;
using test::of_queries;
using Mask = AttentionText::Mask;
using ::testing::HasSubstr;

// Pages are used by forms that have them.
SymbolValues sizes(int64_t b, int64_t s, int64_t t, int64_t n = 0) {
  return {{"B", b}, {"S", s}, {"T", t}, {"P", 3 * n + 1}, {"N", n}};
}

TEST(TensorAttention, OfQueries) {
  expect_attention(
      {{{"bf16", 4, 2, 64, 64},
        {of_queries(32, 32, 2), of_queries(16, 16, 1), of_queries(32, 16, 3, true)},
        {sizes(2, 35, 75), sizes(1, 1, 31), sizes(1, 33, 0), sizes(1, 40, 32), sizes(1, 2, 1)}},
       {{"f16", 3, 3, 16, 32, false},
        {of_queries(32, 32, 2), of_queries(16, 16, 1)},
        {sizes(2, 35, 75), sizes(1, 1, 0), sizes(1, 19, 17)}},
       {{"bf16", 2, 2, 32, 16, true, 0, true}, {of_queries(32, 16, 2)}, {sizes(2, 35, 75), sizes(1, 33, 1)}},
       {{"bf16", 2, 1, 144, 48, true, 0, false, true},
        {of_queries(32, 32, 2), of_queries(16, 16, 1), of_queries(32, 16, 2, true)},
        {sizes(2, 35, 0, 3), sizes(1, 1, 0, 2), sizes(1, 33, 0, 0)}}});
}

TEST(TensorAttention, OfHeads) {
  expect_attention({{{"bf16", 8, 2, 64, 64},
                     {of_heads(16, 32, 2), of_heads(32, 16, 1, false, 32), of_heads(16, 16, 3, true, 64)},
                     {sizes(2, 1, 75), sizes(1, 2, 31), sizes(1, 1, 0), sizes(1, 3, 129), sizes(1, 2, 1)}},
                    {{"f16", 7, 1, 16, 32, false},
                     {of_heads(16, 32, 2), of_heads(16, 16, 2, false, 48)},
                     {sizes(2, 1, 75), sizes(1, 1, 32)}},
                    {{"bf16", 20, 1, 32, 16, true, 0, true},
                     {of_heads(16, 32, 2), of_heads(32, 16, 1, false, 32)},
                     {sizes(2, 1, 75), sizes(1, 2, 31)}},
                    {{"bf16", 8, 2, 144, 48, true, 0, false, true},
                     {of_heads(16, 32, 2), of_heads(16, 16, 2, true, 48)},
                     {sizes(2, 1, 0, 3), sizes(1, 2, 0, 2), sizes(1, 1, 0, 0)}}});
}

// The deepest heads, and groups of heads that fill no tile, or several.
TEST(TensorAttention, OfDeepHeadsAndOddGroups) {
  expect_attention({{{"bf16", 5, 1, 256, 256}, {of_heads(16, 32, 2), of_queries(16, 16, 1)}, {sizes(1, 2, 40)}},
                    {{"bf16", 17, 1, 16, 240, true, 0, true}, {of_heads(16, 16, 2)}, {sizes(2, 1, 37)}},
                    {{"f16", 39, 3, 240, 16, false}, {of_heads(16, 16, 2, false, 48)}, {sizes(1, 1, 100)}},
                    {{"bf16", 71, 1, 64, 64, true, 0, true}, {of_heads(64, 16, 2)}, {sizes(1, 1, 50)}}});
}

AttentionText masked(Mask mask, bool causal, bool pages = false, const char* type = "bf16") {
  return {type, 4, 2, 32, 16, causal, 0, false, pages, mask};
}

TEST(TensorAttention, WithMasks) {
  expect_attention({{masked(Mask::queries, true),
                     {of_queries(32, 32, 1), of_queries(32, 16, 2), of_heads(16, 16, 3, true, 64)},
                     {sizes(2, 1, 75), sizes(1, 35, 33), sizes(1, 2, 0)}},
                    {masked(Mask::heads, false, false, "f16"),
                     {of_queries(32, 16, 3), of_heads(16, 32, 2)},
                     {sizes(2, 1, 75), sizes(1, 35, 33), sizes(1, 2, 0)}},
                    {masked(Mask::keys, true, true),
                     {of_queries(32, 32, 2), of_heads(16, 64, 1), of_heads(16, 16, 2, true, 48)},
                     {sizes(2, 1, 0, 4), sizes(1, 35, 0, 2), sizes(1, 2, 0, 0)}},
                    {masked(Mask::narrow_keys, true), {of_queries(32, 16, 3)}, {sizes(2, 35, 75), sizes(1, 2, 0)}}});
}

AttentionText window(bool causal, int64_t keys, bool lengths = false, bool pages = false, Mask mask = Mask::none) {
  return {"bf16", 4, 2, 32, 16, causal, keys, lengths, pages, mask};
}

TEST(TensorAttention, WithWindows) {
  expect_attention({{window(true, 9),
                     {of_queries(32, 16, 2), of_queries(32, 32, 1, true)},
                     {sizes(2, 35, 135), sizes(1, 40, 20), sizes(1, 1, 0), sizes(1, 17, 17)}},
                    {window(false, 40),
                     {of_queries(32, 16, 2), of_heads(16, 16, 2)},
                     {sizes(1, 35, 135), sizes(1, 40, 20), sizes(1, 1, 0), sizes(1, 1, 40)}},
                    {window(true, 40, true),
                     {of_queries(32, 16, 2), of_heads(16, 16, 1, false, 32)},
                     {sizes(2, 3, 135), sizes(1, 33, 39), sizes(1, 1, 0)}},
                    {window(true, 40, false, true),
                     {of_queries(32, 16, 2), of_heads(16, 16, 2)},
                     {sizes(2, 19, 0, 8), sizes(1, 33, 0, 2), sizes(1, 1, 0, 0)}},
                    {window(true, 40, false, false, Mask::queries),
                     {of_queries(32, 16, 2), of_heads(16, 16, 1)},
                     {sizes(1, 35, 70), sizes(1, 3, 1)}}});
}

// Whole tiles and blocks, and others.
TEST(TensorAttention, OfKnownSizes) {
  int emulated = 0;
  const std::pair<test::FixedSizes, AttentionTile> cases[] = {
      {{1, 64, 64}, of_queries(32, 32, 2)}, {{2, 64, 64, false}, of_queries(32, 32, 1)},
      {{1, 33, 64}, of_queries(32, 32, 2)}, {{1, 32, 70}, of_queries(32, 32, 1, true)},
      {{2, 1, 128}, of_heads(16, 32, 2)},   {{1, 1, 256, false}, of_heads(16, 32, 2, true, 128)},
      {{1, 1, 99}, of_heads(16, 32, 1)},    {{1, 8, 256}, of_heads(16, 32, 2, false, 128)}};
  for (const auto& [sizes, tile] : cases) {
    const ir::Kernel naive = test::fixed_attention(sizes);
    const GeneralKernel general = general_kernel(naive);
    const auto made = tensor_attention(general, tile);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    SCOPED_TRACE(to_text(made->schedule));
    test::expect_values_kept(naive, general, made, {}, test::kRoundedWeights);
    test::expect_as_interpreted(made->kernel, test::sizes_of(general, {}), test::kRoundedWeights);
    ++emulated;
  }
  RecordProperty("emulated", emulated);
}

// A block of keys that no query of a tile sees is not read: what it has does not matter, even if it is NaN.
TEST(TensorAttention, SkipsWhatLiesOutsideOfAWindow) {
  const GeneralKernel general = general_attention(window(true, 40));
  const auto made = tensor_attention(general, of_queries(16, 16, 2));
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const SymbolValues symbols = test::sizes_of(general, sizes(1, 16, 300));
  test::Tensors tensors = test::inputs_of(made->kernel, symbols);
  for (const char* name : {"k", "v"}) {
    ir::Tensor& t = tensors[name];
    const auto line = static_cast<size_t>(t.dims.back()), keys = static_cast<size_t>(t.dims[2]);
    for (size_t at = 0; at < t.data.size(); ++at) {
      // The first of 16 queries sees 40 keys up to number 284.
      if (at / line % keys < 284 - 39) t.data[at] = std::numeric_limits<double>::quiet_NaN();
    }
  }
  test::emulate(made->kernel, symbols, tensors);
  for (const double y : tensors["y"].data) ASSERT_TRUE(std::isfinite(y));
}

AttentionText small() { return {"bf16", 4, 1, 32, 16}; }

TEST(TensorAttention, EveryWaitOfQueriesIsNeeded) {
  test::expect_each_wait_needed(small(), of_queries(32, 32, 2), sizes(1, 32, 135));
}
TEST(TensorAttention, EveryWaitOfHeadsIsNeeded) {
  test::expect_each_wait_needed(small(), of_heads(16, 32, 2), sizes(1, 1, 135));
}

TEST(TensorAttention, EveryWaitWithAMaskIsNeeded) {
  test::expect_each_wait_needed({"bf16", 2, 1, 16, 16, true, 0, false, false, Mask::keys}, of_queries(32, 32, 3),
                                sizes(1, 32, 135));
}

TEST(TensorAttention, HasNoConflictsOfBanks) {
  test::expect_no_conflicts(
      {{{"bf16", 1, 1, 64, 64, false}, {of_queries(32, 32, 1), of_queries(32, 32, 2)}, {sizes(1, 32, 96)}},
       {{"bf16", 1, 1, 96, 80, false}, {of_queries(32, 32, 1), of_queries(32, 32, 2)}, {sizes(1, 32, 96)}},
       {{"bf16", 1, 1, 128, 128, false}, {of_queries(32, 32, 2)}, {sizes(1, 32, 96)}},
       {{"bf16", 1, 1, 144, 16, false}, {of_queries(32, 32, 2)}, {sizes(1, 32, 96)}},
       {{"bf16", 4, 1, 64, 96, false}, {of_heads(16, 32, 2), of_heads(16, 32, 3, true, 128)}, {sizes(1, 1, 200)}},
       {{"bf16", 4, 1, 80, 128, false}, {of_heads(16, 32, 2)}, {sizes(1, 1, 200)}},
       {masked(Mask::queries, false), {of_queries(32, 32, 1)}, {sizes(1, 32, 96)}},
       {masked(Mask::keys, false), {of_queries(32, 32, 2)}, {sizes(1, 32, 96)}},
       {window(true, 40), {of_queries(32, 32, 2)}, {sizes(1, 32, 96)}}});
}

// A block has all heads that share keys, and a part of these, so each key is read once.
TEST(TensorAttention, KeysAreReadOnce) {
  AttentionText cache;
  cache.lengths = true;
  const GeneralKernel general = general_attention(cache);
  const auto made = tensor_attention(general, of_heads(16, 32, 2, false, 256));
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const auto cut = cut_launches(made->kernel);
  ASSERT_TRUE(cut.ok());
  ASSERT_EQ(cut->launches.size(), 2u);
  const SymbolValues symbols = test::sizes_of(general, sizes(3, 1, 1000));
  int64_t blocks = 1;
  for (const ir::Expr& e : cut->launches[0].grid) blocks *= ir::evaluate(e, symbols).value();
  EXPECT_EQ(blocks, 3 * 2 * 4);
}

// All bits of a weight take part where it is split: results are those of f32 weights.
TEST(TensorAttention, SplitWeightsAreExact) {
  std::string text = attention_text({"bf16", 2, 1, 16, 16});
  text.replace(text.find("y: bf16["), 7, "y: f32");
  text.replace(text.find("= bf16(o["), 6, "= ");
  const ir::Kernel naive = test::kernel_of(text);
  const GeneralKernel general = general_kernel(naive);
  const SymbolValues s = sizes(1, 40, 90);
  const auto made = tensor_attention(general, of_queries(32, 16, 2, true));
  test::expect_values_kept(naive, general, made, s, 1e-5);
  test::expect_as_interpreted(made->kernel, test::sizes_of(general, s), 1e-5);
}

TEST(TensorAttention, RefusesWhatItIsNotFor) {
  const auto why = [](const AttentionText& a, const AttentionTile& tile = {}) {
    return tensor_attention(general_attention(a), tile).status().message();
  };
  EXPECT_THAT(why({"f32", 2, 2, 64, 64}), HasSubstr("queries, keys and values of bf16, or of f16"));
  EXPECT_THAT(why({"bf16", 2, 2, 72, 64}), HasSubstr("whole squares, up to 256"));
  EXPECT_THAT(why({"bf16", 2, 2, 64, 512}), HasSubstr("whole squares, up to 256"));
  EXPECT_THAT(tensor_attention(general_kernel(test::kernel_of(test::kFlat)), {}).status().message(),
              HasSubstr("expected its loops"));
  const AttentionText whole = {"bf16", 4, 1, 64, 64};
  EXPECT_THAT(why(whole, of_queries(40, 64, 2)), HasSubstr("40 queries of a block, expected a multiple of 16"));
  EXPECT_THAT(why(whole, of_queries(0, 64, 2)), HasSubstr("0 queries of a block"));
  EXPECT_THAT(why(whole, of_queries(64, 24, 2)), HasSubstr("24 keys of a block, expected a multiple of 16"));
  EXPECT_THAT(why(whole, of_queries(64, 64, 5)), HasSubstr("5 stages, expected 1..4"));
  EXPECT_THAT(why(whole, of_queries(512, 512, 4)), HasSubstr("bytes of shared memory"));
  EXPECT_THAT(why({"bf16", 4, 4, 64, 64}, of_heads(16, 64, 2)), HasSubstr("each of which has keys of its own"));
  EXPECT_THAT(why(whole, {16, 64, 2, false, false, 256}), HasSubstr("expected those of heads"));
  EXPECT_THAT(why(whole, of_heads(16, 64, 2, false, 100)), HasSubstr("parts of 100 keys, expected whole blocks of 64"));
  EXPECT_THAT(why(whole, of_heads(16, 64, 2, false, -64)), HasSubstr("parts of -64 keys"));
  EXPECT_THAT(why(whole, of_heads(16, 64, 2, false, 128)), HasSubstr("expected more blocks than stages"));
  EXPECT_THAT(why({"bf16", 4, 1, 64, 64, false, 0, true}, of_heads(16, 64, 2, false, 8192)),
              HasSubstr("a query sees at most 8192"));
  EXPECT_THAT(why(window(true, 9), of_heads(16, 16, 1)), HasSubstr("where a tile sees at most 9"));
  EXPECT_THAT(why(window(true, 9), of_queries(16, 32, 1)), HasSubstr("where a tile sees at most 24"));
}

}  // namespace
}  // namespace lathe::search
