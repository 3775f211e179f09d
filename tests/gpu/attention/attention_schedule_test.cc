// Schedules of attention: values stay, what is proven is proven, on the emulator in every order of the threads; keys
// are divided where blocks of threads are few; what is no attention of known columns is refused.
#include "search/gpu/attention/attention_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/analysis/analysis.h"
#include "search/cut/launch_cut.h"
#include "search/cut/safe_kernel.h"
#include "search/gpu/attention/attention_tiles.h"
#include "search/gpu/choice/device_candidates.h"
#include "tests/gpu/attention/attention_kernels.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"

namespace lathe::search {
namespace {

using ir::SymbolValues;
using test::attention_text;
using test::AttentionText;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

const ir::GpuTarget& h200() {
  static const auto& target = *new ir::GpuTarget(*ir::find_gpu_target("h200"));
  return target;
}

TEST(AttentionSchedule, KeepsTheValues) {
  for (const AttentionText& a :
       {AttentionText{"f32", 4, 2, 8, 8}, {"f32", 3, 3, 5, 7, false}, {"bf16", 4, 1, 16, 20, true, 9}}) {
    const ir::Kernel naive = test::kernel_of(attention_text(a));
    const GeneralKernel general = general_kernel(naive);
    const double bound = std::string(a.type) == "f32" ? 1e-5 : 1e-2;
    for (const SymbolValues& s : {SymbolValues{{"B", 2}, {"S", 3}, {"T", 70}},
                                  {{"B", 1}, {"S", 1}, {"T", 0}},
                                  {{"B", 1}, {"S", 2}, {"T", 1}}}) {
      test::expect_values_kept(naive, general, attention_schedule(general, 0), s, bound);
      if (!a.window) test::expect_values_kept(naive, general, attention_schedule(general, 32), s, bound);
    }
  }
}

TEST(AttentionSchedule, OnTheEmulator) {
  int emulated = 0;
  for (const AttentionText& a : {AttentionText{"bf16", 4, 2, 64, 64},
                                 {"bf16", 16, 2, 64, 64},
                                 {"f32", 3, 3, 5, 7, false},
                                 {"f16", 8, 1, 33, 17, true, 9}}) {
    const GeneralKernel general = general_kernel(test::kernel_of(attention_text(a)));
    for (const int64_t part : {0, 64, 16}) {
      if (a.window && part > 0) continue;
      const auto made = attention_schedule(general, part);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      EXPECT_TRUE(check_safe(general.kernel, made->kernel).ok());
      for (const SymbolValues& s : {SymbolValues{{"B", 2}, {"S", 2}, {"T", 131}}, {{"B", 1}, {"S", 1}, {"T", 63}}}) {
        test::expect_as_interpreted(made->kernel, test::sizes_of(general, s),
                                    a.type[0] == 'f' && a.type[1] == '3' ? 1e-5 : 1e-2);
        ++emulated;
      }
    }
  }
  RecordProperty("emulated", emulated);
}

std::vector<int64_t> parts_at(const AttentionText& a, const SymbolValues& symbols) {
  const GeneralKernel general = general_kernel(test::up_to(test::kernel_of(attention_text(a)), symbols));
  return key_parts(general, test::sizes_of(general, symbols), h200()).value();
}

TEST(AttentionSchedule, DividesKeysWhereBlocksAreFew) {
  AttentionText cache;
  cache.type = "f32";
  cache.lengths = true;
  AttentionText open = cache;  // whose keys the Kernel has no bound of, but calls have
  open.lengths = open.causal = false;
  for (const AttentionText& form : {cache, open}) {
    SCOPED_TRACE(form.lengths);
    for (const int64_t sequences : {1, 2, 8, 16}) {
      const int64_t part = parts_at(form, {{"B", sequences}, {"S", 1}, {"T", 1024}}).front();
      ASSERT_GE(part, 16) << sequences;
      // Two blocks for each multiprocessor, but for short parts of few sequences.
      const int64_t blocks = sequences * 2 * (1024 / part);
      EXPECT_TRUE(blocks >= 2 * 132 || part == 16) << sequences << " " << part;
      EXPECT_LE(blocks, 8 * 132) << sequences;
    }
    EXPECT_EQ(parts_at(form, {{"B", 1}, {"S", 4096}, {"T", 4096}}).front(), 0);
    EXPECT_THAT(parts_at(form, {{"B", 1}, {"S", 1}, {"T", 16}}), ElementsAre(0));
    EXPECT_THAT(parts_at(form, {{"B", 8}, {"S", 1}, {"T", 60}}), UnorderedElementsAre(0, 16, 32));
  }
}

TEST(AttentionSchedule, CandidatesAreReplayed) {
  const SymbolValues symbols = {{"B", 4}, {"S", 1}, {"T", 4096}};
  const GeneralKernel general = general_kernel(test::up_to(test::kernel_of(attention_text({})), symbols));
  const SymbolValues sizes = test::sizes_of(general, symbols);
  const auto ranked = device_candidates(general, sizes, h200(), 9);
  ASSERT_TRUE(ranked.ok()) << ranked.status().to_string();
  EXPECT_GE(ranked->size(), 4u);
  EXPECT_EQ(ranked->back().schedule.recipe, "attention.1");
  for (const Scheduled& made : *ranked) {
    const auto again = replay_on_device(general, parse_schedule(to_text(made.schedule)).value());
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(print(again->kernel), print(made.kernel));
  }
}

// Keys of all heads of a group are read once: by one block of threads, and by 16 bytes.
TEST(AttentionSchedule, HeadsShareKeys) {
  const GeneralKernel general = general_kernel(test::kernel_of(attention_text({})));
  const auto made = attention_schedule(general, 0);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->schedule.knobs.at("rows"), 4);
  const auto cut = cut_launches(made->kernel);
  ASSERT_TRUE(cut.ok());
  const SymbolValues sizes = test::sizes_of(general, {{"B", 3}, {"S", 5}, {"T", 40}});
  int64_t blocks = 1;
  for (const ir::Expr& e : cut->launches[0].grid) blocks *= ir::evaluate(e, sizes).value();
  EXPECT_EQ(blocks, 3 * 2 * 5);
}

TEST(AttentionSchedule, RefusesWhatItIsNotFor) {
  const GeneralKernel chain = general_kernel(test::kernel_of(test::kFlat));
  EXPECT_THAT(attention_schedule(chain, 0).status().message(), HasSubstr("no attention"));
  const GeneralKernel window = general_kernel(test::kernel_of(attention_text({"f32", 2, 2, 8, 8, true, 9})));
  EXPECT_THAT(attention_schedule(window, 64).status().message(), HasSubstr("a query sees at most 9"));
  std::string text = attention_text({"f32", 2, 2, 8, 8});
  for (size_t at = 0; (at = text.find("T, 8] in, y", at)) != std::string::npos;) text.replace(at, 4, "T, E");
  text.replace(text.find("S, 8] out"), 4, "S, E");
  text.replace(text.find("o: f32[B, 2, S, 8]"), 18, "o: f32[B, 2, S, E]");
  text.replace(text.find("for n < 8"), 9, "for n < E");
  text.replace(text.find("T in 0..8192"), 12, "T in 0..8192, E in 1..64");
  const GeneralKernel wide = general_kernel(test::kernel_of(text));
  EXPECT_THAT(attention_schedule(wide, 0).status().message(), HasSubstr("vary in their number of columns"));
}

}  // namespace
}  // namespace lathe::search
