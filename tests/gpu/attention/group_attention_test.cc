// Attention of groups of four warps, which hold queries and weights and read keys and values out of a ring of boxes:
// values stay, what is proven is proven, on the emulator in every order of the threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/cuda/text/cuda_text.h"
#include "search/gpu/attention/attention_tiles.h"
#include "search/gpu/attention/tensor_attention.h"
#include "tests/gpu/attention/tensor_attentions.h"

namespace lathe::search {
namespace {

using ir::SymbolValues;
using test::AttentionText;
using test::expect_attention;
using test::general_attention;
using test::of_groups;
using Kind = jit::DeviceStmt::Kind;
using ::testing::HasSubstr;

SymbolValues sizes(int64_t b, int64_t s, int64_t t) { return {{"B", b}, {"S", s}, {"T", t}, {"P", 1}, {"N", 0}}; }

TEST(GroupAttention, OfAnySizes) {
  expect_attention({{{"bf16", 2, 1, 64, 64}, {of_groups(64, 64, 2)}, {sizes(1, 65, 1), sizes(1, 3, 126)}},
                    {{"bf16", 1, 1, 64, 64, false}, {of_groups(64, 64, 3)}, {sizes(1, 1, 193), sizes(1, 64, 0)}},
                    {{"f16", 1, 1, 64, 128, false}, {of_groups(64, 64, 2)}, {sizes(1, 63, 64)}}});
}

TEST(GroupAttention, OfKnownSizes) {
  int emulated = 0;
  struct Case {
    test::FixedSizes sizes;
    int64_t depth;
    AttentionTile tile;
  };
  const Case cases[] = {{{1, 128, 128}, 64, of_groups(64, 64, 2)},
                        {{1, 64, 192, false}, 64, of_groups(64, 64, 2)},
                        {{1, 64, 192}, 64, of_groups(64, 64, 3)},
                        {{1, 80, 131}, 64, of_groups(64, 64, 2, true)}};
  for (const auto& [sizes, depth, tile] : cases) {
    const ir::Kernel naive = test::fixed_attention(sizes, depth);
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

TEST(GroupAttention, WithMasks) {
  const AttentionText masked = {"bf16", 1, 1, 64, 64, true, 0, false, false, AttentionText::Mask::queries};
  expect_attention({{masked, {of_groups(64, 64, 2)}, {sizes(1, 5, 100)}}});
}

TEST(GroupAttention, EveryFenceAndWaitIsNeeded) {
  const ir::Kernel naive = test::fixed_attention({1, 64, 256}, 64);
  const GeneralKernel general = general_kernel(naive);
  const auto made = tensor_attention(general, of_groups(64, 64, 2));
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  test::expect_each_needed(*made, test::sizes_of(general, {}),
                           {Kind::fence_sums, Kind::commit_products, Kind::await_ring, Kind::expect});
}

// Blocks of the last tiles, which see most keys, are the first ones.
TEST(GroupAttention, LongestTilesComeFirst) {
  const GeneralKernel general = general_kernel(test::fixed_attention({1, 192, 192}, 64));
  const auto made = tensor_attention(general, of_groups(64, 64, 2));
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const auto cut = cut_launches(made->kernel);
  ASSERT_TRUE(cut.ok());
  EXPECT_TRUE(ir::is_const_int(cut->launches[0].grid[0], 3));
  const auto program = jit::lower_device(cut->leaves[0]);
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  EXPECT_THAT(print(*program), HasSubstr("max(3 - 1 - "));
}

TEST(GroupAttention, SaysWhatItDoesNotTake) {
  const auto why = [](const AttentionText& a, const AttentionTile& t) {
    return tensor_attention(general_attention(a), t).status().message();
  };
  EXPECT_THAT(why({"bf16", 1, 1, 32, 64}, of_groups(64, 64, 2)), HasSubstr("whole lines of 64"));
  EXPECT_THAT(why({"bf16", 1, 1, 64, 64}, of_groups(32, 64, 2)), HasSubstr("32 queries and 64 keys of groups"));
  EXPECT_THAT(why({"bf16", 1, 1, 64, 64}, of_groups(64, 64, 1)), HasSubstr("1 stages of boxes"));
  EXPECT_THAT(why({"bf16", 1, 1, 64, 64, true, 200}, of_groups(64, 64, 2)), HasSubstr("keys of a window"));
  EXPECT_THAT(why({"bf16", 1, 1, 64, 64, true, 0, true}, of_groups(64, 64, 2)), HasSubstr("whose number is read"));
}

// Long prompts get them on Hopper, and other GPUs do not.
TEST(GroupAttention, IsChosenForLongPrompts) {
  const GeneralKernel general = general_attention({"bf16", 16, 4, 128, 128});
  for (const auto& [name, expected] : {std::pair{"h100", true}, {"a100", false}}) {
    const auto tiles = attention_tiles_of(general, test::sizes_of(general, sizes(1, 2048, 0)),
                                          *ir::find_gpu_target(name), ir::kBf16Dots);
    ASSERT_TRUE(tiles.ok() && !tiles->empty());
    EXPECT_EQ(tiles->front().groups, expected) << name;
  }
}

}  // namespace
}  // namespace lathe::search
