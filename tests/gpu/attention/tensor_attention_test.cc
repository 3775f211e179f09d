// Attention on tensor cores: values stay, what is proven is proven, on the emulator in every order of the threads.
#include "search/gpu/attention/tensor_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "ir/analysis/analysis.h"
#include "jit/cuda/lower/lower_device.h"
#include "search/cut/launch_cut.h"
#include "search/cut/safe_kernel.h"
#include "search/gpu/attention/attention_tiles.h"
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

TEST(TensorAttention, KeepsTheValues) {
  for (const AttentionText& a : {AttentionText{"bf16", 4, 2, 16, 32}, {"f16", 3, 3, 32, 16, false}}) {
    const ir::Kernel naive = test::kernel_of(attention_text(a));
    const GeneralKernel general = general_kernel(naive);
    for (const AttentionTile& tile : {AttentionTile{16, 16, 1}, {16, 16, 2}, {32, 16, 3, true}}) {
      if (tile.split && a.type[0] == 'f') continue;
      for (const SymbolValues& s : {SymbolValues{{"B", 2}, {"S", 3}, {"T", 70}},
                                    {{"B", 1}, {"S", 1}, {"T", 0}},
                                    {{"B", 1}, {"S", 19}, {"T", 17}},
                                    {{"B", 1}, {"S", 2}, {"T", 1}}})
        test::expect_values_kept(naive, general, tensor_attention(general, tile), s, kRounded);
    }
  }
}

TEST(TensorAttention, OnTheEmulator) {
  int emulated = 0;
  for (const AttentionText& a : {AttentionText{"bf16", 4, 2, 64, 64},
                                 {"f16", 2, 1, 16, 32, false},
                                 {"bf16", 2, 2, 32, 16, true, false, true},
                                 {"bf16", 2, 1, 144, 48, true, false, false, true}}) {
    const GeneralKernel general = general_kernel(test::kernel_of(attention_text(a)));
    for (const AttentionTile& tile : {AttentionTile{32, 32, 2}, {16, 16, 1}, {32, 16, 2, true}}) {
      if (tile.split && a.type[0] == 'f') continue;
      const auto made = tensor_attention(general, tile);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      EXPECT_TRUE(check_safe(general.kernel, made->kernel).ok());
      for (const SymbolValues& s : {SymbolValues{{"B", 2}, {"S", 35}, {"T", 75}, {"P", 9}, {"N", 3}},
                                    {{"B", 1}, {"S", 1}, {"T", 31}, {"P", 3}, {"N", 2}},
                                    {{"B", 1}, {"S", 33}, {"T", 0}, {"P", 1}, {"N", 0}},
                                    {{"B", 1}, {"S", 40}, {"T", 32}, {"P", 5}, {"N", 2}}}) {
        test::expect_as_interpreted(made->kernel, test::sizes_of(general, s), kRounded);
        ++emulated;
      }
    }
  }
  RecordProperty("emulated", emulated);
}

AttentionText small() { return {"bf16", 2, 1, 32, 16}; }

TEST(TensorAttention, EverySynchronisationIsNeeded) {
  const GeneralKernel general = general_kernel(test::kernel_of(attention_text(small())));
  const auto made = tensor_attention(general, {32, 32, 2});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const SymbolValues sizes = test::sizes_of(general, {{"B", 1}, {"S", 32}, {"T", 135}});
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

TEST(TensorAttention, HasNoConflictsOfBanks) {
  int64_t conflicts = 0;
  for (const auto& [depth, columns] : {std::pair<int64_t, int64_t>{64, 64}, {96, 80}, {128, 128}, {144, 16}}) {
    const GeneralKernel general =
        general_kernel(test::kernel_of(attention_text({"bf16", 1, 1, depth, columns, false})));
    for (const int64_t stages : {1, 2}) {
      const auto made = tensor_attention(general, {32, 32, stages});
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      const test::BankCounts counts =
          test::bank_conflicts(made->kernel, test::sizes_of(general, {{"B", 1}, {"S", 32}, {"T", 96}}));
      EXPECT_GT(counts.accesses, 0);
      EXPECT_EQ(counts.conflicts, 0) << depth << " " << columns << ", of " << counts.accesses;
      conflicts += counts.conflicts;
    }
  }
  RecordProperty("conflicts", static_cast<int>(conflicts));
}

const ir::GpuTarget& gpu(const char* name) {
  static auto& all = *new std::map<std::string, ir::GpuTarget>;
  return all.try_emplace(name, *ir::find_gpu_target(name)).first->second;
}

// Where there are queries enough to fill tensor cores, and the caller allows what they round.
TEST(TensorAttention, IsChosenWhereItApplies) {
  const GeneralKernel general = general_kernel(test::kernel_of(attention_text({"bf16", 32, 8, 128, 128})));
  const auto best = [&](int64_t queries, int64_t keys, uint32_t allowed, const char* name = "h200") {
    const SymbolValues sizes = test::sizes_of(general, {{"B", 1}, {"S", queries}, {"T", keys}});
    const auto made = device_schedule(general, sizes, gpu(name), allowed);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made->schedule;
  };
  EXPECT_EQ(best(4096, 4096, ir::kBf16Dots).recipe, "tensor_attention.1");
  EXPECT_EQ(best(128, 4096, ir::kBf16Dots).recipe, "tensor_attention.1");
  EXPECT_EQ(best(4096, 4096, ir::kBf16Dots).knobs.count("split"), 0u);
  // Weights keep all their bits where nothing else is allowed.
  EXPECT_EQ(best(4096, 4096, 0).recipe, "tensor_attention.1");
  EXPECT_EQ(best(4096, 4096, 0).knobs.at("split"), 1);
  EXPECT_EQ(best(4096, 4096, 0).numeric & ir::kBf16Dots, 0u);
  EXPECT_EQ(best(1, 4096, ir::kBf16Dots).knobs.at("heads"), 1);
  EXPECT_GE(best(8192, 8192, ir::kBf16Dots).knobs.at("rows"), 64);
  for (const char* name : {"a100", "l40s", "h200", "rtx5090"}) {
    const SymbolValues sizes = test::sizes_of(general, {{"B", 1}, {"S", 2048}, {"T", 2048}});
    const auto tiles = attention_tiles_of(general, sizes, gpu(name), ir::kBf16Dots);
    ASSERT_TRUE(tiles.ok() && tiles->size() > 2) << name;
    for (const AttentionTile& t : *tiles) EXPECT_LE(shared_bytes(t, 128, 128), ir::most_shared(gpu(name)));
  }
}

// Values of f16 have no numbers that a weight is a sum of.
TEST(TensorAttention, HalvesAreRoundedOrTheyStay) {
  const GeneralKernel general = general_kernel(test::kernel_of(attention_text({"f16", 32, 8, 128, 128})));
  const SymbolValues sizes = test::sizes_of(general, {{"B", 1}, {"S", 2048}, {"T", 2048}});
  EXPECT_EQ(device_schedule(general, sizes, gpu("h200"), 0)->schedule.recipe, "attention.1");
  EXPECT_EQ(device_schedule(general, sizes, gpu("h200"), ir::kBf16Dots)->schedule.recipe, "tensor_attention.1");
  EXPECT_THAT(tensor_attention(general, {64, 32, 2, true}).status().message(), HasSubstr("not bf16"));
}

// All bits of a weight take part where it is split: results are those of f32 weights.
TEST(TensorAttention, SplitWeightsAreExact) {
  const AttentionText a = {"bf16", 2, 1, 16, 16};
  std::string text = attention_text(a);
  text.replace(text.find("y: bf16["), 7, "y: f32");
  text.replace(text.find("= bf16(o["), 6, "= ");
  const ir::Kernel naive = test::kernel_of(text);
  const GeneralKernel general = general_kernel(naive);
  const SymbolValues s = {{"B", 1}, {"S", 40}, {"T", 90}};
  const auto made = tensor_attention(general, {32, 16, 2, true});
  test::expect_values_kept(naive, general, made, s, 1e-5);
  test::expect_as_interpreted(made->kernel, test::sizes_of(general, s), 1e-5);
}

TEST(TensorAttention, CandidatesAreReplayed) {
  const GeneralKernel general = general_kernel(test::kernel_of(attention_text({"bf16", 8, 2, 64, 64})));
  const SymbolValues sizes = test::sizes_of(general, {{"B", 4}, {"S", 700}, {"T", 700}});
  const auto ranked = device_candidates(general, sizes, gpu("h200"), 9, ir::kBf16Dots);
  ASSERT_TRUE(ranked.ok()) << ranked.status().to_string();
  EXPECT_EQ(ranked->front().schedule.recipe, "tensor_attention.1");
  const auto without = std::count_if(ranked->begin(), ranked->end(),
                                     [](const Scheduled& s) { return s.schedule.recipe == "attention.1"; });
  EXPECT_GE(without, 1);
  for (const Scheduled& made : *ranked) {
    const auto again = replay_on_device(general, parse_schedule(to_text(made.schedule)).value());
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(print(again->kernel), print(made.kernel));
  }
}

TEST(TensorAttention, RefusesWhatItIsNotFor) {
  const auto why = [](const AttentionText& a, const AttentionTile& tile = {}) {
    return tensor_attention(general_kernel(test::kernel_of(attention_text(a))), tile).status().message();
  };
  EXPECT_THAT(why({"f32", 2, 2, 64, 64}), HasSubstr("queries, keys and values of bf16, or of f16"));
  EXPECT_THAT(why({"bf16", 2, 2, 72, 64}), HasSubstr("whole squares, up to 256"));
  EXPECT_THAT(why({"bf16", 2, 2, 64, 512}), HasSubstr("whole squares, up to 256"));
  EXPECT_THAT(why({"bf16", 2, 2, 64, 64, true, true}), HasSubstr("see keys from the first one on"));
  EXPECT_THAT(tensor_attention(general_kernel(test::kernel_of(test::kFlat)), {}).status().message(),
              HasSubstr("expected its loops"));
  const AttentionText whole = {"bf16", 2, 2, 64, 64};
  EXPECT_THAT(why(whole, {40, 64, 2}), HasSubstr("40 queries of a block, expected a multiple of 16"));
  EXPECT_THAT(why(whole, {0, 64, 2}), HasSubstr("0 queries of a block"));
  EXPECT_THAT(why(whole, {64, 24, 2}), HasSubstr("24 keys of a block, expected a multiple of 16"));
  EXPECT_THAT(why(whole, {64, 64, 5}), HasSubstr("5 stages, expected 1..4"));
  EXPECT_THAT(why(whole, {512, 512, 4}), HasSubstr("bytes of shared memory"));
}

}  // namespace
}  // namespace lathe::search
