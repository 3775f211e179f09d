// Evaluation in process: the winner is right and not slower, what is refused or wrong never gets
// timed.
#include "runtime/evaluate.h"

#include <gtest/gtest.h>

#include "ir/text_form.h"
#include "jit/host_cpu.h"
#include "search/recipe.h"

namespace lathe::runtime {
namespace {

using Outcome = CandidateResult::Outcome;

const char* const kMatmul = R"(
kernel mm(a: f32[M, 96] in, w: f32[80, 96] const, y: f32[M, 80] out) family matmul where M in 1..64
  c: f32[M, 80] heap
  for m < M [m]:
    for n < 80 [n]:
      c[m, n] = 0.0
      for k < 96 [k]:
        c[m, n] += a[m, k] * w[n, k]
      y[m, n] = c[m, n]
)";

EvaluateTask matmul_task(int candidates, bool cold = false) {
  EvaluateTask task;
  task.kernel_text = kMatmul;
  task.dims = {{"M", 24}};
  task.cold = cold;
  search::Problem problem;
  problem.kernel = ir::parse_kernel(kMatmul).value();
  problem.dims = {{"M", 24}};
  for (const search::Schedule& s : search::candidates(problem, jit::host_target(), candidates)) {
    task.schedules.push_back(search::to_text(s));
  }
  return task;
}

struct Cache {
  LeafCache leaves{{}, nullptr, nullptr};
};

TEST(Evaluate, TimesWhatIsRight) {
  for (const bool cold : {false, true}) {
    Cache cache;
    const EvaluateTask task = matmul_task(6, cold);
    int verified = 0, timed = 0;
    EvaluateHooks hooks;
    hooks.progress = [&](int, EvaluatePhase phase) {
      verified += phase == EvaluatePhase::verify;
      timed += phase == EvaluatePhase::time;
      if (phase == EvaluatePhase::verify) {
        EXPECT_EQ(timed, 0) << "verify all before timing any";
      }
    };
    const ir::Result<EvaluateResult> r = evaluate_in_process(task, cache.leaves, hooks);
    ASSERT_TRUE(r.ok()) << r.status().to_string();
    ASSERT_EQ(r->candidates.size(), task.schedules.size());
    EXPECT_GE(verified, 1);
    EXPECT_EQ(r->candidates[0].outcome, Outcome::timed) << r->candidates[0].reason;
    EXPECT_EQ(r->candidates[0].gate, Gate::exact);
    for (const CandidateResult& c : r->candidates) {
      EXPECT_TRUE(c.outcome == Outcome::timed || c.outcome == Outcome::refused ||
                  c.outcome == Outcome::skipped)
          << c.reason;
      if (c.outcome != Outcome::timed) continue;
      EXPECT_GT(c.min_us, 0);
      EXPECT_LE(c.min_us, c.median_us);
    }
    ASSERT_GE(r->winner, 0);
    EXPECT_EQ(r->tie, r->winner == 0);
    if (!r->tie) {
      EXPECT_GE(r->candidates[r->winner].interval_lo, 1.0);
    }
    EXPECT_GT(r->measurements, 0);
    EXPECT_GT(r->default_us, 0);
  }
}

TEST(Evaluate, WrongAndRefusedOnesAreNeverTimed) {
  Cache cache;
  EvaluateTask task = matmul_task(4);
  ASSERT_GE(task.schedules.size(), 3u);
  task.schedules.resize(3);
  task.schedules.push_back("schedule 1 family matmul\nno_such_move m\n");
  task.plants = {"", "idle", "flaky", ""};
  const ir::Result<EvaluateResult> r = evaluate_in_process(task, cache.leaves, {});
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  EXPECT_EQ(r->candidates[1].outcome, Outcome::wrong);
  EXPECT_NE(r->candidates[1].reason.find("never written"), std::string::npos)
      << r->candidates[1].reason;
  EXPECT_EQ(r->candidates[2].outcome, Outcome::wrong) << r->candidates[2].reason;
  EXPECT_EQ(r->candidates[3].outcome, Outcome::refused);
  EXPECT_EQ(r->winner, 0);
  EXPECT_TRUE(r->tie);
}

TEST(Evaluate, AWrongDefaultIsReplaced) {
  Cache cache;
  EvaluateTask task = matmul_task(2);
  task.plants = {"idle", ""};
  const ir::Result<EvaluateResult> r = evaluate_in_process(task, cache.leaves, {});
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  EXPECT_EQ(r->candidates[0].outcome, Outcome::wrong);
  EXPECT_EQ(r->winner, 1);
}

TEST(Evaluate, TheSameScheduleTwiceIsMeasuredOnce) {
  Cache cache;
  EvaluateTask task = matmul_task(1);
  task.schedules.push_back(task.schedules[0]);
  const ir::Result<EvaluateResult> r = evaluate_in_process(task, cache.leaves, {});
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  EXPECT_EQ(r->candidates[1].outcome, Outcome::skipped);
  EXPECT_EQ(r->winner, 0);
}

TEST(Evaluate, TwoThreads) {
  Cache cache;
  EvaluateTask task = matmul_task(3);
  task.threads = 2;
  const ir::Result<EvaluateResult> r = evaluate_in_process(task, cache.leaves, {});
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  EXPECT_EQ(r->candidates[0].outcome, Outcome::timed) << r->candidates[0].reason;
}

TEST(Evaluate, SaysWhatIsInvalid) {
  Cache cache;
  EvaluateTask task = matmul_task(1);
  task.isa = "z80";
  EXPECT_EQ(evaluate_in_process(task, cache.leaves, {}).status().code(), ir::Code::kINVALID);
  task.isa.clear();
  task.kernel_text = "kernel";
  EXPECT_EQ(evaluate_in_process(task, cache.leaves, {}).status().code(), ir::Code::kINVALID);
  task = {};
  task.kernel_text = kMatmul;
  EXPECT_EQ(evaluate_in_process(task, cache.leaves, {}).status().code(), ir::Code::kINVALID);
}

}  // namespace
}  // namespace lathe::runtime
