// Attention of few queries on tensor cores: the rows of a tile are the heads that share keys, whose keys may be divided
// into parts. Values stay, what is proven is proven, on the emulator in every order of the threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/analysis/analysis.h"
#include "jit/cuda/lower/lower_device.h"
#include "search/cut/launch_cut.h"
#include "search/cut/safe_kernel.h"
#include "search/gpu/attention/attention_tiles.h"
#include "search/gpu/attention/tensor_attention.h"
#include "search/gpu/choice/device_candidates.h"
#include "tests/gpu/attention/attention_kernels.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/memory/mutations.h"

namespace lathe::search {
namespace {

using ir::SymbolValues;
using test::attention_text;
using test::AttentionText;
using ::testing::HasSubstr;

constexpr double kRounded = 2e-2;  // weights and results of bf16

AttentionTile packed(int64_t rows, int64_t keys, int64_t stages, bool split = false, int64_t part = 0) {
  return {rows, keys, stages, split, true, part};
}

TEST(PackedAttention, KeepsTheValues) {
  for (const AttentionText& a : {AttentionText{"bf16", 8, 2, 16, 32}, {"f16", 7, 1, 32, 16, false}}) {
    const ir::Kernel naive = test::kernel_of(attention_text(a));
    const GeneralKernel general = general_kernel(naive);
    for (const AttentionTile& tile : {packed(16, 16, 1), packed(16, 16, 2, false, 48), packed(16, 16, 3, true, 64)}) {
      if (tile.split && a.type[0] == 'f') continue;
      for (const SymbolValues& s : {SymbolValues{{"B", 2}, {"S", 1}, {"T", 70}},
                                    {{"B", 1}, {"S", 1}, {"T", 0}},
                                    {{"B", 1}, {"S", 3}, {"T", 129}},
                                    {{"B", 1}, {"S", 2}, {"T", 1}}})
        test::expect_values_kept(naive, general, tensor_attention(general, tile), s, kRounded);
    }
  }
}

TEST(PackedAttention, OnTheEmulator) {
  int emulated = 0;
  for (const AttentionText& a : {AttentionText{"bf16", 8, 2, 64, 64},
                                 {"f16", 7, 1, 16, 32, false},
                                 {"bf16", 20, 1, 32, 16, true, false, true},
                                 {"bf16", 8, 2, 144, 48, true, false, false, true}}) {
    const GeneralKernel general = general_kernel(test::kernel_of(attention_text(a)));
    for (const AttentionTile& tile : {packed(16, 32, 2), packed(32, 16, 1, false, 32), packed(16, 16, 2, true, 48)}) {
      if (tile.split && a.type[0] == 'f') continue;
      const auto made = tensor_attention(general, tile);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      const ir::Status safe = check_safe(general.kernel, made->kernel);
      EXPECT_TRUE(safe.ok()) << safe.to_string() << to_text(made->schedule);
      for (const SymbolValues& s : {SymbolValues{{"B", 2}, {"S", 1}, {"T", 75}, {"P", 9}, {"N", 3}},
                                    {{"B", 1}, {"S", 2}, {"T", 31}, {"P", 3}, {"N", 2}},
                                    {{"B", 1}, {"S", 1}, {"T", 0}, {"P", 1}, {"N", 0}},
                                    {{"B", 1}, {"S", 1}, {"T", 32}, {"P", 5}, {"N", 2}}}) {
        test::expect_as_interpreted(made->kernel, test::sizes_of(general, s), kRounded);
        ++emulated;
      }
    }
  }
  RecordProperty("emulated", emulated);
}

AttentionText small() { return {"bf16", 4, 1, 32, 16}; }

TEST(PackedAttention, EverySynchronisationIsNeeded) {
  const GeneralKernel general = general_kernel(test::kernel_of(attention_text(small())));
  const auto made = tensor_attention(general, packed(16, 32, 2));
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const SymbolValues sizes = test::sizes_of(general, {{"B", 1}, {"S", 1}, {"T", 135}});
  const auto cut = cut_launches(made->kernel);
  ASSERT_TRUE(cut.ok());
  const auto whole = jit::lower_device(cut->leaves[0]);
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  using Kind = jit::DeviceStmt::Kind;
  for (const Kind kind : {Kind::commit, Kind::await, Kind::barrier})
    EXPECT_GT(test::count_of(*whole, kind), 0) << static_cast<int>(kind) << print(*whole);
  test::PlantedBugs bugs;
  bugs.leave_out(*whole, {Kind::commit, Kind::await, Kind::barrier},
                 [&](const jit::DeviceProgram& p) { return test::failure_of(p, made->kernel, sizes, kRounded); });
}

TEST(PackedAttention, HasNoConflictsOfBanks) {
  int64_t conflicts = 0;
  for (const auto& [depth, columns] : {std::pair<int64_t, int64_t>{64, 96}, {80, 128}}) {
    const GeneralKernel general =
        general_kernel(test::kernel_of(attention_text({"bf16", 4, 1, depth, columns, false})));
    for (const AttentionTile& tile : {packed(16, 32, 2), packed(16, 32, 3, true, 128)}) {
      const auto made = tensor_attention(general, tile);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      const test::BankCounts counts =
          test::bank_conflicts(made->kernel, test::sizes_of(general, {{"B", 1}, {"S", 1}, {"T", 200}}));
      EXPECT_GT(counts.accesses, 0);
      EXPECT_EQ(counts.conflicts, 0) << depth << " " << columns << ", of " << counts.accesses;
      conflicts += counts.conflicts;
    }
  }
  RecordProperty("conflicts", static_cast<int>(conflicts));
}

// A block has all heads that share keys, and a part of these, so each key is read once.
TEST(PackedAttention, KeysAreReadOnce) {
  AttentionText cache;
  cache.lengths = true;
  const GeneralKernel general = general_kernel(test::kernel_of(attention_text(cache)));
  const auto made = tensor_attention(general, packed(16, 32, 2, false, 256));
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const auto cut = cut_launches(made->kernel);
  ASSERT_TRUE(cut.ok());
  ASSERT_EQ(cut->launches.size(), 2u);
  const SymbolValues sizes = test::sizes_of(general, {{"B", 3}, {"S", 1}, {"T", 1000}});
  int64_t blocks = 1;
  for (const ir::Expr& e : cut->launches[0].grid) blocks *= ir::evaluate(e, sizes).value();
  EXPECT_EQ(blocks, 3 * 2 * 4);
}

TEST(PackedAttention, IsChosenWhereItApplies) {
  static const ir::GpuTarget& gpu = *new ir::GpuTarget(*ir::find_gpu_target("h200"));
  const auto best = [&](int64_t heads, int64_t kept, int64_t sequences, int64_t queries, int64_t keys,
                        uint32_t allowed) {
    AttentionText cache = {"bf16", heads, kept, 128, 128};
    cache.lengths = true;
    const GeneralKernel general = general_kernel(test::kernel_of(attention_text(cache)));
    const auto made = device_schedule(general, test::sizes_of(general, {{"B", sequences}, {"S", queries}, {"T", keys}}),
                                      gpu, allowed);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made->schedule;
  };
  for (const uint32_t allowed : {0u, uint32_t{ir::kBf16Dots}}) {
    const Schedule decode = best(32, 8, 32, 1, 8192, allowed);
    EXPECT_EQ(decode.recipe, "tensor_attention.1");
    EXPECT_EQ(decode.knobs.at("heads"), 1);
    EXPECT_EQ(decode.knobs.at("rows"), 16);
    EXPECT_EQ(decode.knobs.count("split"), allowed == 0 ? 1u : 0u);
    // Few sequences have their keys divided.
    const Schedule one = best(32, 4, 1, 1, 16384, allowed);
    EXPECT_EQ(one.knobs.at("heads"), 1);
    EXPECT_GE(one.knobs.at("part"), 256);
    // Each head has keys of its own; many queries fill a tile of one head.
    EXPECT_EQ(best(32, 32, 8, 1, 4096, allowed).knobs.count("heads"), 0u);
    EXPECT_EQ(best(32, 32, 1, 1, 4096, allowed).recipe, "attention.1");
    EXPECT_EQ(best(32, 8, 4, 4096, 4096, allowed).knobs.count("heads"), 0u);
  }
}

TEST(PackedAttention, CandidatesAreReplayed) {
  const GeneralKernel general = general_kernel(test::kernel_of(attention_text({"bf16", 8, 2, 64, 64})));
  const SymbolValues sizes = test::sizes_of(general, {{"B", 4}, {"S", 1}, {"T", 3000}});
  const auto ranked = device_candidates(general, sizes, *ir::find_gpu_target("h200"), 9, ir::kBf16Dots);
  ASSERT_TRUE(ranked.ok()) << ranked.status().to_string();
  EXPECT_EQ(ranked->front().schedule.knobs.count("heads"), 1u);
  for (const Scheduled& made : *ranked) {
    const auto again = replay_on_device(general, parse_schedule(to_text(made.schedule)).value());
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(print(again->kernel), print(made.kernel));
  }
}

TEST(PackedAttention, RefusesWhatItIsNotFor) {
  const auto why = [](const AttentionText& a, const AttentionTile& tile) {
    return tensor_attention(general_kernel(test::kernel_of(attention_text(a))), tile).status().message();
  };
  const AttentionText whole = {"bf16", 4, 1, 64, 64};
  EXPECT_THAT(why({"bf16", 4, 4, 64, 64}, packed(16, 64, 2)), HasSubstr("each of which has keys of its own"));
  EXPECT_THAT(why(whole, {16, 64, 2, false, false, 256}), HasSubstr("expected those of heads"));
  EXPECT_THAT(why(whole, packed(16, 64, 2, false, 100)), HasSubstr("parts of 100 keys, expected whole blocks of 64"));
  EXPECT_THAT(why(whole, packed(16, 64, 2, false, -64)), HasSubstr("parts of -64 keys"));
  EXPECT_THAT(why(whole, packed(16, 64, 2, false, 128)), HasSubstr("expected more blocks than stages"));
  EXPECT_THAT(why({"bf16", 4, 1, 64, 64, false, false, true}, packed(16, 64, 2, false, 8192)),
              HasSubstr("a query sees at most 8192"));
}

}  // namespace
}  // namespace lathe::search
