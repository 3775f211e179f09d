// Attention of groups of four warps, whose products read shared memory: values stay, what is proven is proven, on the
// emulator in every order of the threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search/gpu/attention/tensor_attention.h"
#include "tests/gpu/attention/tensor_attentions.h"

namespace lathe::search {
namespace {

using test::of_groups;

TEST(GroupAttention, OfKnownSizes) {
  int emulated = 0;
  struct Case {
    test::FixedSizes sizes;
    int64_t depth;
    AttentionTile tile;
  };
  const Case cases[] = {{{1, 128, 128}, 64, of_groups(64, 64, 2)},
                        {{1, 64, 192, false}, 128, of_groups(64, 64, 2)},
                        {{1, 64, 192}, 64, of_groups(64, 64, 3)}};
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

}  // namespace
}  // namespace lathe::search
