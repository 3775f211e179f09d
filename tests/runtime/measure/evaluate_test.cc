// Evaluation in process: the winner is right and not slower, what is refused or wrong never gets
// timed.
#include <gtest/gtest.h>

#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "runtime/measure/evaluation.h"
#include "search/sketches/recipe.h"
#include "tests/common/evaluate_all.h"
#include "tests/common/generators.h"
#include "tests/worker/plant.h"

namespace lathe::runtime {
namespace {

using search::Outcome;

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

struct Job {
  EvaluateTask task;
  std::vector<CandidateSpec> candidates;
};

Job matmul_job(int candidates, bool cold = false) {
  Job job;
  job.task.kernel_text = kMatmul;
  job.task.dims = {{"M", 24}};
  job.task.cold = cold;
  search::Problem problem;
  problem.kernel = ir::parse_kernel(kMatmul).value();
  problem.dims = {{"M", 24}};
  for (const search::Schedule& s : search::candidates(problem, jit::host_target(), candidates)) {
    job.candidates.push_back({search::to_text(s), true});
  }
  return job;
}

struct Cache {
  LeafCacheOptions options = [] {
    LeafCacheOptions o;
    o.keep_images = true;
    return o;
  }();
  LeafCache leaves{options, nullptr, nullptr};

  ir::Result<EvaluateResult> evaluate(const Job& job, EvaluationHooks hooks = {}) {
    hooks.stages = std::make_shared<PlantingMaker>();
    LATHE_ASSIGN(const std::unique_ptr<Evaluation> evaluation, begin_evaluation(job.task, leaves, std::move(hooks)));
    return evaluate_all(*evaluation, job.candidates, job.task.cold);
  }
};

TEST(Evaluate, TimesWhatIsRight) {
  for (const bool cold : {false, true}) {
    Cache cache;
    const Job job = matmul_job(6, cold);
    int verified = 0, timed = 0;
    EvaluationHooks hooks;
    hooks.progress = [&](int candidate, EvaluatePhase phase) {
      verified += phase == EvaluatePhase::verify && candidate == 0;
      timed += phase == EvaluatePhase::time;
      if (phase == EvaluatePhase::verify) {
        EXPECT_EQ(timed, 0) << "verify all before timing any";
      }
    };
    const ir::Result<EvaluateResult> r = cache.evaluate(job, hooks);
    ASSERT_TRUE(r.ok()) << r.status().to_string();
    ASSERT_EQ(r->candidates.size(), job.candidates.size());
    EXPECT_GE(verified, 3 * 3) << "three sets of data are made and used twice, with a sign of life before each";
    EXPECT_EQ(r->candidates[0].outcome, Outcome::timed) << r->candidates[0].reason;
    EXPECT_EQ(r->candidates[0].gate, Gate::exact);
    for (const CandidateResult& c : r->candidates) {
      EXPECT_TRUE(c.outcome == Outcome::timed || c.outcome == Outcome::refused || c.outcome == Outcome::skipped)
          << c.reason;
      if (c.outcome != Outcome::timed) continue;
      EXPECT_GT(c.us(cold), 0);
      EXPECT_LE(c.samples_us.size(), 3u);
      EXPECT_GT(c.reference_us, 0);
      EXPECT_GT(c.code_bytes, 0);
    }
    ASSERT_GE(r->decision.winner, 0);
    EXPECT_EQ(r->decision.tie, r->decision.winner == 0);
    if (!r->decision.tie) {
      EXPECT_GE(r->candidates[r->decision.winner].interval_lo, 1.0);
    }
    EXPECT_GT(r->measurements, 0);
    EXPECT_GT(r->decision.default_us, 0);
  }
}

TEST(Evaluate, WrongAndRefusedOnesAreNeverTimed) {
  Cache cache;
  Job job = matmul_job(4);
  ASSERT_GE(job.candidates.size(), 3u);
  job.candidates.resize(3);
  job.candidates[1].schedule = planted(job.candidates[1].schedule, "idle");
  job.candidates[2].schedule = planted(job.candidates[2].schedule, "flaky");
  job.candidates.push_back({"schedule 1 family matmul\nno_such_move m\n", true});
  const ir::Result<EvaluateResult> r = cache.evaluate(job);
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  EXPECT_EQ(r->candidates[1].outcome, Outcome::wrong);
  EXPECT_NE(r->candidates[1].reason.find("never written"), std::string::npos) << r->candidates[1].reason;
  EXPECT_EQ(r->candidates[2].outcome, Outcome::wrong) << r->candidates[2].reason;
  EXPECT_EQ(r->candidates[3].outcome, Outcome::refused);
  EXPECT_EQ(r->candidates[3].step, Step::V0);
  EXPECT_EQ(r->candidates[1].step, Step::V3);
  EXPECT_EQ(r->decision.winner, 0);
  EXPECT_TRUE(r->decision.tie);
}

// More values live at once than there are registers: nothing for xbyak, and LLVM is not to be had.
TEST(Evaluate, WhatOnlyThePortableExecutorRunsIsNotTimed) {
  if (!test::generates()) GTEST_SKIP() << "no native level on this machine";
  LeafCacheOptions options;
  options.llvm = false;
  LeafCache leaves(options, nullptr, nullptr);
  Job job;
  job.task.kernel_text = R"(
kernel turn(x: f32[2, 40, 16] in, y: f32[2, 40, 16] out) family elementwise
  t: f32[2, 40, 16] heap
  for b < 2 [row]:
    for i < 40 [row]:
      for j < 16 [col]:
        t[b, i, j] = x[b, i, j] * 2.0
    for i1 < 40 [row]:
      for j1 < 16 [col]:
        y[b, i1, j1] = t[b, 39 - i1, j1]
)";
  const std::string head = "schedule 1 family elementwise\n",
                    vectors = "unroll_scope i\nvectorize_scope j\nunroll_scope i1\nvectorize_scope j1\n";
  job.candidates = {{head, true}, {head + vectors, true}, {head + vectors + "move_to_register t b\n", true}};
  const std::unique_ptr<Evaluation> evaluation = begin_evaluation(job.task, leaves, {}).value();
  const ir::Result<EvaluateResult> r = evaluate_all(*evaluation, job.candidates, false);
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  EXPECT_EQ(r->candidates[0].outcome, Outcome::timed) << r->candidates[0].reason;
  EXPECT_EQ(r->candidates[1].outcome, Outcome::timed) << r->candidates[1].reason;
  EXPECT_EQ(r->candidates[2].outcome, Outcome::refused);
  EXPECT_NE(r->candidates[2].reason.find("portable executor"), std::string::npos) << r->candidates[2].reason;
}

TEST(Evaluate, AWrongDefaultIsReplaced) {
  Cache cache;
  Job job = matmul_job(2);
  job.candidates[0].schedule = planted(job.candidates[0].schedule, "idle");
  const ir::Result<EvaluateResult> r = cache.evaluate(job);
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  EXPECT_EQ(r->candidates[0].outcome, Outcome::wrong);
  EXPECT_EQ(r->decision.winner, 1);
}

TEST(Evaluate, TheSameScheduleTwiceIsMeasuredOnce) {
  Cache cache;
  Job job = matmul_job(1);
  job.candidates.push_back(job.candidates[0]);
  const ir::Result<EvaluateResult> r = cache.evaluate(job);
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  EXPECT_EQ(r->candidates[1].outcome, Outcome::skipped);
  EXPECT_EQ(r->decision.winner, 0);
}

TEST(Evaluate, TwoThreads) {
  Cache cache;
  Job job = matmul_job(3);
  job.task.threads = 2;
  const ir::Result<EvaluateResult> r = cache.evaluate(job);
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  EXPECT_EQ(r->candidates[0].outcome, Outcome::timed) << r->candidates[0].reason;
}

TEST(Evaluate, SaysWhatIsInvalid) {
  Cache cache;
  Job job = matmul_job(1);
  job.task.target = "z80";
  EXPECT_EQ(cache.evaluate(job).status().code(), ir::Code::kINVALID);
  job.task.target.clear();
  job.task.kernel_text = "kernel";
  EXPECT_EQ(cache.evaluate(job).status().code(), ir::Code::kINVALID);
}

}  // namespace
}  // namespace lathe::runtime
