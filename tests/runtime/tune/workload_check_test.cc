// The whole-workload check on real operators: nothing to drop where nothing was tuned, and a planted slow winner is
// found.
#include "runtime/tune/workload_check.h"

#include <gtest/gtest.h>

#include "ops/graph.h"
#include "search/sketches/recipe.h"
#include "tests/common/generators.h"

namespace lathe::runtime {
namespace {

std::shared_ptr<Context> memory_context() {
  ContextConfig config;
  EXPECT_TRUE(config.options.set("cache", "off").ok());
  EXPECT_TRUE(config.options.set("max_isa", "avx2").ok());
  auto context = Context::create(std::move(config));
  EXPECT_TRUE(context.ok()) << context.status().to_string();
  return *context;
}

ops::Graph gate() {
  ops::Graph g;
  g.name = "gate";
  const int x = ops::add_tensor(g, "x", {ops::symbol_dim("M", 1, 64, {{8, 1}, {32, 1}}), ops::fixed_dim(64)});
  const int w =
      ops::add_tensor(g, "w", {ops::fixed_dim(64), ops::fixed_dim(96)});  // not packed: the naive Kernel serves it too
  g.outputs = {ops::add_node(g, "matmul", {x, w}, "y")};
  auto done = ops::finish(g);
  EXPECT_TRUE(done.ok()) << done.status().to_string();
  return *done;
}

CheckedCall call_at(const std::shared_ptr<Operator>& op, size_t hint) {
  CheckedCall call;
  call.op = op;
  call.dims = op->hinted_dims()[hint];
  return call;
}

TEST(WorkloadCheck, UntunedOperatorsLoseNothing) {
  const auto op = Operator::create(memory_context(), gate());
  ASSERT_TRUE(op.ok());
  ASSERT_TRUE((*op)->stages().prepare({}).ok());
  const auto check = check_workload((*op)->context(), {call_at(*op, 0), call_at(*op, 1)}, {});
  ASSERT_TRUE(check.ok()) << check.status().to_string();
  EXPECT_EQ(check->groups, 2);
  EXPECT_EQ(check->left_out, 0);
  EXPECT_TRUE(check->dropped.empty());
}

TEST(WorkloadCheck, AWinnerThatIsNoneIsDropped) {
  if (!jit::backend_built(jit::Backend::xbyak)) GTEST_SKIP() << "built with LATHE_XBYAK=OFF";
  const auto context = memory_context();
  auto op = Operator::create(context, gate());
  ASSERT_TRUE(op.ok());
  const SymbolValues dims = (*op)->hinted_dims()[1];
  // The naive Kernel as a decision: many times slower than the default.
  search::Schedule naive;
  naive.family = "matmul";
  Decision decision;
  decision.status = DecisionStatus::verified;
  decision.best_us = 1;
  decision.default_us = 2;
  decision.kernel = "gate";
  decision.schedule = search::to_text(naive);
  context->record_decision((*op)->query(0, dims, {}), decision);
  ASSERT_TRUE((*op)->stages().prepare({}).ok());
  CheckedCall slow = call_at(*op, 1);
  WorkloadCheckOptions options;
  options.rules.drift = 100;  // a busy machine does not hide a factor of ten
  const auto check = check_workload(*context, {call_at(*op, 0), slow}, options);
  ASSERT_TRUE(check.ok()) << check.status().to_string();
  EXPECT_EQ(check->dropped, std::vector<int>{1});
}

TEST(WorkloadCheck, WhatDoesNotFitIsLeftOut) {
  const auto op = Operator::create(memory_context(), gate());
  ASSERT_TRUE(op.ok());
  ASSERT_TRUE((*op)->stages().prepare({}).ok());
  WorkloadCheckOptions options;
  options.ram = 1 << 10;
  const auto check = check_workload((*op)->context(), {call_at(*op, 0)}, options);
  ASSERT_TRUE(check.ok());
  EXPECT_EQ(check->left_out, 1);
  EXPECT_EQ(check->groups, 0);
}

}  // namespace
}  // namespace lathe::runtime
