// Hinted ranges without a decision serve by defaults of their own, which the first call there makes: which Schedule
// serves where, right results at the ends of the ranges, one copy of each constant, and nothing made by a resolve or
// after a seal.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "runtime/capi/handle.h"
#include "tests/common/c_client.h"
#include "tests/common/generators.h"

namespace lathe::runtime {
namespace {

using test::Floats;

constexpr size_t kK = 320, kN = 512;
const PrepareRequest kCold{.cold = true, .caller_waits = true};  // one row reads the weight from memory

std::shared_ptr<Context> in_memory() {
  ContextConfig config;
  EXPECT_TRUE(config.options.set("cache", "off").ok());
  return Context::create(std::move(config)).value();
}

// y[M, N] = x[M, K] * w[K, N], w constant.
ops::Graph linear_graph(std::vector<ops::Hint> hints) {
  ops::Graph g;
  g.name = "linear";
  const int x = ops::add_tensor(g, "x", {ops::symbol_dim("M", 1, 512, std::move(hints)), ops::fixed_dim(kK)});
  const int w = ops::add_tensor(g, "w", {ops::fixed_dim(kK), ops::fixed_dim(kN)}, true);
  g.outputs = {ops::add_node(g, "matmul", {x, w}, "y")};
  return ops::finish(g).value();
}

const ServedStage& stage_at(Operator& op, int64_t m, bool packed = true) {
  const ir::Result<const BoundOp*> bound =
      op.shapes().bound({.symbols = {{ops::kernel_symbol("M"), m}}, .packed = packed});
  EXPECT_TRUE(bound.ok()) << m << ": " << bound.status().to_string();
  return *bound.value()->steps[0].stage;
}

SymbolRange range_of(const ServedStage& stage) { return stage.range.find("M")->second; }

TEST(RangeDefaults, HintedRangesServeByTheirOwn) {
  const std::shared_ptr<Context> ctx = in_memory();
  if (!ctx->leaves().native(ctx->target())) GTEST_SKIP() << "no code on this level";
  const std::shared_ptr<Operator> op = Operator::create(ctx, linear_graph({{1, 1}, {8, 1}, {128, 1}})).value();
  const PrepareInfo info = op->stages().prepare(kCold).value();
  EXPECT_EQ(info.tier, 1);
  EXPECT_TRUE(info.missed);
  const int64_t told = op->shapes().hinted_workspace(1, true, false).value();
  EXPECT_EQ(op->stages().of(0).size(), 1u);
  const uint64_t before = search::moves_applied();
  const ServedStage& one = stage_at(*op, 1);
  EXPECT_GT(search::moves_applied(), before) << "a resolve has made it already";
  EXPECT_EQ(range_of(one), (SymbolRange{1, 1}));
  EXPECT_FALSE(one.decided);
  EXPECT_EQ(one.tier, 1);
  const ServedStage& whole = stage_at(*op, 128);
  EXPECT_EQ(range_of(whole).hi, 512);
  EXPECT_NE(one.stage.schedule.knobs, whole.stage.schedule.knobs);
  const uint64_t after = search::moves_applied();
  for (const int64_t m : {2, 3, 4, 9, 64, 65, 129, 512}) EXPECT_EQ(&stage_at(*op, m), &whole) << m;
  EXPECT_EQ(search::moves_applied(), after) << "made for a range that nobody hinted";
  EXPECT_EQ(&stage_at(*op, 5), &stage_at(*op, 8));
  ASSERT_EQ(one.stage.packed.size(), whole.stage.packed.size());
  for (size_t p = 0; p < one.stage.packed.size(); ++p)
    EXPECT_EQ(one.stage.packed[p].pack, whole.stage.packed[p].pack) << "one copy of the constant serves all ranges";
  for (const int64_t m : {1, 8, 128})
    EXPECT_LE(op->shapes().bound({.symbols = {{"M", m}}, .packed = true}).value()->workspace_bytes, told) << m;
}

// Equal knobs are not equal moves: how much of the next panel a tile fetches depends on how many tiles there are.
TEST(RangeDefaults, EachHintIsServedByTheMovesOfItsDefault) {
  const std::shared_ptr<Context> ctx = in_memory();
  if (!ctx->leaves().native(ctx->target())) GTEST_SKIP() << "no code on this level";
  const std::shared_ptr<Operator> op = Operator::create(ctx, linear_graph({{8, 1}, {16, 1}, {32, 1}})).value();
  ASSERT_TRUE(op->stages().prepare(kCold).ok());
  for (const int64_t m : {8, 16, 32}) {
    search::Problem p = op->problem(0, {{"M", m}}, kCold);
    p.unhurried = false;
    const search::Schedule own = search::default_schedule(p, ctx->target());
    const ServedStage& stage = stage_at(*op, m);
    EXPECT_EQ(to_text(stage.stage.schedule), to_text(own)) << m;
  }
}

TEST(RangeDefaults, TheWholeRangesServesWhereOneRangeIsHinted) {
  for (const std::vector<ops::Hint>& hints : {std::vector<ops::Hint>{}, {{1, 1}}, {{128, 1}}, {{70, 1}, {128, 1}}}) {
    const std::shared_ptr<Operator> op = Operator::create(in_memory(), linear_graph(hints)).value();
    ASSERT_TRUE(op->stages().prepare(kCold).ok());
    for (const int64_t m : {1, 70, 128, 512}) EXPECT_EQ(&stage_at(*op, m), op->stages().of(0)[0].get()) << m;
  }
}

TEST(RangeDefaults, ASealMakesThemFirst) {
  const std::shared_ptr<Context> ctx = in_memory();
  if (!ctx->leaves().native(ctx->target())) GTEST_SKIP() << "no code on this level";
  const std::shared_ptr<Operator> op = Operator::create(ctx, linear_graph({{1, 1}, {128, 1}})).value();
  ASSERT_TRUE(op->stages().prepare(kCold).ok());
  ASSERT_TRUE(op->stages().complete().ok());
  ctx->set_seal(Seal::error);
  EXPECT_EQ(range_of(stage_at(*op, 1)), (SymbolRange{1, 1}));
  EXPECT_EQ(ctx->stats().get(Stat::k_compiles_after_seal), 0);
}

// Calls of many threads at once make it once, or several times and keep one.
TEST(RangeDefaults, AllCallersGetTheSame) {
  const std::shared_ptr<Operator> op = Operator::create(in_memory(), linear_graph({{1, 1}, {128, 1}})).value();
  ASSERT_TRUE(op->stages().prepare(kCold).ok());
  std::vector<const ServedStage*> got(4);
  std::vector<std::thread> callers;
  for (const ServedStage*& stage : got) callers.emplace_back([&] { stage = &stage_at(*op, 1); });
  for (std::thread& t : callers) t.join();
  for (const ServedStage* stage : got) EXPECT_EQ(stage, got[0]);
}

TEST(RangeDefaults, ADecisionGoesBeforeThem) {
  const std::shared_ptr<Context> ctx = in_memory();
  if (!ctx->leaves().native(ctx->target())) GTEST_SKIP() << "no code on this level";
  const std::shared_ptr<Operator> op = Operator::create(ctx, linear_graph({{1, 1}, {128, 1}})).value();
  const SymbolValues dims{{"M", 1}};
  const search::Problem p = op->problem(0, dims, kCold);
  Decision decision;
  decision.status = DecisionStatus::verified;
  decision.kernel = p.kernel.name;
  decision.best_us = decision.default_us = 1;
  decision.schedule = search::to_text(search::default_schedule(p, ctx->target()));
  decision.numeric = search::default_scheduled(p, ctx->target()).kernel.numeric;
  ctx->record_decision(op->query(0, dims, kCold), decision);
  ASSERT_TRUE(op->stages().prepare(kCold).ok());
  EXPECT_TRUE(stage_at(*op, 1).decided);
  EXPECT_EQ(stage_at(*op, 1).tier, 2);
}

// A sealed process makes no code: what serves the whole range serves hinted ranges.
TEST(RangeDefaults, NothingIsMadeUnderASeal) {
  const std::shared_ptr<Context> ctx = in_memory();
  if (!ctx->leaves().native(ctx->target())) GTEST_SKIP() << "no code on this level";
  const ops::Graph graph = linear_graph({{1, 1}, {128, 1}});
  const std::shared_ptr<Operator> before = Operator::create(ctx, linear_graph({{128, 1}})).value();
  ASSERT_TRUE(before->stages().prepare({}).ok());
  ctx->set_seal(Seal::fallback);
  const std::shared_ptr<Operator> op = Operator::create(ctx, graph).value();
  ASSERT_TRUE(op->stages().prepare(kCold).ok());
  EXPECT_EQ(range_of(stage_at(*op, 1)).hi, 512);
  EXPECT_EQ(ctx->stats().get(Stat::k_compiles_after_seal), 0);
  EXPECT_EQ(ctx->stats().get(Stat::k_ranges_by_whole), 0) << "nobody asked what its own would have been";
}

// Four of a Kernel, besides the largest hint's: one more is counted once, and the whole range's serves there.
TEST(RangeDefaults, TooManyAreCounted) {
  std::vector<ops::Hint> hints = {{1, 1}, {2, 1}, {4, 1}, {8, 1}, {128, 1}};
  for (const bool fifth : {false, true}) {
    const std::shared_ptr<Context> ctx = in_memory();
    if (!ctx->leaves().native(ctx->target())) GTEST_SKIP() << "no code on this level";
    if (fifth) hints.insert(hints.end() - 1, {32, 1});
    const std::shared_ptr<Operator> op = Operator::create(ctx, linear_graph(hints)).value();
    for (int again = 0; again < 2; ++again) ASSERT_TRUE(op->stages().prepare(kCold).ok());
    EXPECT_EQ(ctx->stats().get(Stat::k_ranges_by_whole), 0) << "counted before a call wants it";
    ASSERT_TRUE(op->stages().complete().ok());
    if (fifth)
      EXPECT_EQ(ctx->stats().get(Stat::k_ranges_by_whole), 1);
    else
      EXPECT_EQ(ctx->stats().get(Stat::k_ranges_by_whole), 0);
    EXPECT_EQ(range_of(stage_at(*op, 1)), (SymbolRange{1, 1}));
    EXPECT_EQ(range_of(stage_at(*op, 32)).hi, 512) << "as the fifth, or because nobody hinted it";
  }
}

// Through the C ABI, sealed: the ends of the ranges, constants packed and as they lie.
TEST(RangeDefaults, ResultsAreRightAtTheEndsOfRanges) {
  const auto ctx = test::make_context();
  lathe_dim rows = test::range("M", 1, 512);
  const lathe_hint hints[] = {{1, 1.0}, {8, 1.0}, {128, 1.0}};
  rows.hints = hints;
  rows.num_hints = 3;
  const auto graph = test::matmul_graph(ctx.get(), rows, kK, kN);
  lathe_policy policy = LATHE_POLICY_INIT;
  policy.cold = 1;
  lathe_kernel* resolved = nullptr;
  lathe_error e{};
  ASSERT_EQ(lathe_resolve(ctx.get(), graph.get(), &policy, &resolved, nullptr, &e), LATHE_STATUS_OK) << e.message;
  const test::Owned<lathe_kernel> kernel(resolved);
  ASSERT_EQ(lathe_seal(ctx.get(), LATHE_SEAL_ERROR, &e), LATHE_STATUS_OK) << e.message;
  Floats w({kK, kN});
  w.numbers(4);
  for (const int64_t m : {0, 1, 2, 4, 5, 7, 8, 9, 64, 65, 127, 128, 129}) {
    Floats x({m, kK});
    x.numbers(1);
    for (const bool packed : {false, true}) {
      Floats y({m, kN}, NAN);
      lathe_arg args[] = {x.arg(), w.arg(), y.arg()};
      ASSERT_EQ(test::run_with_weight(kernel.get(), args, packed, 1, &e), LATHE_STATUS_OK) << e.message;
      for (size_t i = 0; i < y.data.size(); ++i) {
        const float* row = x.data.data() + i / kN * kK;
        float want = 0;
        for (size_t k = 0; k < kK; ++k) want += row[k] * w.data[k * kN + i % kN];
        ASSERT_EQ(y.data[i], want) << m << " rows, " << (packed ? "packed" : "as they lie") << ": " << i;
      }
    }
  }
  uint64_t after = 1;
  EXPECT_EQ(lathe_stats(ctx.get(), "compiles_after_seal", &after, nullptr), LATHE_STATUS_OK);
  EXPECT_EQ(after, 0u);
}

}  // namespace
}  // namespace lathe::runtime
