// The measuring worker: what a candidate does to it costs that candidate only, is named, and stays
// in quarantine.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>

#include "ir/text_form.h"
#include "jit/host_cpu.h"
#include "runtime/stats.h"
#include "runtime/store.h"
#include "runtime/worker_client.h"
#include "runtime/worker_protocol.h"
#include "search/recipe.h"

namespace lathe::runtime {
namespace {

using Outcome = CandidateResult::Outcome;

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

EvaluateTask make_task(const char* text, const SymbolValues& dims, int candidates) {
  EvaluateTask task;
  task.kernel_text = text;
  task.dims = dims;
  search::Problem problem;
  problem.kernel = ir::parse_kernel(text).value();
  for (const search::Schedule& s : search::candidates(problem, jit::host_target(), candidates)) {
    task.schedules.push_back(search::to_text(s));
  }
  return task;
}
// The default, then one Schedule that misbehaves as told.
EvaluateTask planted(const char* text, const SymbolValues& dims, const std::string& fault) {
  EvaluateTask task = make_task(text, dims, 1);
  task.schedules.push_back(task.schedules[0] + "\n");
  task.plants = {"", fault};
  return task;
}

WorkerOptions options(Store* store = nullptr, Stats* stats = nullptr) {
  WorkerOptions o;
  o.path = LATHE_WORKER_PATH;
  o.store = store;
  o.stats = stats;
  return o;
}

TEST(Worker, AnswersAsInProcess) {
  WorkerClient worker(options());
  const EvaluateTask task = make_task(kMatmul, {{"M", 24}}, 4);
  int seen = 0;
  for (int round = 0; round < 2; ++round) {
    const ir::Result<EvaluateResult> r =
        worker.evaluate(task, [&](int, EvaluatePhase) { return ++seen > 0; });
    ASSERT_TRUE(r.ok()) << r.status().to_string();
    ASSERT_EQ(r->candidates.size(), task.schedules.size());
    EXPECT_EQ(r->candidates[0].outcome, Outcome::timed) << r->candidates[0].reason;
    EXPECT_EQ(r->candidates[0].gate, Gate::exact);
    EXPECT_GT(r->default_us, 0);
    EXPECT_GE(r->winner, 0);
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
    const EvaluateTask task = planted(kMatmul, {{"M", 24}}, fault);
    WorkerClient worker(options(store.get(), &stats));
    const ir::Result<EvaluateResult> r = worker.evaluate(task);
    ASSERT_TRUE(r.ok()) << r.status().to_string();
    EXPECT_EQ(r->candidates[0].outcome, Outcome::timed) << r->candidates[0].reason;
    EXPECT_EQ(r->candidates[1].outcome, Outcome::crashed) << r->candidates[1].reason;
    EXPECT_EQ(r->winner, 0);
    if (std::string(fault) == "exit") {
      EXPECT_NE(r->candidates[1].reason.find("quarantined"), std::string::npos);
    }
    EXPECT_EQ(worker.spawned(), std::string(fault) == "exit" ? 1 : 2)
        << "the second time it is not even tried";
  }
  EXPECT_GT(stats.get(Stat::k_failures), 0);
}

TEST(Worker, AReadBehindAnOperandIsNamed) {
  WorkerClient worker(options());
  const ir::Result<EvaluateResult> r = worker.evaluate(planted(kChain, {{"R", 5}}, "overread"));
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  EXPECT_EQ(r->candidates[0].outcome, Outcome::timed) << r->candidates[0].reason;
  EXPECT_EQ(r->candidates[1].outcome, Outcome::crashed);
  // 5 x 77 floats: the first byte behind them.
  const std::string& reason = r->candidates[1].reason;
  EXPECT_TRUE(reason.find("x + 1540") != std::string::npos ||
              reason.find("y + 1540") != std::string::npos)
      << reason;
}

TEST(Worker, AHangIsEndedAndTheTaskGoesOn) {
  WorkerOptions o = options();
  o.verify_ms = 1500;
  WorkerClient worker(o);
  const ir::Result<EvaluateResult> r = worker.evaluate(planted(kChain, {{"R", 5}}, "hang"));
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  EXPECT_EQ(r->candidates[0].outcome, Outcome::timed) << r->candidates[0].reason;
  EXPECT_EQ(r->candidates[1].outcome, Outcome::hung) << r->candidates[1].reason;
  EXPECT_EQ(r->winner, 0);
  EXPECT_EQ(worker.spawned(), 2);
}

TEST(Worker, KilledFromOutsideItIsStartedAgain) {
  WorkerClient worker(options());
  bool killed = false;
  const ir::Result<EvaluateResult> r =
      worker.evaluate(make_task(kMatmul, {{"M", 24}}, 2), [&](int, EvaluatePhase phase) {
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
  const EvaluateTask task = make_task(kMatmul, {{"M", 24}}, 1);
  EXPECT_EQ(worker.evaluate(task, [](int, EvaluatePhase) { return false; }).status().code(),
            ir::Code::kUNSUPPORTED);
  EXPECT_EQ(worker.pid(), -1);
  EXPECT_TRUE(worker.evaluate(task).ok()) << "and works again";

  WorkerOptions missing = options();
  missing.path = "/nonexistent/lathe-worker";
  WorkerClient none(missing);
  EXPECT_EQ(none.evaluate(task).status().code(), ir::Code::kUNSUPPORTED);
  missing.path = "/bin/true";
  WorkerClient wrong(missing);
  EXPECT_EQ(wrong.evaluate(task).status().code(), ir::Code::kUNSUPPORTED);
}

TEST(Worker, HasAProcessGroupOfItsOwnAndEndsWithTheClient) {
  pid_t pid = -1;
  {
    WorkerClient worker(options());
    ASSERT_TRUE(worker.evaluate(make_task(kMatmul, {{"M", 24}}, 1)).ok());
    pid = worker.pid();
    EXPECT_EQ(getpgid(pid), pid);
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST(Worker, ErrorsOfTheTaskComeBack) {
  WorkerClient worker(options());
  EvaluateTask task = make_task(kMatmul, {{"M", 24}}, 1);
  task.kernel_text = "kernel";
  EXPECT_EQ(worker.evaluate(task).status().code(), ir::Code::kINVALID);
}

TEST(WorkerProtocol, RoundTripsAndRefuses) {
  EvaluateTask task;
  task.kernel_text = "a \"quoted\"\ntext";
  task.dims = {{"M", 3}};
  task.schedules = {"x", "y\n"};
  task.seed = ~uint64_t{0};
  task.cold = true;
  const ir::Result<EvaluateTask> back = decode_task(encode_task(task));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->kernel_text, task.kernel_text);
  EXPECT_EQ(back->dims, task.dims);
  EXPECT_EQ(back->schedules, task.schedules);
  EXPECT_EQ(back->seed, task.seed);
  EXPECT_TRUE(back->cold);
  for (const char* bad : {"", "{", "[]", "{\"kernel\": 1}", "null"}) {
    EXPECT_FALSE(decode_task(bad).ok()) << bad;
    EXPECT_FALSE(decode_message(bad).ok()) << bad;
  }
  EvaluateResult result;
  result.candidates.resize(2);
  result.candidates[1].outcome = Outcome::wrong;
  result.candidates[1].err_over_bound = INFINITY;
  result.winner = 0;
  const ir::Result<WorkerMessage> message = decode_message(encode_result(result));
  ASSERT_TRUE(message.ok());
  EXPECT_EQ(message->result.candidates[1].outcome, Outcome::wrong);
  result.winner = 7;
  EXPECT_FALSE(decode_message(encode_result(result)).ok());
}

}  // namespace
}  // namespace lathe::runtime
