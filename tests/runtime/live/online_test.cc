// Tuning while calls run, step by step on the test's thread: a faster candidate goes all the way, a wrong one ends in
// quarantine, one that turns slow is rolled back; the switch, the seal, the worker that cannot start. Times of real
// calls are handed in where they decide.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "ir/core/text_form.h"
#include "runtime/live/candidacy.h"
#include "runtime/live/online_tuner.h"
#include "runtime/serve/context.h"
#include "runtime/serve/serve_sampled.h"
#include "tests/worker/plant.h"

namespace lathe::runtime {
namespace {

using S = PromotionState;

struct TempDir {
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lathe-online-XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path); }
  std::string path;
};

// One matmul that serves 4 rows, its calls, and a clock that the test moves.
struct Server {
  explicit Server(TuneMode mode, bool packed = false, Evaluator evaluator = {}, std::string worker = LATHE_WORKER_PATH)
      : packed(packed) {
    OnlineOptions online;
    online.mode = mode;
    online.thread = false;
    online.period = 16;
    online.least_load = 0;
    online.evaluator = std::move(evaluator);
    online.rules.cpu_share = 1;
    online.rules.candidates = 3;
    online.now_ns = [this] { return now.load(); };
    ContextConfig config;
    EXPECT_TRUE(config.options.set("worker", worker).ok());
    config.layers = {{dir.path, LayerMode::private_rw}};
    context = Context::create(std::move(config)).value();
    tuner = std::make_unique<OnlineTuner>(std::move(online));
    ops::Graph g;
    g.name = "online";
    const int x = ops::add_tensor(g, "x", {ops::symbol_dim("M", 1, 64, {{4, 1}}), ops::fixed_dim(70)});
    const int w = ops::add_tensor(g, "w", {ops::fixed_dim(52), ops::fixed_dim(70)}, true);
    g.outputs = {ops::add_node(g, "matmul", {x, w}, "y", {{"transpose_b", true}})};
    op = Operator::create(context, ops::finish(g).value()).value();
    EXPECT_TRUE(op->stages().prepare(request).ok());
    call.symbols = op->hinted_dims()[0];
    call.packed = packed;
    input.resize(4 * 70);
    weights.resize(52 * 70);
    for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i % 7) - 3;
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 5) - 2;
    constant = weights.data();
    const TensorPacking packing = packed ? op->stages().packing(1).value() : TensorPacking();
    if (!packing.parts.empty()) {
      packed_weights.resize(static_cast<size_t>(packing.bytes) / 4 + 32);
      constant = packed_weights.data();
      while (reinterpret_cast<uintptr_t>(constant) % 64 != 0) ++constant;
      EXPECT_TRUE(run_pack(packing, {}, weights.data(), constant, nullptr).ok());
    }
    tuner->watch(op, request);
    EXPECT_TRUE(op->shapes().bound(call).ok());
  }

  // As the C ABI does it.
  void serve(int calls) {
    for (int i = 0; i < calls; ++i) {
      const BoundOp* bound = *op->shapes().bound(call);
      std::vector<float> y(4 * 52, NAN);
      std::vector<char> scratch(static_cast<size_t>(std::max<int64_t>(bound->workspace_bytes, 0)) + 128);
      void* workspace = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64);
      void* args[] = {input.data(), constant, y.data()};
      run_counted(*bound, context->seal() == Seal::off, args, workspace, nullptr);
      for (size_t c = 0; c < y.size(); ++c) {
        float want = 0;
        for (size_t k = 0; k < 70; ++k) want += input[c / 52 * 70 + k] * weights[c % 52 * 70 + k];
        ASSERT_EQ(y[c], want) << "call " << i << " cell " << c;
      }
    }
  }
  bool step(int64_t ms = 100) {
    now += ms * 1'000'000;
    return tuner->step(*context);
  }
  // Makes the shape hot enough to be looked at. Its calls are said to be slow: on a host that is faster than the
  // machine of this test, the real ones would be at that machine's limit already, and nothing would be proposed.
  void warm() {
    step();
    step();
    serve(64);
    if (!op->shapes().live_shapes().empty()) heat().note(kWindow - 1, 1'000'000, nullptr);
    step();
  }
  const BoundOp* body() { return *op->shapes().bound(call); }
  HotShape& heat() { return *op->shapes().live_shapes()[0].heat; }
  const ServedStage& serving() { return *body()->steps[0].stage; }
  // The n-th of those that can serve here is on record as the best: constants packed as they are, no more workspace
  // than the host was told.
  std::string record(int n, DecisionStatus status = DecisionStatus::verified, const std::string& fault = {}) {
    const search::Problem p = op->live().problem(0, call.symbols, request, serving());
    const int64_t told = body()->workspace_bytes - body()->scratch_offset;
    std::vector<search::Schedule> fitting;
    for (search::Schedule& s : search::candidates(p, context->target(), 64)) {
      const ir::Result<ir::Kernel> k = search::replay(p.kernel, s);
      if (k.ok() && Live::same_layouts(*k, serving()) &&
          workspace_of(p.kernel, *k, call.symbols, request.threads) <= told)
        fitting.push_back(std::move(s));
    }
    if (static_cast<int>(fitting.size()) <= n) return "";
    Decision d;
    d.status = status;
    d.default_us = 2;
    d.best_us = 1;
    d.kernel = p.kernel.name;
    d.schedule = search::to_text(fitting[static_cast<size_t>(n)]);
    if (!fault.empty()) d.schedule = planted(d.schedule, fault);
    context->record_decision(op->live().query(0, call.symbols, request, serving()), d);
    return d.schedule;
  }
  S state() {
    const std::vector<OnlineRow> rows = tuner->rows();
    return rows.empty() ? S::proposed : rows.back().steps.back().state;
  }
  std::string why() {
    std::string out;
    for (const OnlineRow& r : tuner->rows()) {
      for (const Promotion::Step& s : r.steps) out += std::string(promotion_name(s.state)) + " (" + s.reason + ") ";
    }
    return out;
  }
  // Real times would depend on the machine: the trial hears these.
  void pairs(double other_ns, double serving_ns, int n) {
    ASSERT_NE(heat().trial(), nullptr);
    (void)heat().trial()->take();
    for (int i = 0; i < n; ++i) heat().trial()->add({other_ns, serving_ns});
    step();
  }
  void to_canary() {
    warm();
    ASSERT_EQ(state(), S::shadow) << why();
    for (int i = 0; i < 40 && state() == S::shadow; ++i) {
      serve(64);
      step();
    }
  }
  int64_t count(Stat stat) { return context->stats().get(stat); }

  bool packed;
  TempDir dir;
  std::atomic<int64_t> now{1'000'000'000};
  PrepareRequest request;
  std::shared_ptr<Context> context;
  std::unique_ptr<OnlineTuner> tuner;
  std::shared_ptr<Operator> op;
  CallShape call;
  std::vector<float> input, weights, packed_weights;
  float* constant = nullptr;
};

#define LATHE_NEEDS_TWO(server) \
  if ((server).record(1).empty()) GTEST_SKIP() << "one Schedule only on this machine"

TEST(Online, a_faster_candidate_goes_through_shadow_and_canary_and_serves) {
  for (const bool packed : {false, true}) {
    Server s(TuneMode::trials, packed);
    const std::string winner = s.record(1);
    if (winner.empty()) GTEST_SKIP() << "one Schedule only on this machine";
    const BoundOp* before = s.body();
    s.to_canary();
    ASSERT_EQ(s.state(), S::canary) << s.why();
    EXPECT_EQ(s.body(), before);
    const uint64_t generation = s.op->shapes().generation();
    s.pairs(50, 100, 80);
    ASSERT_EQ(s.state(), S::active) << s.why();
    EXPECT_NE(s.body(), before);
    EXPECT_EQ(search::to_text(s.serving().stage.schedule), winner);
    EXPECT_EQ(s.serving().tier, 2);
    EXPECT_GT(s.op->shapes().generation(), generation);
    s.serve(100);
    EXPECT_EQ(s.count(Stat::k_promotions_active), 1);
    EXPECT_EQ(s.count(Stat::k_promotions_verified), 1);
    EXPECT_EQ(s.count(Stat::k_promotions_faster), 1);
    EXPECT_EQ(s.count(Stat::k_promotions_shadow), 1);
    EXPECT_EQ(s.count(Stat::k_promotions_canary), 1);
  }
}

TEST(Online, one_that_turns_slow_is_rolled_back_and_not_taken_up_again) {
  Server s(TuneMode::trials);
  LATHE_NEEDS_TWO(s);
  const std::string before = search::to_text(s.serving().stage.schedule);
  s.to_canary();
  s.pairs(50, 100, 80);
  ASSERT_EQ(s.state(), S::active) << s.why();
  s.pairs(100, 90, 80);  // now the former body is `other`
  ASSERT_EQ(s.state(), S::active);
  s.pairs(100, 110, 40);
  EXPECT_EQ(s.state(), S::rolled_back) << s.why();
  EXPECT_EQ(search::to_text(s.serving().stage.schedule), before);
  EXPECT_EQ(s.count(Stat::k_promotions_rolled_back), 1);
  s.serve(100);
  const std::optional<Decision> record =
      s.context->find_decision(s.op->live().query(0, s.call.symbols, s.request, s.serving()));
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->status, DecisionStatus::tie);
}

TEST(Online, a_slow_canary_never_takes_over) {
  Server s(TuneMode::trials);
  LATHE_NEEDS_TWO(s);
  const BoundOp* before = s.body();
  s.to_canary();
  s.pairs(110, 100, 20);
  EXPECT_EQ(s.state(), S::rolled_back) << s.why();
  EXPECT_EQ(s.body(), before);
  EXPECT_EQ(s.heat().trial(), nullptr);
}

TEST(Online, a_canary_that_makes_no_difference_is_a_tie) {
  Server s(TuneMode::trials);
  LATHE_NEEDS_TWO(s);
  s.to_canary();
  for (int i = 0; i < 3; ++i) s.pairs(100, 100, 80);
  EXPECT_EQ(s.state(), S::tie) << s.why();
}

TEST(Online, a_candidate_that_is_wrong_or_crashes_in_shadow_is_quarantined_and_serves_nothing) {
  for (const std::string fault : {"idle", "crash", "exit"}) {
    Server s(TuneMode::trials, false, {}, LATHE_PLANTING_WORKER_PATH);
    if (s.record(1, DecisionStatus::verified, fault).empty()) GTEST_SKIP() << "one Schedule only on this machine";
    const BoundOp* before = s.body();
    s.to_canary();
    EXPECT_EQ(s.state(), S::quarantined) << fault << ": " << s.why();
    EXPECT_EQ(s.body(), before);
    s.serve(50);
    EXPECT_EQ(s.count(Stat::k_promotions_quarantined), 1);
    EXPECT_EQ(s.count(Stat::k_promotions_canary), 0);
  }
}

TEST(Online, without_trials_a_recorded_winner_takes_over_at_once) {
  Server s(TuneMode::replay);
  const std::string winner = s.record(1);
  if (winner.empty()) GTEST_SKIP() << "one Schedule only on this machine";
  s.warm();
  EXPECT_EQ(s.state(), S::active) << s.why();
  EXPECT_EQ(search::to_text(s.serving().stage.schedule), winner);
  EXPECT_EQ(s.heat().trial(), nullptr);
  s.serve(100);
  EXPECT_EQ(s.count(Stat::k_searches), 0);
}

TEST(Online, replay_searches_nothing) {
  Server s(TuneMode::replay);
  s.warm();
  EXPECT_FALSE(s.step());
  EXPECT_TRUE(s.tuner->rows().empty());
  EXPECT_EQ(s.count(Stat::k_searches), 0);
}

TEST(Online, a_search_in_the_worker_settles_and_calls_stay_right) {
  Server s(TuneMode::on);
  s.warm();
  ASSERT_EQ(s.tuner->rows().size(), 1u);
  const S state = s.state();
  EXPECT_TRUE(state == S::active || state == S::tie) << s.why();
  EXPECT_EQ(s.count(Stat::k_searches), 1);
  EXPECT_GT(s.count(Stat::k_tune_cpu_ns), 0);
  s.serve(100);
  EXPECT_FALSE(s.step());  // nothing else is hot
}

TEST(Online, no_worker_costs_the_host_nothing) {
  Server s(TuneMode::trials, false, {}, "/nonexistent/lathe-worker");
  s.warm();
  EXPECT_EQ(s.state(), S::rejected) << s.why();
  EXPECT_EQ(s.count(Stat::k_promotions_rejected), 1);
  s.serve(100);
}

TEST(Online, the_switch_and_the_seal_stop_everything) {
  for (const bool seal : {false, true}) {
    Server s(TuneMode::trials);
    LATHE_NEEDS_TWO(s);
    s.to_canary();
    ASSERT_EQ(s.state(), S::canary) << s.why();
    HotShape& heat = s.heat();
    if (seal) {
      s.context->set_seal(Seal::fallback);
    } else {
      s.tuner->set_mode(s.context, TuneMode::off);
    }
    EXPECT_FALSE(s.step());
    EXPECT_EQ(heat.trial(), nullptr);
    EXPECT_EQ(s.body()->heat.load(), nullptr);
    const uint64_t calls = heat.calls();
    s.serve(64);
    EXPECT_EQ(heat.calls(), calls);
    if (seal) continue;
    s.tuner->set_mode(s.context, TuneMode::trials);
    s.step();
    EXPECT_NE(heat.trial(), nullptr);
    s.pairs(50, 100, 80);
    EXPECT_EQ(s.state(), S::active) << s.why();
  }
}

TEST(Online, a_body_that_needs_more_workspace_than_was_told_is_refused) {
  Server s(TuneMode::replay);
  LATHE_NEEDS_TWO(s);
  s.step();
  s.step();
  s.serve(64);
  const_cast<BoundOp*>(s.body())->workspace_bytes = -1;
  s.step();
  EXPECT_EQ(s.state(), S::rejected) << s.why();
}

// Takes what it is given for measured.
class Listed final : public Evaluation {
 public:
  explicit Listed(int* screened) : screened_(screened) {}
  ir::Result<std::vector<CandidateResult>> screen(const std::vector<CandidateSpec>& batch) override {
    *screened_ += static_cast<int>(batch.size());
    CandidateResult timed;
    timed.outcome = search::Outcome::timed;
    timed.samples_us = {10, 10, 10};
    timed.reference_us = 10;
    return std::vector<CandidateResult>(batch.size(), timed);
  }
  ir::Result<FinalResult> decide(const std::vector<int>&, int) override {
    FinalResult out;
    out.winner = *screened_ > 0 ? 0 : -1;
    return out;
  }

 private:
  int* screened_;
};

TEST(Online, what_needs_more_workspace_than_was_told_is_not_even_measured) {
  for (const bool enough : {true, false}) {
    int screened = 0;
    Server s(TuneMode::on, false, [&](const EvaluateTask&) {
      return ir::Result<std::unique_ptr<Evaluation>>(std::make_unique<Listed>(&screened));
    });
    s.step();
    s.step();
    s.serve(64);
    if (!enough) const_cast<BoundOp*>(s.body())->workspace_bytes = s.body()->scratch_offset - 1;
    s.step();
    EXPECT_EQ(screened > 0, enough) << s.why();
  }
}

TEST(Online, a_search_that_is_refused_ends_rejected_after_one_try) {
  int searches = 0;
  Server s(TuneMode::on, false, [&](const EvaluateTask&) -> ir::Result<std::unique_ptr<Evaluation>> {
    ++searches;
    return ir::unsupported("planted");
  });
  s.warm();
  EXPECT_EQ(searches, 1);
  EXPECT_EQ(s.state(), S::rejected) << s.why();
}

TEST(Online, the_hottest_that_can_gain_comes_first) {
  EXPECT_GT(tune_priority(100, 50, 0, 0, 1), tune_priority(100, 20, 0, 0, 1));
  EXPECT_GT(tune_priority(100, 50, 0, 0, 1), tune_priority(100, 50, 45, 0, 1));
  EXPECT_GT(tune_priority(100, 50, 0, 0, 1), tune_priority(100, 50, 0, 8, 1));
  EXPECT_EQ(tune_priority(100, 50, 60, 0, 1), 0);
}

// Readers never wait and never see a body half made; run under TSan.
TEST(Online, calls_go_on_while_bodies_are_swapped) {
  Server s(TuneMode::replay);
  const std::string winner = s.record(1);
  if (winner.empty()) GTEST_SKIP() << "one Schedule only on this machine";
  s.op->shapes().set_heat(16);
  const search::Problem p = s.op->live().problem(0, s.call.symbols, s.request, s.serving());
  const ServedStage* candidate = *s.op->live().add_candidate(
      0, p, search::schedule_kernel(p.kernel, *search::parse_schedule(winner)).value(), s.serving(), s.request);
  Trial* trial = s.op->live().new_trial(*s.op->shapes().bind_candidate(0, candidate, s.call), nullptr, 0);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!stop) s.serve(20);
    });
  }
  for (int i = 0; i < 60; ++i) {
    s.heat().set_trial(i % 3 == 0 ? nullptr : trial);
    ASSERT_TRUE(s.op->live().promote(0, candidate).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_TRUE(s.op->live().demote(0, candidate).ok());
    (void)trial->take();
  }
  stop = true;
  for (std::thread& t : threads) t.join();
  s.heat().set_trial(nullptr);
  EXPECT_EQ(s.op->shapes().generation(), 120u);
  EXPECT_FALSE(s.op->live().demote(0, candidate).ok());
}

}  // namespace
}  // namespace lathe::runtime
