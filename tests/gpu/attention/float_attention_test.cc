// Attention of f32 in tiles of queries: values stay, what is proven is proven, on the emulator in every order of the
// threads; many queries get such tiles, and few do not.
#include "search/gpu/attention/float_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search/cut/safe_kernel.h"
#include "search/gpu/attention/attention_tiles.h"
#include "search/gpu/choice/device_candidates.h"
#include "tests/gpu/attention/tensor_attentions.h"

namespace lathe::search {
namespace {

using ir::SymbolValues;
using test::attention_text;
using test::AttentionText;
using test::general_attention;
using ::testing::HasSubstr;

constexpr double kBound = 1e-5;

SymbolValues sizes(int64_t b, int64_t s, int64_t t) { return {{"B", b}, {"S", s}, {"T", t}}; }

TEST(FloatAttention, OnTheEmulator) {
  struct Case {
    AttentionText form;
    std::vector<FloatTile> tiles;
    std::vector<SymbolValues> sizes;
  };
  const Case cases[] = {
      {{"f32", 4, 2, 64, 64},
       {{64, 64}, {64, 32}, {128, 16}},
       {sizes(2, 65, 65), sizes(1, 1, 31), sizes(1, 63, 0), sizes(1, 64, 64), sizes(1, 7, 129), sizes(1, 0, 5)}},
      {{"f32", 2, 2, 8, 128, false}, {{32, 32}, {64, 64, 256}}, {sizes(2, 33, 75), sizes(1, 31, 1), sizes(1, 2, 0)}},
      {{"f32", 3, 1, 128, 32, true, 0, true}, {{128, 32}}, {sizes(2, 129, 33), sizes(1, 1, 64)}},
      {{"f32", 2, 1, 4, 64, true, 40}, {{64, 32}, {128, 32}}, {sizes(1, 67, 135), sizes(1, 3, 20)}}};
  int emulated = 0;
  for (const Case& c : cases) {
    const ir::Kernel naive = test::kernel_of(attention_text(c.form));
    const GeneralKernel general = general_kernel(naive);
    for (const FloatTile& tile : c.tiles) {
      const auto made = float_attention(general, tile);
      ASSERT_TRUE(made.ok()) << made.status().to_string() << "\n" << attention_text(c.form);
      SCOPED_TRACE(to_text(made->schedule));
      const ir::Status safe = check_safe(general.kernel, made->kernel);
      EXPECT_TRUE(safe.ok()) << safe.to_string();
      for (const SymbolValues& s : c.sizes) {
        test::expect_values_kept(naive, general, made, s, kBound);
        test::expect_as_interpreted(made->kernel, test::sizes_of(general, s), kBound);
        ++emulated;
      }
    }
  }
  RecordProperty("emulated", emulated);
}

// Whole tiles and blocks, and others.
TEST(FloatAttention, OfKnownSizes) {
  for (const auto& [rows, keys] : {std::pair<int64_t, int64_t>{128, 64}, {65, 65}, {64, 63}}) {
    SCOPED_TRACE(testing::Message() << rows << " " << keys);
    const ir::SymbolRanges known = {{"B", {2, 2}}, {"S", {rows, rows}}, {"T", {keys, keys}}};
    const ir::Kernel fixed = restrict_symbols(test::kernel_of(attention_text({"f32", 2, 1, 16, 64})), known);
    const GeneralKernel general = general_kernel(fixed);
    const auto made = float_attention(general, {64, 32});
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    test::expect_values_kept(fixed, general, made, {}, kBound);
    test::expect_as_interpreted(made->kernel, test::sizes_of(general, {}), kBound);
  }
}

TEST(FloatAttention, IsChosenForManyQueries) {
  const ir::GpuTarget target = *ir::find_gpu_target("h100");
  const GeneralKernel general = general_attention({"f32", 32, 8, 128, 128});
  for (const int64_t rows : {128, 512, 2048}) {
    const SymbolValues at = test::sizes_of(general, sizes(1, rows, rows));
    const auto made = device_schedule(general, at, target);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    EXPECT_EQ(made->schedule.recipe, "float_attention.1") << rows;
    // About as many blocks as multiprocessors where there are queries for them.
    EXPECT_GE(32 * ((rows + made->schedule.knobs.at("rows") - 1) / made->schedule.knobs.at("rows")), 128) << rows;
    const auto again = replay_on_device(general, parse_schedule(to_text(made->schedule)).value());
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(print(again->kernel), print(made->kernel));
  }
  EXPECT_EQ(device_schedule(general, test::sizes_of(general, sizes(8, 1, 4096)), target)->schedule.recipe,
            "attention.1");
}

TEST(FloatAttention, Refuses) {
  const auto why = [](const AttentionText& form, const FloatTile& tile) {
    return float_attention(general_attention(form), tile).status().message();
  };
  EXPECT_THAT(why({"bf16", 4, 2, 64, 64}, {64, 64}), HasSubstr("of f32"));
  EXPECT_THAT(why({"f32", 4, 2, 60, 64}, {64, 64}), HasSubstr("vectors"));
  EXPECT_THAT(why({"f32", 4, 2, 256, 64}, {64, 64}), HasSubstr("up to 128"));
  EXPECT_THAT(why({"f32", 4, 2, 64, 64, true, 0, true, true}, {64, 64}), HasSubstr("as they are given"));
  EXPECT_THAT(why({"f32", 4, 2, 64, 64}, {48, 64}), HasSubstr("48 queries"));
  EXPECT_THAT(why({"f32", 4, 2, 64, 64}, {64, 24}), HasSubstr("24 keys"));
  EXPECT_THAT(why({"f32", 4, 2, 64, 64}, {32, 64}), HasSubstr("64 columns"));
  EXPECT_THAT(why({"f32", 4, 2, 64, 64}, {64, 64, 96}), HasSubstr("96 threads"));
  EXPECT_THAT(why({"f32", 4, 2, 128, 128}, {64, 512}), HasSubstr("shared memory"));
}

}  // namespace
}  // namespace lathe::search
