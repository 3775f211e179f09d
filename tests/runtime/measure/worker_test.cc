// The measuring worker: what a candidate does to it costs that candidate only, is named, and stays
// in quarantine.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "ir/base/options.h"
#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "runtime/base/stats.h"
#include "runtime/measure/worker_client.h"
#include "runtime/measure/worker_protocol.h"
#include "runtime/store/store.h"
#include "search/sketches/recipe.h"
#include "tests/common/evaluate_all.h"
#include "tests/worker/plant.h"

namespace lathe::runtime {
namespace {

using search::Outcome;

const char* const kChain = R"(
kernel chain(x: f32[R, 77] in, y: f32[R, 77] out) family elementwise where R in 1..64
  for i < R [row]:
    for j < 77 [col]:
      y[i, j] = 0.5 * x[i, j] * (1.0 + erf(x[i, j] * 0.70710677))
)";
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

Job make_job(const char* text, const SymbolValues& dims, int candidates) {
  Job job;
  job.task.kernel_text = text;
  job.task.dims = dims;
  job.task.target = jit::host_target().to_string();
  search::Problem problem;
  problem.kernel = ir::parse_kernel(text).value();
  for (const search::Schedule& s : search::candidates(problem, jit::host_target(), candidates)) {
    job.candidates.push_back({search::to_text(s), true});
  }
  return job;
}
// The default, then one Schedule that misbehaves as told.
Job planted_job(const char* text, const SymbolValues& dims, const std::string& fault) {
  Job job = make_job(text, dims, 1);
  job.candidates.push_back({runtime::planted(job.candidates[0].schedule, fault), true});
  return job;
}
ir::Result<EvaluateResult> evaluate(WorkerClient& worker, const Job& job, WorkerClient::Progress progress = {}) {
  LATHE_ASSIGN(const std::unique_ptr<Evaluation> evaluation, worker.begin(job.task, std::move(progress)));
  return evaluate_all(*evaluation, job.candidates, job.task.cold);
}

WorkerOptions options(Store* store = nullptr, Stats* stats = nullptr) {
  WorkerOptions o;
  o.path = LATHE_PLANTING_WORKER_PATH;
  o.store = store;
  o.stats = stats;
  return o;
}

TEST(Worker, AnswersAsInProcess) {
  WorkerClient worker(options());
  const Job task = make_job(kMatmul, {{"M", 24}}, 4);
  int seen = 0;
  for (int round = 0; round < 2; ++round) {
    const ir::Result<EvaluateResult> r = evaluate(worker, task, [&](int, EvaluatePhase) { return ++seen > 0; });
    ASSERT_TRUE(r.ok()) << r.status().to_string();
    ASSERT_EQ(r->candidates.size(), task.candidates.size());
    EXPECT_EQ(r->candidates[0].outcome, Outcome::timed) << r->candidates[0].reason;
    EXPECT_EQ(r->candidates[0].gate, Gate::exact);
    EXPECT_GT(r->decision.default_us, 0);
    EXPECT_GE(r->decision.winner, 0);
  }
  EXPECT_GT(seen, 4);
  EXPECT_EQ(worker.spawned(), 1) << "one child for all tasks";
}

TEST(Worker, ACrashIsTheCandidatesAndQuarantined) {
  Stats stats;
  StoreOptions memory_only;
  memory_only.mode = StoreMode::off;
  std::unique_ptr<Store> store = std::move(Store::open(memory_only, &stats)).value();
  for (const char* fault : {"crash", "exit"}) {
    for (const bool again : {false, true}) {
      const Job task = planted_job(kMatmul, {{"M", 24}}, fault);
      WorkerClient worker(options(store.get(), &stats));
      const ir::Result<EvaluateResult> r = evaluate(worker, task);
      ASSERT_TRUE(r.ok()) << r.status().to_string();
      EXPECT_EQ(r->candidates[0].outcome, Outcome::timed) << r->candidates[0].reason;
      EXPECT_EQ(r->candidates[1].outcome, Outcome::crashed) << r->candidates[1].reason;
      EXPECT_EQ(r->decision.winner, 0);
      EXPECT_EQ(r->candidates[1].reason.find("quarantined") != std::string::npos, again) << r->candidates[1].reason;
      EXPECT_EQ(worker.spawned(), again ? 1 : 2) << "the second time it is not even tried";
    }
  }
  EXPECT_GT(stats.get(Stat::k_failures), 0);
}

TEST(Worker, AReadBehindAnOperandIsNamed) {
  WorkerClient worker(options());
  const ir::Result<EvaluateResult> r = evaluate(worker, planted_job(kChain, {{"R", 5}}, "overread"));
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  EXPECT_EQ(r->candidates[0].outcome, Outcome::timed) << r->candidates[0].reason;
  EXPECT_EQ(r->candidates[1].outcome, Outcome::crashed);
  // 5 x 77 floats: the first byte behind them.
  const std::string& reason = r->candidates[1].reason;
  EXPECT_TRUE(reason.find("x + 1540") != std::string::npos || reason.find("y + 1540") != std::string::npos) << reason;
}

TEST(Worker, AHangIsEndedAndTheTaskGoesOn) {
  WorkerOptions o = options();
  o.verify_ms = 1500;
  WorkerClient worker(o);
  const ir::Result<EvaluateResult> r = evaluate(worker, planted_job(kChain, {{"R", 5}}, "hang"));
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  EXPECT_EQ(r->candidates[0].outcome, Outcome::timed) << r->candidates[0].reason;
  EXPECT_EQ(r->candidates[1].outcome, Outcome::hung) << r->candidates[1].reason;
  EXPECT_EQ(r->decision.winner, 0);
  EXPECT_EQ(worker.spawned(), 2);
}

TEST(Worker, OneThatWasNotScheduledDoesNotHang) {
  WorkerOptions o = options();
  o.build_ms = o.verify_ms = o.time_ms = 1500;
  WorkerClient worker(o);
  std::thread later;
  const ir::Result<EvaluateResult> r = evaluate(worker, make_job(kMatmul, {{"M", 24}}, 2), [&](int, EvaluatePhase) {
    if (later.joinable()) return true;
    kill(worker.pid(), SIGSTOP);
    later = std::thread([pid = worker.pid()] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2500));
      kill(pid, SIGCONT);
    });
    return true;
  });
  later.join();
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  EXPECT_EQ(worker.spawned(), 1);
  for (const CandidateResult& c : r->candidates) EXPECT_NE(c.outcome, Outcome::hung) << c.reason;
}

TEST(Worker, KilledFromOutsideItIsStartedAgain) {
  WorkerClient worker(options());
  bool killed = false;
  const ir::Result<EvaluateResult> r =
      evaluate(worker, make_job(kMatmul, {{"M", 24}}, 2), [&](int, EvaluatePhase phase) {
        if (!killed && phase == EvaluatePhase::verify) {
          killed = true;
          kill(worker.pid(), SIGKILL);
        }
        return true;
      });
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  EXPECT_TRUE(killed);
  EXPECT_EQ(worker.spawned(), 2);
  for (const CandidateResult& c : r->candidates) EXPECT_NE(c.outcome, Outcome::crashed) << c.reason;
}

TEST(Worker, CancelledAndMissing) {
  WorkerClient worker(options());
  const Job task = make_job(kMatmul, {{"M", 24}}, 1);
  EXPECT_EQ(evaluate(worker, task, [](int, EvaluatePhase) { return false; }).status().code(), ir::Code::kUNSUPPORTED);
  EXPECT_EQ(worker.pid(), -1);
  EXPECT_TRUE(evaluate(worker, task).ok()) << "and works again";

  WorkerOptions missing = options();
  missing.path = "/nonexistent/lathe-worker";
  WorkerClient none(missing);
  EXPECT_EQ(evaluate(none, task).status().code(), ir::Code::kIO);
}

// Where its libraries are told to be by the environment, and nothing else of that.
TEST(Worker, FindsItsLibrariesWhereTheHostDoes) {
  const std::string folder = testing::TempDir() + "worker_libraries", file = folder + "/lathe-worker";
  std::filesystem::create_directories(folder);
  std::ofstream(file) << "#!/bin/sh\n[ \"$LD_LIBRARY_PATH\" = /nowhere ] && [ -z \"$LATHE_TOLD\" ] && exec "
                      << LATHE_PLANTING_WORKER_PATH << " \"$@\"\nexit 127\n";
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  const auto before = ir::process_environment("LD_LIBRARY_PATH");
  setenv("LD_LIBRARY_PATH", "/nowhere", 1);
  setenv("LATHE_TOLD", "1", 1);
  WorkerOptions o = options();
  o.path = file;
  WorkerClient worker(o);
  const auto r = evaluate(worker, make_job(kMatmul, {{"M", 24}}, 1));
  EXPECT_TRUE(r.ok()) << r.status().to_string();
  unsetenv("LATHE_TOLD");
  if (before)
    setenv("LD_LIBRARY_PATH", before->c_str(), 1);
  else
    unsetenv("LD_LIBRARY_PATH");
}

TEST(Worker, HasAProcessGroupOfItsOwnAndEndsWithTheClient) {
  pid_t pid = -1;
  {
    WorkerClient worker(options());
    ASSERT_TRUE(evaluate(worker, make_job(kMatmul, {{"M", 24}}, 1)).ok());
    pid = worker.pid();
    EXPECT_EQ(getpgid(pid), pid);
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST(Worker, ErrorsOfTheTaskComeBack) {
  WorkerClient worker(options());
  Job task = make_job(kMatmul, {{"M", 24}}, 1);
  task.task.kernel_text = "kernel";
  EXPECT_EQ(evaluate(worker, task).status().code(), ir::Code::kINVALID);
}

// The evaluation goes on in a new child: what was timed stays, finalists are built there again.
TEST(Worker, ASessionSurvivesItsChild) {
  WorkerClient worker(options());
  const Job job = make_job(kMatmul, {{"M", 24}}, 8);
  ASSERT_GE(job.candidates.size(), 4u);
  ir::Result<std::unique_ptr<Evaluation>> evaluation = worker.begin(job.task);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status().to_string();
  const auto first = (*evaluation)->screen({job.candidates[0], job.candidates[1]});
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  kill(worker.pid(), SIGKILL);
  const auto second =
      (*evaluation)
          ->screen({job.candidates[2], {planted(job.candidates[0].schedule, "crash"), true}, job.candidates[3]});
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  ASSERT_EQ(second->size(), 3u);
  EXPECT_EQ((*second)[1].outcome, Outcome::crashed);
  EXPECT_EQ((*second)[1].step, Step::V3);
  EXPECT_NE((*second)[2].outcome, Outcome::crashed);
  EXPECT_GE(worker.spawned(), 3);
  const auto decision = (*evaluation)->decide({1, 2, 4}, -1);
  ASSERT_TRUE(decision.ok()) << decision.status().to_string();
  EXPECT_GE(decision->winner, 0);
  EXPECT_NE(decision->winner, 3);
  EXPECT_LE(decision->further, 64);
}

TEST(Worker, TwoSessionsTakeTurns) {
  WorkerClient worker(options());
  const Job job = make_job(kMatmul, {{"M", 24}}, 3);
  auto a = worker.begin(job.task), b = worker.begin(job.task);
  ASSERT_TRUE(a.ok() && b.ok());
  for (int i = 0; i < 2; ++i) {
    for (auto* session : {&*a, &*b}) {
      const auto r = (*session)->screen({job.candidates[static_cast<size_t>(i)]});
      ASSERT_TRUE(r.ok()) << r.status().to_string();
      EXPECT_EQ((*r)[0].outcome, Outcome::timed) << (*r)[0].reason;
    }
  }
  EXPECT_EQ(worker.spawned(), 1);
}

TEST(WorkerProtocol, RoundTripsAndRefuses) {
  EvaluateTask task;
  task.kernel_text = "a \"quoted\"\ntext";
  task.dims = {{"M", 3}};
  task.seed = ~uint64_t{0};
  task.cold = task.aside = true;
  task.placements = 7;
  const ir::Result<WorkerRequest> back = decode_request(encode_begin(task));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->task.kernel_text, task.kernel_text);
  EXPECT_EQ(back->task.dims, task.dims);
  EXPECT_EQ(back->task.seed, task.seed);
  EXPECT_TRUE(back->task.cold && back->task.aside);
  EXPECT_EQ(back->task.placements, 7);
  const ir::Result<WorkerRequest> screen = decode_request(encode_screen({{"x", true}, {"y\n; plant hang\n", false}}));
  ASSERT_TRUE(screen.ok());
  ASSERT_EQ(screen->batch.size(), 2u);
  EXPECT_EQ(screen->batch[1].schedule, "y\n; plant hang\n");
  EXPECT_FALSE(screen->batch[1].time);
  const ir::Result<WorkerRequest> decide = decode_request(encode_decide({3, 1}, 2));
  ASSERT_TRUE(decide.ok());
  EXPECT_EQ(decide->finalists, (std::vector<int>{3, 1}));
  EXPECT_EQ(decide->incumbent, 2);
  for (const char* bad : {"", "{", "[]", "{\"begin\": 1}", "{\"screen\": [1]}", "null"}) {
    EXPECT_FALSE(decode_request(bad).ok()) << bad;
    EXPECT_FALSE(decode_message(bad).ok()) << bad;
  }
  CandidateResult result;
  result.outcome = Outcome::wrong;
  result.step = Step::V1;
  result.err_over_bound = INFINITY;
  result.samples_us = {1, 2};
  const ir::Result<WorkerMessage> settled = decode_message(encode_settled(5, result));
  ASSERT_TRUE(settled.ok());
  EXPECT_EQ(settled->candidate, 5);
  EXPECT_EQ(settled->result.outcome, Outcome::wrong);
  EXPECT_EQ(settled->result.step, Step::V1);
  EXPECT_EQ(settled->result.samples_us, result.samples_us);
  FinalResult decision;
  decision.winner = 3;
  decision.finalists = {{3, result}};
  const ir::Result<WorkerMessage> message = decode_message(encode_decision(decision));
  ASSERT_TRUE(message.ok());
  EXPECT_EQ(message->decision.winner, 3);
  EXPECT_EQ(message->decision.finalists[0].second.step, Step::V1);
  decision.winner = -2;
  EXPECT_FALSE(decode_message(encode_decision(decision)).ok());
}

}  // namespace
}  // namespace lathe::runtime
