// What a warm-up without a search leaves in the store: defaults that nobody has to wait for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/tune/warmup.h"
#include "tests/runtime/store/store_util.h"

namespace lathe::runtime {
namespace {

std::shared_ptr<Context> context_of(const std::string& store) {
  ContextConfig config;
  config.layers = {{store, LayerMode::private_rw}};
  return Context::create(std::move(config)).value();
}

// Hinted at one row and at another number.
std::vector<ops::Workload> workload(int other) {
  const std::string hints = fmt::format(R"("hints":[{{"value":1,"weight":1}},{{"value":{},"weight":1}}]}}}},)", other);
  return ops::parse_manifest(R"({"name":"mm","graph":{"tensors":{"x":{"dtype":"f32","dims":["M",256]},)"
                             R"("w":{"dtype":"f32","dims":[256,256],"const":true}},)"
                             R"("nodes":[{"op":"matmul","in":["x","w"],"out":"y"}],"outputs":["y"]},)"
                             R"("dims":{"M":{"min":1,"max":4096,"multiple_of":1,)" +
                             hints + R"("threads":1,"cache":"cold","allowed":[],"weight":1})")
      .value();
}

// Rows of the tile that serves M.
int64_t tile_rows(Operator& op, int64_t m) {
  const auto bound = op.shapes().bound({.symbols = {{"M", m}}, .threads = 1, .packed = true});
  if (!bound.ok()) {
    ADD_FAILURE() << bound.status().to_string();
    return -1;
  }
  return search::knob_of((*bound)->steps[0].stage->stage.schedule.knobs, "mr");
}

TEST(WarmupDefaults, ATileMayHaveAllRowsOfAHintedRange) {
  const TempDir store;
  const std::vector<ops::Workload> items = workload(12);
  const auto fresh = [&](PrepareInfo* info) {
    std::shared_ptr<Operator> op =
        Operator::create(context_of(store.path()), ops::finish(items[0].graph).value()).value();
    *info = op->stages().prepare({.threads = 1, .cold = true}).value();
    return op;
  };
  PrepareInfo info;
  const std::shared_ptr<Operator> first = fresh(&info);
  if (!first->context().target().has(ir::IsaLevel::avx512)) GTEST_SKIP() << "needs the registers of AVX-512";
  EXPECT_LE(tile_rows(*first, 12), 8) << "a caller waits for its code";
  EXPECT_FALSE(info.unmeasured);

  WarmupBudget budget;
  budget.tier = 1;
  const auto warmed = [&] { return run_warmup(context_of(store.path()), items, budget, {}).value(); };
  const WarmupReport report = warmed();
  EXPECT_EQ(report.searches, 0);
  EXPECT_EQ(report.from_store, 0);
  EXPECT_EQ(warmed().from_store, 1) << "there is nothing left to do";

  const std::shared_ptr<Operator> later = fresh(&info);
  EXPECT_TRUE(info.unmeasured) << "a guess: a search replaces it";
  EXPECT_EQ(tile_rows(*later, 12), 12);
  EXPECT_EQ(tile_rows(*later, 9), 12) << "of the range of 12";
  EXPECT_LE(tile_rows(*later, 300), 8);
  EXPECT_EQ(later->context().stats().get(Stat::k_compiled_xbyak), 0);
}

// A sealed process makes no code, so the store has the defaults of hinted ranges.
TEST(WarmupDefaults, ASealedProcessServesHintedRangesByTheirOwn) {
  const TempDir store;
  const std::vector<ops::Workload> items = workload(128);
  WarmupBudget budget;
  budget.tier = 1;
  {
    const std::shared_ptr<Context> context = context_of(store.path());
    if (!context->leaves().native(context->target())) GTEST_SKIP() << "no code on this level";
    const WarmupReport report = run_warmup(context, items, budget, {}).value();
    EXPECT_EQ(report.failed, 0);
    EXPECT_EQ(report.searches, 0);
  }
  const std::shared_ptr<Context> context = context_of(store.path());
  context->set_seal(Seal::fallback);
  const std::shared_ptr<Operator> op = Operator::create(context, ops::finish(items[0].graph).value()).value();
  ASSERT_TRUE(op->stages().prepare({.threads = 1, .cold = true}).ok());
  const auto range_at = [&](int64_t m) {
    const BoundOp& bound = *op->shapes().bound({.symbols = {{"M", m}}, .threads = 1, .packed = true}).value();
    return bound.steps[0].stage->range.find("M")->second;
  };
  EXPECT_EQ(range_at(1), (SymbolRange{1, 1}));
  EXPECT_EQ(range_at(2).hi, 4096);
  EXPECT_EQ(context->stats().get(Stat::k_compiled_xbyak), 0);
  EXPECT_EQ(context->stats().get(Stat::k_compiles_after_seal), 0);
  EXPECT_EQ(context->stats().get(Stat::k_ranges_by_whole), 0);
}

}  // namespace
}  // namespace lathe::runtime
