// Lengths that nobody hinted: after a warm-up of an operator with several hints they serve by the defaults of their own
// ranges, from the store.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "runtime/tune/warmup.h"
#include "search/sketches/recipe.h"
#include "tests/runtime/store/store_util.h"

namespace lathe::runtime {
namespace {

// A matmul of M <= 256 rows, hinted at 1 and 8, and what else is in the file.
std::vector<ops::Workload> workload() {
  std::ifstream in(LATHE_SOURCE_DIR "/tests/tools/data/small.jsonl");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return ops::parse_manifest(text).value();
}

// Without a worker: hinted shapes are left to their defaults, too, and nothing is timed.
std::shared_ptr<Context> context_of(const std::string& store) {
  ContextConfig config;
  config.layers = {{store, LayerMode::private_rw}};
  (void)config.options.set(ir::OptionId::worker, "/nonexistent/worker").ok();
  return Context::create(std::move(config)).value();
}

std::shared_ptr<Operator> gate(const std::shared_ptr<Context>& context) {
  auto op = Operator::create(context, ops::finish(workload()[0].graph).value()).value();
  EXPECT_TRUE(op->stages().prepare({}).ok());
  return op;
}

const ServedStage& stage_at(Operator& op, int64_t m) {
  const ir::Result<const BoundOp*> bound = op.shapes().bound({.symbols = {{"M", m}}, .packed = true});
  EXPECT_TRUE(bound.ok()) << m << ": " << bound.status().to_string();
  return *bound.value()->steps[0].stage;
}

int served(const std::shared_ptr<Context>& context, double wall_ms = 60'000) {
  WarmupBudget budget;
  budget.wall_ms = wall_ms;
  return run_warmup(context, workload(), budget).value().between;
}

TEST(Unhinted, EveryRangeNearTheHintsServesByItsOwnDefault) {
  const TempDir store;
  EXPECT_EQ(served(context_of(store.path()), 0), 0) << "without time it is a dry run";
  EXPECT_GE(served(context_of(store.path())), 2);
  const std::shared_ptr<Context> context = context_of(store.path());
  if (!context->leaves().native(context->target())) GTEST_SKIP() << "no code on this level";
  const std::shared_ptr<Operator> op = gate(context);
  for (const int64_t m : {2, 3, 4, 9, 16, 30, 32}) {
    const ServedStage& stage = stage_at(*op, m);
    const SymbolRange range = stage.range.find("M")->second;
    ASSERT_TRUE(stage.decided) << m;
    EXPECT_EQ(stage.tier, 1) << m;
    EXPECT_LT(range.hi, 256) << m;
    const search::Problem own = op->problem_in(0, {range}, {{"M", range.hi}}, {});
    EXPECT_EQ(search::to_text(stage.stage.schedule), search::to_text(search::default_schedule(own, context->target())));
  }
  EXPECT_FALSE(stage_at(*op, 33).decided) << "beyond four times the largest hint the whole range's stage serves";
  EXPECT_EQ(context->stats().get(Stat::k_compiled_xbyak), 0);
  EXPECT_EQ(served(context), 0) << "all of it is there";
}

TEST(Unhinted, WhatIsStoredForARangeStays) {
  const TempDir store;
  const std::shared_ptr<Context> context = context_of(store.path());
  const std::shared_ptr<Operator> op = gate(context);
  const DecisionQuery wide = op->query_in(0, {{9, 32}}, {});
  Decision measured;
  measured.status = DecisionStatus::provisional;
  measured.kernel = "gate";
  measured.schedule =
      search::to_text(search::default_schedule(op->problem_in(0, {{9, 32}}, {{"M", 32}}, {}), context->target()));
  measured.best_us = measured.default_us = 5;
  context->record_decision(wide, measured);
  EXPECT_GE(served(context), 1);
  for (const std::vector<SymbolRange>& ranges : context->decision_ranges(op->query_in(0, {}, {}))) {
    EXPECT_TRUE(ranges[0].lo < 9 || ranges[0] == (SymbolRange{9, 32})) << ranges[0].lo;
  }
  EXPECT_EQ(context->find_decision(wide)->best_us, 5);
}

}  // namespace
}  // namespace lathe::runtime
