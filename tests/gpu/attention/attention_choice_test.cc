// Which tiles of tensor cores attention gets, and where it gets none; Schedules of both kinds are replayed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "search/cut/safe_kernel.h"
#include "search/gpu/attention/attention_tiles.h"
#include "search/gpu/choice/device_candidates.h"
#include "tests/gpu/attention/attention_ops.h"
#include "tests/gpu/attention/tensor_attentions.h"

namespace lathe::search {
namespace {

using ir::SymbolValues;
using test::attention_text;
using test::AttentionText;
using test::general_attention;
using Mask = AttentionText::Mask;

const ir::GpuTarget& gpu(const char* name) {
  static auto& all = *new std::map<std::string, ir::GpuTarget>;
  return all.try_emplace(name, *ir::find_gpu_target(name)).first->second;
}

struct Calls {
  int64_t sequences = 1, queries = 1, keys = 1;
};
SymbolValues symbols_of(const Calls& c) {
  return {{"B", c.sequences}, {"S", c.queries}, {"T", c.keys}, {"N", c.keys / 16}, {"P", 1}};
}
SymbolValues sizes_at(const GeneralKernel& general, const Calls& c) { return test::sizes_of(general, symbols_of(c)); }
Schedule best(const AttentionText& a, const Calls& calls, uint32_t allowed = ir::kBf16Dots) {
  const GeneralKernel general = general_kernel(test::up_to(test::kernel_of(attention_text(a)), symbols_of(calls)));
  const auto made = device_schedule(general, sizes_at(general, calls), gpu("h200"), allowed);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? made->schedule : Schedule{};
}

// Where there are queries enough to fill tensor cores, and the caller allows what they round.
TEST(AttentionChoice, TilesOfManyQueries) {
  const AttentionText a = {"bf16", 32, 8, 128, 128};
  EXPECT_EQ(best(a, {1, 4096, 4096}).recipe, "tensor_attention.1");
  EXPECT_EQ(best(a, {1, 128, 4096}).recipe, "tensor_attention.1");
  EXPECT_EQ(best(a, {1, 4096, 4096}).knobs.count("split"), 0u);
  // Weights keep all their bits where nothing else is allowed.
  const Schedule exact = best(a, {1, 4096, 4096}, 0);
  EXPECT_EQ(exact.recipe, "tensor_attention.1");
  EXPECT_EQ(exact.knobs.at("split"), 1);
  EXPECT_EQ(exact.numeric & ir::kBf16Dots, 0u);
  EXPECT_EQ(best(a, {1, 1, 4096}).knobs.at("heads"), 1);
  EXPECT_GE(best(a, {1, 8192, 8192}).knobs.at("rows"), 64);
  const GeneralKernel general = general_attention(a);
  for (const char* name : {"a100", "l40s", "h200", "rtx5090"}) {
    const auto tiles = attention_tiles_of(general, sizes_at(general, {1, 2048, 2048}), gpu(name), ir::kBf16Dots);
    ASSERT_TRUE(tiles.ok() && tiles->size() > 2) << name;
    for (const AttentionTile& t : *tiles) EXPECT_LE(shared_bytes(t, 128, 128), ir::most_shared(gpu(name)));
  }
}

TEST(AttentionChoice, TilesOfHeads) {
  const auto cache = [](int64_t heads, int64_t kept) {
    return AttentionText{"bf16", heads, kept, 128, 128, true, 0, true};
  };
  for (const uint32_t allowed : {0u, uint32_t{ir::kBf16Dots}}) {
    const Schedule decode = best(cache(32, 8), {32, 1, 8192}, allowed);
    EXPECT_EQ(decode.recipe, "tensor_attention.1");
    EXPECT_EQ(decode.knobs.at("heads"), 1);
    EXPECT_EQ(decode.knobs.at("rows"), 16);
    EXPECT_EQ(decode.knobs.count("split"), allowed == 0 ? 1u : 0u);
    // Few sequences have their keys divided.
    const Schedule one = best(cache(32, 4), {1, 1, 16384}, allowed);
    EXPECT_EQ(one.knobs.at("heads"), 1);
    EXPECT_GE(one.knobs.at("part"), 64);
    // Each head has keys of its own; many queries fill a tile of one head.
    EXPECT_EQ(best(cache(32, 32), {8, 1, 4096}, allowed).knobs.count("heads"), 0u);
    EXPECT_EQ(best(cache(32, 32), {1, 1, 4096}, allowed).recipe, "attention.1");
    EXPECT_EQ(best(cache(32, 8), {4, 4096, 4096}, allowed).knobs.count("heads"), 0u);
  }
}

TEST(AttentionChoice, MasksAndWindows) {
  const AttentionText masked = {"bf16", 32, 8, 128, 128, true, 0, true, false, Mask::queries};
  EXPECT_EQ(best(masked, {4, 1024, 4096}).recipe, "tensor_attention.1");
  EXPECT_EQ(best(masked, {4, 1, 4096}).knobs.at("heads"), 1);
  for (const bool pages : {false, true}) {
    const AttentionText window = {"bf16", 32, 8, 128, 128, true, 1024, !pages, pages};
    EXPECT_EQ(best(window, {1, 4096, 4096}).recipe, "tensor_attention.1");
    EXPECT_EQ(best(window, {32, 1, 8192}).knobs.at("heads"), 1);
  }
  // A window smaller than the least tile has a Schedule, too.
  EXPECT_EQ(best({"bf16", 32, 8, 128, 128, true, 9}, {32, 1, 8192}).knobs.count("heads"), 0u);
}

// Bytes and unequal sequences have tiles where equal ones of halves have.
TEST(AttentionChoice, BytesAndUnequalSequences) {
  const auto best_of = [&](const test::AttentionOp& op, const SymbolValues& symbols, uint32_t allowed) {
    const GeneralKernel general = general_kernel(test::up_to(kernel_of_op(op), symbols));
    const auto made = device_schedule(general, test::sizes_of(general, symbols), gpu("h200"), allowed);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? made->schedule : Schedule{};
  };
  const auto cache = [](int64_t b, int64_t s, int64_t t) { return SymbolValues{{"B", b}, {"S", s}, {"T", t}}; };
  const auto rows = [](int64_t b, int64_t r, int64_t keys) {
    return SymbolValues{{"B", b}, {"R", r}, {"P", 1}, {"N", keys / 16}};
  };
  for (const uint32_t allowed : {0u, uint32_t{ir::kBf16Dots}}) {
    const test::AttentionOp bytes = {.heads = 32, .kept = 8, .depth = 128, .columns = 128, .bytes = true};
    EXPECT_EQ(best_of(bytes, cache(2, 2048, 4096), allowed).recipe, "tensor_attention.1");
    EXPECT_EQ(best_of(bytes, cache(32, 1, 8192), allowed).knobs.at("heads"), 1);
    const test::AttentionOp ragged = {.op = "ragged_attention", .heads = 32, .kept = 8, .depth = 128, .columns = 128};
    const Schedule prompts = best_of(ragged, rows(4, 4096, 4096), allowed);
    EXPECT_EQ(prompts.recipe, "tensor_attention.1");
    EXPECT_EQ(prompts.knobs.count("heads"), 0u);
    EXPECT_EQ(best_of(ragged, rows(32, 32, 8192), allowed).knobs.at("heads"), 1);
  }
}

// The Schedule is proven safe, and each of its launches becomes a device program.
void expect_lowered(const GeneralKernel& general, const Scheduled& made) {
  const ir::Status safe = check_safe(general.kernel, made.kernel);
  EXPECT_TRUE(safe.ok()) << safe.to_string();
  const auto cut = cut_launches(made.kernel);
  ASSERT_TRUE(cut.ok()) << cut.status().to_string();
  for (const ir::Leaf& leaf : cut->leaves) {
    const auto program = jit::lower_device(leaf);
    EXPECT_TRUE(program.ok()) << program.status().to_string();
  }
}

// Depths and columns that are no whole squares, or too many, and groups of any size have a Schedule as well.
TEST(AttentionChoice, EveryHeadAndGroupIsServed) {
  const auto expect_served = [](const AttentionText& a, const Calls& calls) {
    SCOPED_TRACE(testing::Message() << a.heads << " heads of " << a.kept << ", " << a.depth << " to " << a.columns);
    const GeneralKernel general = general_attention(a);
    const auto made = device_schedule(general, sizes_at(general, calls), gpu("h200"), ir::kBf16Dots);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    const bool squares = a.depth % 16 == 0 && a.columns % 16 == 0 && std::max(a.depth, a.columns) <= 256;
    if (!squares) {
      EXPECT_EQ(made->schedule.recipe, "attention.1");
    }
    expect_lowered(general, *made);
  };
  const Calls prompt = {1, 1024, 1024}, decode = {8, 1, 4096};
  for (const int64_t depth : {1, 7, 17, 61, 80, 127, 129, 240, 256, 257}) {
    for (const Calls& calls : {prompt, decode}) expect_served({"bf16", 8, 2, depth, depth, true, 0, true}, calls);
  }
  expect_served({"f16", 16, 1, 576, 512, true, 0, true}, decode);
  expect_served({"bf16", 6, 2, 256, 31, true, 0, true}, prompt);
  for (const int64_t group : {1, 3, 7, 13, 17, 71}) {
    for (const int64_t kept : {1, 3}) expect_served({"bf16", group * kept, kept, 64, 64, true, 0, true}, decode);
  }
}

// Sizes that are known leave whole blocks and tiles of a known number of iterations, which nothing is added to.
TEST(AttentionChoice, KnownSizesAreServed) {
  int on_tensor_cores = 0;
  const std::pair<int64_t, int64_t> sizes_of_calls[] = {{1, 4096},    {1, 4099},    {1, 82},     {1, 16},    {16, 16},
                                                        {64, 64},     {100, 100},   {100, 256},  {128, 128}, {512, 512},
                                                        {2048, 2048}, {2047, 2048}, {2049, 2049}};
  for (const bool causal : {true, false}) {
    for (const auto& [queries, keys] : sizes_of_calls) {
      SCOPED_TRACE(testing::Message() << queries << " queries, " << keys << " keys" << (causal ? ", causal" : ""));
      const GeneralKernel general = general_kernel(test::fixed_attention({2, queries, keys, causal}, 128));
      const SymbolValues sizes = test::sizes_of(general, {});
      const auto made = device_schedule(general, sizes, gpu("h200"), ir::kBf16Dots);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      const bool tensor = made->schedule.recipe == "tensor_attention.1";
      on_tensor_cores += tensor;
      EXPECT_TRUE(tensor || queries < 512) << to_text(made->schedule);
      expect_lowered(general, *made);
    }
  }
  EXPECT_GE(on_tensor_cores, 16);
}

// A ring goes round: as many blocks of keys as there are would be loaded by one run of code, whose registers are
// spilled.
TEST(AttentionChoice, RingsAreShorterThanTheKeys) {
  for (const int64_t keys : {17, 63, 64, 65, 82, 127, 129, 300}) {
    SCOPED_TRACE(keys);
    const GeneralKernel general = general_kernel(test::fixed_attention({2, 1, keys, true}, 128));
    const auto tiles = attention_tiles_of(general, test::sizes_of(general, {}), gpu("h100"), ir::kBf16Dots);
    ASSERT_TRUE(tiles.ok()) << tiles.status().to_string();
    for (const AttentionTile& t : *tiles) EXPECT_TRUE(t.stages == 1 || t.stages * t.keys < keys) << t.keys;
  }
}

// Few sequences fill the GPU by parts of their keys, and many by blocks that fit side by side: several of them on each
// multiprocessor, each with copies on their way.
TEST(AttentionChoice, DecodeFillsTheMultiprocessors) {
  const AttentionText a = {"bf16", 16, 4, 128, 128, true, 0, true};
  for (const int64_t sequences : {1, 3, 8, 32, 33, 64}) {
    SCOPED_TRACE(sequences);
    const Schedule made = best(a, {sequences, 1, 8192});
    ASSERT_EQ(made.recipe, "tensor_attention.1");
    ASSERT_EQ(made.knobs.count("part"), 1u);
    EXPECT_GE(made.knobs.at("stages"), 2);
    const int64_t blocks = sequences * 4 * (8192 / made.knobs.at("part"));
    EXPECT_GE(blocks, 132);
    EXPECT_LE(blocks, 132 * 32);
  }
}

// Values of f16 have no numbers that a weight is a sum of.
TEST(AttentionChoice, HalvesAreRoundedOrTheyStay) {
  const AttentionText a = {"f16", 32, 8, 128, 128};
  EXPECT_EQ(best(a, {1, 2048, 2048}, 0).recipe, "attention.1");
  EXPECT_EQ(best(a, {1, 2048, 2048}).recipe, "tensor_attention.1");
  EXPECT_THAT(tensor_attention(general_attention(a), test::of_queries(64, 32, 2, true)).status().message(),
              ::testing::HasSubstr("not bf16"));
}

TEST(AttentionChoice, CandidatesAreReplayed) {
  const AttentionText plain = {"bf16", 8, 2, 64, 64}, window = {"bf16", 8, 2, 64, 64, true, 128};
  for (const auto& [form, calls] :
       {std::pair{plain, Calls{4, 700, 700}}, {plain, {4, 1, 3000}}, {window, {1, 700, 700}}}) {
    const GeneralKernel general = general_kernel(test::up_to(test::kernel_of(attention_text(form)), symbols_of(calls)));
    const auto ranked = device_candidates(general, sizes_at(general, calls), gpu("h200"), 9, ir::kBf16Dots);
    ASSERT_TRUE(ranked.ok()) << ranked.status().to_string();
    EXPECT_EQ(ranked->front().schedule.recipe, "tensor_attention.1");
    EXPECT_EQ(ranked->front().schedule.knobs.count("heads"), calls.queries == 1 ? 1u : 0u);
    const auto without = std::count_if(ranked->begin(), ranked->end(),
                                       [](const Scheduled& s) { return s.schedule.recipe == "attention.1"; });
    EXPECT_GE(without, 1);
    for (const Scheduled& made : *ranked) {
      const auto again = replay_on_device(general, parse_schedule(to_text(made.schedule)).value());
      ASSERT_TRUE(again.ok()) << again.status().to_string();
      EXPECT_EQ(print(again->kernel), print(made.kernel));
    }
  }
}

}  // namespace
}  // namespace lathe::search
