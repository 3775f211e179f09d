// What a first resolve makes, counted: each move once, nothing that packs constants before one is packed, one copy of
// it then, and nothing for calls that nobody has made. A rehearsal of it leaves no trace.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "jit/host/host_cpu.h"
#include "runtime/capi/handle.h"
#include "runtime/capi/rehearsal.h"
#include "search/cut/cut.h"
#include "tests/common/c_client.h"
#include "tests/common/generators.h"

namespace lathe::runtime {
namespace {

using test::Floats;

std::shared_ptr<Context> in_memory() {
  ContextConfig config;
  EXPECT_TRUE(config.options.set("cache", "off").ok());
  return Context::create(std::move(config)).value();
}

// y[M, 100] = x[M, 70] * w[100, 70], w constant.
ops::Graph linear_graph() {
  ops::Graph g;
  g.name = "linear";
  const int x = ops::add_tensor(g, "x", {ops::symbol_dim("M", 1, 512, {{1, 1}, {8, 1}, {64, 1}}), ops::fixed_dim(70)});
  const int w = ops::add_tensor(g, "w", {ops::fixed_dim(100), ops::fixed_dim(70)}, true);
  g.outputs = {ops::add_node(g, "matmul", {x, w}, "y", {{"transpose_b", true}})};
  return ops::finish(g).value();
}

// Of the Schedules that pack a Stage's constants.
size_t packing_moves(const Stage& stage, const ir::Target& target) {
  size_t moves = 0;
  for (const PackedParam& p : stage.packed) {
    search::Problem problem;
    problem.threads = 2;
    problem.kernel =
        search::pack_kernel(stage.nest().cut.kernel, stage.nest().cut.kernel.buffers[static_cast<size_t>(p.param)].name)
            .value();
    moves += search::default_schedule(problem, target).moves.size();
  }
  return moves;
}

TEST(FirstResolve, AppliesEachMoveOnceAndMakesOnlyThePackedStage) {
  const std::shared_ptr<Context> ctx = in_memory();
  const std::shared_ptr<Operator> op = Operator::create(ctx, linear_graph()).value();
  const uint64_t before = search::moves_applied();
  ASSERT_TRUE(op->stages().prepare({.caller_waits = true}).ok());
  ASSERT_TRUE(op->shapes().hinted_workspace(1, true, false).ok());
  const uint64_t applied = search::moves_applied() - before;
  ASSERT_EQ(op->stages().of(0).size(), 1u);
  const Stage& stage = op->stages().of(0)[0]->stage;
  ASSERT_EQ(stage.packed.size(), 1u);
  EXPECT_EQ(applied, stage.schedule.moves.size());
  const size_t packing = packing_moves(stage, ctx->target());
  const uint64_t resolved = search::moves_applied();
  for (int turn = 0; turn < 2; ++turn) {
    ASSERT_TRUE(stage.packed[0].pack->complete().ok());
    EXPECT_EQ(search::moves_applied(), resolved + packing) << turn;
  }
}

TEST(FirstResolve, StagesOfStoredDecisionsShareWhatPacks) {
  if (!jit::backend_built(jit::Backend::xbyak)) GTEST_SKIP() << "built with LATHE_XBYAK=OFF";
  const std::shared_ptr<Context> ctx = in_memory();
  const std::shared_ptr<Operator> op = Operator::create(ctx, linear_graph()).value();
  for (const SymbolValues& dims : op->hinted_dims()) {
    const search::Problem p = op->problem(0, dims, {});
    Decision decision;
    decision.status = DecisionStatus::verified;
    decision.kernel = p.kernel.name;
    decision.schedule = search::to_text(search::default_schedule(p, ctx->target()));
    ctx->record_decision(op->query(0, dims, {}), decision);
  }
  const uint64_t before = search::moves_applied();
  ASSERT_TRUE(op->stages().prepare({.caller_waits = true}).ok());
  const uint64_t applied = search::moves_applied() - before;
  ASSERT_EQ(op->stages().of(0).size(), 4u);
  uint64_t moves = 0;
  for (const auto& s : op->stages().of(0)) {
    moves += s->stage.schedule.moves.size();
    ASSERT_EQ(s->stage.packed.size(), 1u);
    EXPECT_EQ(s->stage.packed[0].pack, op->stages().of(0)[0]->stage.packed[0].pack);
  }
  EXPECT_EQ(applied, moves);
}

// Handles go on using an operator that no resolve finds any more, and neither would a seal.
TEST(FirstResolve, WhatIsForgottenLeavesNothingForLater) {
  ContextState state(in_memory());
  const std::shared_ptr<Operator> op = state.served.serve(linear_graph(), {}).value().op;
  EXPECT_EQ(op->stages().of(0).size(), 1u) << "something is left";
  state.served.forget_untuned();
  EXPECT_EQ(state.served.size(), 0u);
  state.context->set_seal(Seal::error);
  const int64_t before = state.context->stats().get(Stat::k_compiled_xbyak);
  const ir::Result<const BoundOp*> plain = op->shapes().bound({.symbols = {{ops::kernel_symbol("M"), 5}}});
  ASSERT_TRUE(plain.ok()) << plain.status().to_string();
  EXPECT_EQ(state.context->stats().get(Stat::k_compiled_xbyak), before);
}

// Through the C ABI: resolve, then calls with the weight as it lies.
class PlainCalls : public testing::Test {
 protected:
  PlainCalls() : ctx_(test::make_context()), graph_(test::matmul_graph(ctx_.get(), test::range("M", 1, 64), 70, 100)) {}
  uint64_t compiled() const {
    uint64_t value = 0;
    EXPECT_EQ(lathe_stats(ctx_.get(), "compiled_xbyak", &value, nullptr), LATHE_STATUS_OK);
    return value;
  }
  uint64_t plain_workspace(lathe_kernel* kernel, Floats& x, Floats& w, Floats& y) const {
    const lathe_arg args[] = {x.arg(), w.arg(), y.arg()};
    uint64_t bytes = 0;
    lathe_error e{};
    EXPECT_EQ(lathe_workspace_bytes(kernel, args, 3, 1, &bytes, &e), LATHE_STATUS_OK) << e.message;
    return bytes;
  }
  void call_plain(lathe_kernel* kernel) const {
    Floats x({5, 70}), w({70, 100}), y({5, 100}, NAN);
    x.numbers(1);
    w.numbers(4);
    const uint64_t bytes = plain_workspace(kernel, x, w, y);
    const test::Aligned workspace(bytes);
    const lathe_arg args[] = {x.arg(), w.arg(), y.arg()};
    lathe_exec exec = LATHE_EXEC_INIT;
    exec.workspace = bytes == 0 ? nullptr : workspace.memory;
    exec.workspace_bytes = bytes;
    lathe_error e{};
    ASSERT_EQ(lathe_execute(kernel, args, 3, &exec, &e), LATHE_STATUS_OK) << e.message;
    for (size_t m = 0; m < 5; ++m) {
      for (size_t n = 0; n < 100; ++n) {
        float want = 0;
        for (size_t k = 0; k < 70; ++k) want += x.data[m * 70 + k] * w.data[k * 100 + n];
        ASSERT_EQ(y.data[m * 100 + n], want) << m << ", " << n;
      }
    }
  }
  test::Owned<lathe_context> ctx_;
  test::Owned<lathe_graph> graph_;
};

TEST_F(PlainCalls, TheFirstOneMakesWhatItNeeds) {
  const auto kernel = test::resolve(ctx_.get(), graph_.get());
  lathe_pack_info packing{};
  ASSERT_EQ(lathe_prepack_query(kernel.get(), 1, &packing, nullptr), LATHE_STATUS_OK);
  if (packing.bytes == 0) GTEST_SKIP() << "this CPU's level packs nothing";
  const uint64_t before = compiled();
  call_plain(kernel.get());
  if (test::generates()) {
    EXPECT_GT(compiled(), before) << "resolve had made it already";
  }
  const uint64_t after = compiled();
  call_plain(kernel.get());
  EXPECT_EQ(compiled(), after);
}

TEST_F(PlainCalls, ASealMakesWhatTheyNeedFirst) {
  const auto kernel = test::resolve(ctx_.get(), graph_.get());
  lathe_error e{};
  ASSERT_EQ(lathe_seal(ctx_.get(), LATHE_SEAL_ERROR, &e), LATHE_STATUS_OK) << e.message;
  const uint64_t before = compiled();
  call_plain(kernel.get());
  EXPECT_EQ(compiled(), before);
}

TEST(FirstResolve, ASealMakesWhatPacksFirst) {
  for (const bool sealed : {false, true}) {
    const auto ctx = test::make_context();
    const auto graph = test::matmul_graph(ctx.get(), test::range("M", 1, 64), 70, 100);
    const auto kernel = test::resolve(ctx.get(), graph.get());
    lathe_pack_info packing{};
    ASSERT_EQ(lathe_prepack_query(kernel.get(), 1, &packing, nullptr), LATHE_STATUS_OK);
    if (packing.bytes == 0 || !test::generates()) GTEST_SKIP() << "nothing is packed, or no code is made";
    lathe_error e{};
    if (sealed) {
      ASSERT_EQ(lathe_seal(ctx.get(), LATHE_SEAL_ERROR, &e), LATHE_STATUS_OK) << e.message;
    }
    const auto compiled = [&] {
      uint64_t value = 0;
      EXPECT_EQ(lathe_stats(ctx.get(), "compiled_xbyak", &value, nullptr), LATHE_STATUS_OK);
      return value;
    };
    const uint64_t before = compiled();
    Floats w({70, 100});
    w.numbers(4);
    const test::Aligned out(packing.bytes);
    const lathe_arg source = w.arg();
    for (int turn = 0; turn < 2; ++turn) {
      ASSERT_EQ(lathe_prepack(kernel.get(), 1, source.tensor, out.memory, packing.bytes, &e), LATHE_STATUS_OK)
          << e.message;
    }
    EXPECT_EQ(compiled() > before, !sealed);
  }
}

TEST(FirstResolve, ARehearsalLeavesNoTrace) {
  const std::shared_ptr<Context> ctx = in_memory();
  const uint64_t before = search::moves_applied();
  const ir::Status rehearsed = rehearse_resolve(ctx->target());
  EXPECT_TRUE(rehearsed.ok() || !jit::backend_built(jit::Backend::xbyak)) << rehearsed.to_string();
  EXPECT_GT(search::moves_applied(), before) << "nothing was scheduled";
  const auto made = test::make_context();
  for (const char* counter : {"compiled_xbyak", "code_bytes", "first_resolve_cpu_ns", "misses_never_seen"}) {
    uint64_t value = 1;
    EXPECT_EQ(lathe_stats(made.get(), counter, &value, nullptr), LATHE_STATUS_OK);
    EXPECT_EQ(value, 0u) << counter;
  }
}

TEST_F(PlainCalls, TheirWorkspaceIsWithinWhatResolveSays) {
  lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
  const auto kernel = test::resolve(ctx_.get(), graph_.get(), &info);
  Floats x({64, 70}), w({70, 100}), y({64, 100});
  EXPECT_LE(plain_workspace(kernel.get(), x, w, y), info.workspace_bytes);
}

TEST(FirstResolve, ItsCpuTimeIsCounted) {
  const auto ctx = test::make_context();
  const auto graph = test::unary_graph(ctx.get(), "tanh", {test::range("N", 1, 64)});
  const auto spent = [&] {
    uint64_t value = 0;
    EXPECT_EQ(lathe_stats(ctx.get(), "first_resolve_cpu_ns", &value, nullptr), LATHE_STATUS_OK);
    return value;
  };
  EXPECT_EQ(spent(), 0u);
  const auto first = test::resolve(ctx.get(), graph.get());
  const uint64_t once = spent();
  EXPECT_GT(once, 0u) << "first_resolve_cpu_ns";
  const auto second = test::resolve(ctx.get(), graph.get());
  EXPECT_EQ(spent(), once);
}

}  // namespace
}  // namespace lathe::runtime
