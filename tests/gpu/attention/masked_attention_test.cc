// Attention with a mask on tensor cores: of queries, of heads, of keys alone. Values stay, what is proven is proven, on
// the emulator in every order of the threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search/cut/safe_kernel.h"
#include "search/gpu/attention/tensor_attention.h"
#include "search/gpu/choice/device_candidates.h"
#include "tests/gpu/attention/attention_kernels.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"

namespace lathe::search {
namespace {

using ir::SymbolValues;
using test::attention_text;
using test::AttentionText;
using Mask = AttentionText::Mask;

constexpr double kRounded = 2e-2;  // weights and results of bf16

AttentionText masked(Mask mask, bool causal, bool pages = false, const char* type = "bf16") {
  return {type, 4, 2, 32, 16, causal, false, false, pages, mask};
}

TEST(MaskedAttention, OnTheEmulator) {
  int emulated = 0;
  for (const AttentionText& a :
       {masked(Mask::queries, true), masked(Mask::heads, false, false, "f16"), masked(Mask::keys, true, true)}) {
    const ir::Kernel naive = test::kernel_of(attention_text(a));
    const GeneralKernel general = general_kernel(naive);
    for (const AttentionTile& tile :
         {AttentionTile{32, 32, 1}, {16, 32, 1, false, true}, {16, 16, 1, true, true, 48}}) {
      if (tile.split && a.type[0] == 'f') continue;
      const auto made = tensor_attention(general, tile);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      const ir::Status safe = check_safe(general.kernel, made->kernel);
      EXPECT_TRUE(safe.ok()) << safe.to_string();
      for (const SymbolValues& s : {SymbolValues{{"B", 2}, {"S", 1}, {"T", 75}, {"P", 9}, {"N", 4}},
                                    {{"B", 1}, {"S", 35}, {"T", 33}, {"P", 3}, {"N", 2}},
                                    {{"B", 1}, {"S", 2}, {"T", 0}, {"P", 1}, {"N", 0}}}) {
        test::expect_values_kept(naive, general, made, s, kRounded);
        test::expect_as_interpreted(made->kernel, test::sizes_of(general, s), kRounded);
        ++emulated;
      }
    }
  }
  RecordProperty("emulated", emulated);
}

TEST(MaskedAttention, HasNoConflictsOfBanks) {
  int64_t conflicts = 0;
  for (const Mask mask : {Mask::queries, Mask::keys}) {
    const GeneralKernel general = general_kernel(test::kernel_of(attention_text(masked(mask, false))));
    const auto made = tensor_attention(general, {32, 32, 1});
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    const test::BankCounts counts =
        test::bank_conflicts(made->kernel, test::sizes_of(general, {{"B", 1}, {"S", 32}, {"T", 96}}));
    EXPECT_GT(counts.accesses, 0);
    EXPECT_EQ(counts.conflicts, 0) << "of " << counts.accesses;
    conflicts += counts.conflicts;
  }
  RecordProperty("conflicts", static_cast<int>(conflicts));
}

TEST(MaskedAttention, IsChosenWhereItApplies) {
  AttentionText a = {"bf16", 32, 8, 128, 128, true, false, true, false, Mask::queries};
  const GeneralKernel general = general_kernel(test::kernel_of(attention_text(a)));
  const auto best = [&](int64_t queries) {
    const SymbolValues sizes = test::sizes_of(general, {{"B", 4}, {"S", queries}, {"T", 4096}});
    return device_schedule(general, sizes, *ir::find_gpu_target("h200"), ir::kBf16Dots)->schedule;
  };
  EXPECT_EQ(best(1024).recipe, "tensor_attention.1");
  EXPECT_EQ(best(1).knobs.at("heads"), 1);
  EXPECT_EQ(tensor_attention(general, {64, 32, 2}).status().message(), "2 stages with a mask");
}

}  // namespace
}  // namespace lathe::search
