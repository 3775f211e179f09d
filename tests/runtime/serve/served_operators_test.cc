// Who shares an operator, and what a search puts in its place; searches and the tuner are the test's.
#include "runtime/serve/served_operators.h"

#include <gtest/gtest.h>

#include "ops/graph.h"

namespace lathe::runtime {
namespace {

ops::Graph rows(const std::string& name, int64_t columns) {
  ops::Graph g;
  g.name = name;
  const int x = ops::add_tensor(g, "x", {ops::fixed_dim(16), ops::fixed_dim(columns)});
  g.outputs = {ops::add_node(g, "softmax", {x}, "y")};
  return ops::finish(g).value();
}

struct Served {
  Served() {
    ContextConfig config;
    EXPECT_TRUE(config.options.set("cache", "off").ok());
    context = Context::create(std::move(config)).value();
    operators = std::make_unique<ServedOperators>(
        context, ServedOperators::Hooks{
                     [this](const ops::Graph&, const PrepareRequest&, double left_ms) {
                       left = left_ms;
                       return ir::Result<Tuned>(tuned);
                     },
                     [this](const std::shared_ptr<Operator>& op, const PrepareRequest&) { serving.push_back(op); }});
  }
  ServedOperators::Found ask(const ops::Graph& graph, int threads = 1, Wait wait = Wait::now) {
    ServeRequest request;
    request.prepare.threads = threads;
    request.wait = wait;
    return operators->serve(graph, request).value();
  }
  std::shared_ptr<Context> context;
  std::unique_ptr<ServedOperators> operators;
  Tuned tuned;
  double left = 0;
  std::vector<std::shared_ptr<Operator>> serving;
};

TEST(ServedOperators, NamesDoNotTellOperatorsApartThreadsAndSizesDo) {
  Served s;
  const ServedOperators::Found first = s.ask(rows("a", 40)), again = s.ask(rows("b", 40));
  EXPECT_TRUE(first.info.made);
  EXPECT_FALSE(again.info.made);
  EXPECT_EQ(first.op, again.op);
  EXPECT_EQ(again.info.origin, LeafOrigin::memory);
  EXPECT_NE(s.ask(rows("a", 40), 2).op, first.op);
  EXPECT_NE(s.ask(rows("a", 48)).op, first.op);
  EXPECT_EQ(s.operators->size(), 3u);
  EXPECT_EQ(s.serving.size(), 3u) << "each is told of once";
}

TEST(ServedOperators, ASearchPutsAnotherOperatorInItsPlace) {
  Served s;
  const ops::Graph graph = rows("a", 40);
  const ServedOperators::Found before = s.ask(graph);
  s.tuned.searched = true;
  const ServedOperators::Found after = s.ask(graph, 1, Wait::tuned);
  EXPECT_EQ(s.left, kNoLimitMs);
  EXPECT_NE(after.op, before.op);
  EXPECT_EQ(after.served, before.served);
  EXPECT_EQ(after.served->generation.load(), 1u);
  ASSERT_EQ(s.serving.size(), 2u);
  EXPECT_EQ(s.serving[1], after.op);
  EXPECT_EQ(s.ask(graph).op, after.op);
}

TEST(ServedOperators, WhatASearchMissedIsSaidAndWhatServedStays) {
  Served s;
  const ops::Graph graph = rows("a", 40);
  const std::shared_ptr<Operator> before = s.ask(graph).op;
  s.tuned.missed = MissReason::k_no_worker;
  const ServedOperators::Found after = s.ask(graph, 1, Wait::tuned);
  EXPECT_EQ(after.op, before);
  EXPECT_TRUE(after.info.missed);
  EXPECT_EQ(after.info.miss, MissReason::k_no_worker);
  EXPECT_EQ(s.context->stats().misses(MissReason::k_no_worker), 1);
}

TEST(ServedOperators, WhatIsForgottenIsMadeAnew) {
  Served s;
  const ops::Graph graph = rows("a", 40);
  const ServedOperators::Found before = s.ask(graph);
  s.operators->forget_untuned();
  EXPECT_EQ(s.operators->size(), 0u);
  EXPECT_EQ(before.served->generation.load(), 1u) << "its kernels are told";
  EXPECT_NE(s.ask(graph).op, before.op);
}

}  // namespace
}  // namespace lathe::runtime
