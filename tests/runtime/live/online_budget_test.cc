// The CPU budget of tuning while calls run, over the whole path: hot shapes are chosen, searched candidate by candidate
// and settled, on a clock and with CPU times that the test moves, so that what is used can be compared with what was
// earned at every moment.
#include <gtest/gtest.h>

#include <cstdlib>

#include "runtime/live/online_tuner.h"
#include "runtime/serve/context.h"
#include "runtime/serve/serve_sampled.h"

namespace lathe::runtime {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSaved = 20 * kMs;  // that may be saved up
constexpr int64_t kScreen = 7 * kMs, kDecide = 9 * kMs, kBegin = 3 * kMs;

// Time passes by sleeping and working only.
struct Machine {
  int64_t now = 1000 * kMs, started = now, off = 0, cpu = 0, most_ahead = 0;
  bool on = true;
  double share = 0.02;
  int begun = 0, screened = 0, decided = 0;
  void pass(int64_t ns) {
    now += ns;
    off += on ? 0 : ns;
  }
  void work(int64_t ns) {
    pass(ns);
    cpu += ns;
    const double earned = share * static_cast<double>(now - started - off);
    most_ahead = std::max(most_ahead, cpu - static_cast<int64_t>(earned));
  }
};

// Finds nothing better, at a stated cost.
class Costly final : public Evaluation {
 public:
  explicit Costly(Machine* machine) : machine_(machine) {
    ++machine_->begun;
    machine_->work(kBegin);
  }
  ir::Result<std::vector<CandidateResult>> screen(const std::vector<CandidateSpec>& batch) override {
    std::vector<CandidateResult> out;
    for (size_t i = 0; i < batch.size(); ++i) {
      ++machine_->screened;
      machine_->work(kScreen);
      CandidateResult c;
      c.outcome = search::Outcome::timed;
      c.gate = Gate::exact;
      c.samples_us = {10, 10, 10};
      c.reference_us = 10;
      out.push_back(std::move(c));
    }
    return out;
  }
  ir::Result<FinalResult> decide(const std::vector<int>&, int) override {
    ++machine_->decided;
    machine_->work(kDecide);
    FinalResult out;
    out.winner = 0;
    out.default_us = out.best_us = 10;
    return out;
  }

 private:
  Machine* machine_;
};

ops::Graph matmul(int64_t rows) {
  ops::Graph g;
  g.name = "budget" + std::to_string(rows);
  const int x = ops::add_tensor(g, "x", {ops::fixed_dim(rows), ops::fixed_dim(70)});
  const int w = ops::add_tensor(g, "w", {ops::fixed_dim(52), ops::fixed_dim(70)}, true);
  g.outputs = {ops::add_node(g, "matmul", {x, w}, "y", {{"transpose_b", true}})};
  return ops::finish(g).value();
}

class OnlineBudget : public ::testing::TestWithParam<double> {
 protected:
  OnlineBudget() {
    machine_.share = GetParam();
    OnlineOptions online;
    online.mode = TuneMode::on;
    online.thread = false;
    online.period = 16;
    online.least_load = 0;
    online.rules.cpu_share = machine_.share;
    online.evaluator = [this](const EvaluateTask&) -> ir::Result<std::unique_ptr<Evaluation>> {
      return std::unique_ptr<Evaluation>(std::make_unique<Costly>(&machine_));
    };
    online.now_ns = [this] { return machine_.now; };
    online.cpu_ns = [this] { return machine_.cpu; };
    online.sleep = [this](int64_t ns) {
      // A look at the switch is allowed to come one sleep late.
      uncounted_ += was_on_ && machine_.on && (*ops_[0]->shapes().bound(call_))->heat.load() == nullptr;
      was_on_ = machine_.on;
      machine_.pass(ns);
      if (turns_) switch_by_time();
    };
    ContextConfig config;
    (void)config.options.set(ir::OptionId::cache, "off").ok();
    context_ = Context::create(std::move(config)).value();
    tuner_ = std::make_unique<OnlineTuner>(std::move(online));
    for (const int64_t rows : {4, 6, 9}) {
      const auto op = ops_.emplace_back(Operator::create(context_, matmul(rows)).value());
      EXPECT_TRUE(op->stages().prepare(request_).ok());
      EXPECT_TRUE(op->shapes().bound(call_).ok());
      tuner_->watch(op, request_);
    }
  }

  void serve(int calls) {
    std::vector<float> x(9 * 70, 1), w(52 * 70, 2), y(9 * 52);
    void* workspace = std::aligned_alloc(64, 1 << 20);
    void* args[] = {x.data(), w.data(), y.data()};
    for (int i = 0; i < calls; ++i) {
      for (const auto& op : ops_) {
        const BoundOp* bound = *op->shapes().bound(call_);
        ASSERT_LE(bound->workspace_bytes, 1 << 20);
        run_counted(*bound, true, args, workspace, nullptr);
      }
    }
    std::free(workspace);
  }

  // On for a second, off for two.
  void switch_by_time() {
    machine_.on = machine_.now / (1000 * kMs) % 3 == 0;
    tuner_->set_mode(context_, machine_.on ? TuneMode::on : TuneMode::off);
  }

  Machine machine_;
  bool turns_ = false, was_on_ = false;
  int uncounted_ = 0;  // sleeps of a search that is on, while calls are not counted
  std::shared_ptr<Context> context_;
  std::unique_ptr<OnlineTuner> tuner_;
  std::vector<std::shared_ptr<Operator>> ops_;
  PrepareRequest request_;
  CallShape call_;
};

TEST_P(OnlineBudget, IsKeptAtEveryMomentWhileThreeShapesAreSearched) {
  for (int n = 0; n < 4000 && machine_.decided < 3; ++n) {
    serve(16);
    (void)tuner_->step(*context_);
    machine_.pass(50 * kMs);
  }
  EXPECT_EQ(machine_.begun, 3);
  EXPECT_EQ(machine_.decided, 3);
  EXPECT_GE(machine_.screened, 3 * 2);
  EXPECT_EQ(context_->stats().get(Stat::k_promotions_tie), 3);
  // All of it is charged, and only one piece of work is ever ahead of what was earned.
  EXPECT_EQ(context_->stats().get(Stat::k_tune_cpu_ns), machine_.cpu);
  EXPECT_EQ(machine_.cpu, machine_.begun * kBegin + machine_.screened * kScreen + machine_.decided * kDecide);
  EXPECT_LE(machine_.most_ahead, kSaved + kBegin + std::max(kScreen, kDecide));
}

// What passes while it is switched off pays for nothing.
TEST_P(OnlineBudget, IsKeptOfTheTimeThatItIsOn) {
  turns_ = true;
  for (int n = 0; n < 20'000 && machine_.decided < 3; ++n) {
    serve(16);
    (void)tuner_->step(*context_);
    machine_.pass(50 * kMs);
    switch_by_time();
  }
  EXPECT_EQ(machine_.decided, 3);
  const auto between_looks = static_cast<int64_t>(50 * kMs * GetParam());
  EXPECT_LE(machine_.most_ahead, kSaved + kBegin + std::max(kScreen, kDecide) + between_looks);
  EXPECT_EQ(uncounted_, 0);
}

// What was used, less what may be ahead, was earned first.
TEST_P(OnlineBudget, TakesAsLongAsTheShareSays) {
  const int64_t from = machine_.now;
  while (machine_.decided < 3 && machine_.now - from < 3'600'000 * kMs) {
    serve(16);
    (void)tuner_->step(*context_);
    machine_.pass(kMs);
  }
  ASSERT_EQ(machine_.decided, 3);
  const double used = static_cast<double>(machine_.cpu), took = static_cast<double>(machine_.now - from);
  EXPECT_GE(took, (used - static_cast<double>(kSaved + kBegin + kDecide)) / GetParam());
}

INSTANTIATE_TEST_SUITE_P(Shares, OnlineBudget, ::testing::Values(0.02, 0.1, 0.9), [](const auto& info) {
  return "PerMille" + std::to_string(static_cast<int>(info.param * 1000));
});

}  // namespace
}  // namespace lathe::runtime
