// Waiting for a tuned kernel: without a worker that can be used nothing was measured, and nobody says so; with one that
// is silent, or that never stops talking, the caller has his answer at the deadline. The deadline is a time, so these
// few tests look at a clock, with room to spare.
#include <gtest/gtest.h>

#include <chrono>

#include "jit/host/host_cpu.h"
#include "runtime/capi/handle.h"
#include "runtime/measure/worker_client.h"
#include "runtime/tune/warmup.h"
#include "tests/common/fake_worker.h"
#include "tests/common/generators.h"

namespace lathe::runtime {
namespace {

using test::FakeWorker;

constexpr const char* kSilent = "read task\nread more";
constexpr const char* kTalks = "while :; do echo '{\"progress\": 0, \"phase\": 1}' >&0; done";
// Slowly: a worker that says too much in one line is given up before the deadline.
constexpr const char* kNoLine = "while :; do printf 0123456789abcdef >&0; /bin/sleep .01; done";
constexpr const char* kForeign = "read task\necho hello >&0\nread more";
constexpr int64_t kRoom = 10'000;  // ms: a worker is silent for ten times that before it is given up

ops::Graph row_graph() {
  ops::Graph g;
  g.name = "rows";
  const int x = ops::add_tensor(g, "x", {ops::fixed_dim(16), ops::fixed_dim(48)});
  g.outputs = {ops::add_node(g, "softmax", {x}, "y")};
  return ops::finish(g).value();
}

std::shared_ptr<Context> context_with(const std::string& worker) {
  ContextConfig config;
  EXPECT_TRUE(config.options.set("cache", "off").ok());
  EXPECT_TRUE(config.options.set("worker", worker).ok());
  return Context::create(std::move(config)).value();
}

PrepareInfo wait_for(const std::shared_ptr<Context>& context, uint64_t deadline_ns) {
  ContextState state(context);
  ServeRequest request;
  request.wait = Wait::tuned;
  request.deadline_ns = deadline_ns;
  const auto found = state.served.serve(row_graph(), request);
  EXPECT_TRUE(found.ok()) << found.status().to_string();
  return found.ok() ? found->info : PrepareInfo();
}

int default_tier() { return !test::generates() ? 0 : 1; }

TEST(Wait, WithoutAWorkerTheDefaultServesAndTheReasonIsSaid) {
  if (!jit::backend_built(jit::Backend::xbyak)) GTEST_SKIP() << "built with LATHE_XBYAK=OFF";
  const FakeWorker foreign(kForeign), plain("");
  ASSERT_EQ(chmod(plain.path().c_str(), 0600), 0);
  for (const std::string& worker :
       {std::string("/nonexistent/worker"), plain.path(), std::string("/bin/true"), foreign.path()}) {
    const std::shared_ptr<Context> context = context_with(worker);
    const PrepareInfo info = wait_for(context, 0);
    EXPECT_EQ(info.tier, default_tier()) << worker;
    EXPECT_TRUE(info.missed) << worker;
    EXPECT_STREQ(miss_reason_name(info.miss), "no_worker") << worker;
    EXPECT_EQ(context->stats().misses(MissReason::k_no_worker), 1) << worker;
    EXPECT_EQ(context->stats().get(Stat::k_hits_t2), 0) << worker;
  }
}

TEST(Wait, WarmUpWithoutAWorkerFailsNamingIt) {
  if (!jit::backend_built(jit::Backend::xbyak)) GTEST_SKIP() << "built with LATHE_XBYAK=OFF";
  const FakeWorker foreign(kForeign);
  for (const std::string& worker : {std::string("/nonexistent/worker"), std::string("/bin/true"), foreign.path()}) {
    const std::shared_ptr<Context> context = context_with(worker);
    std::vector<ops::Workload> items(1);
    items[0].name = "rows";
    items[0].graph = row_graph();
    std::string message;
    int tier = -1;
    WarmupObserver observer;
    observer.failed = [&](const ops::Workload&, const ir::Status& status) { message = status.to_string(); };
    observer.row = [&](const WarmupRow& row) { tier = row.tier; };
    WarmupBudget budget;
    budget.wall_ms = 5000;
    const ir::Result<WarmupReport> report = run_warmup(context, items, budget, observer);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->failed, 1) << worker;
    EXPECT_EQ(report->no_worker, 1) << worker;
    EXPECT_EQ(tier, default_tier()) << worker;
    EXPECT_NE(message.find(worker), std::string::npos) << message;
    // What was stored for lack of a measurement is no measured Schedule later either.
    const auto op = Operator::create(context, row_graph()).value();
    const ir::Result<PrepareInfo> info = op->stages().prepare({});
    ASSERT_TRUE(info.ok());
    EXPECT_EQ(info->tier, default_tier());
    EXPECT_TRUE(info->unmeasured);
    EXPECT_FALSE(info->missed) << "the store has it";
    EXPECT_STREQ(miss_reason_name(info->miss), "unmeasured");
    EXPECT_GT(context->stats().misses(MissReason::k_unmeasured), 0);
  }
}

TEST(Wait, TheDeadlineHoldsWhateverTheWorkerDoes) {
  if (!jit::backend_built(jit::Backend::xbyak)) GTEST_SKIP() << "built with LATHE_XBYAK=OFF";
  for (const char* body : {kSilent, kTalks, kNoLine}) {
    const FakeWorker worker(body);
    const std::shared_ptr<Context> context = context_with(worker.path());
    const int64_t start = WorkerProcess::now_ms();
    const PrepareInfo info = wait_for(context, 1'000'000'000);
    EXPECT_LT(WorkerProcess::now_ms() - start, kRoom) << body;
    EXPECT_EQ(info.tier, default_tier()) << body;
    EXPECT_STREQ(miss_reason_name(info.miss), "budget") << body;
    EXPECT_EQ(context->stats().misses(MissReason::k_budget), 1) << body;
  }
}

EvaluateTask task_of(std::string kernel_text) {
  EvaluateTask task;
  task.kernel_text = std::move(kernel_text);
  return task;
}

TEST(Wait, AWorkerThatDoesNotReadIsGivenUp) {
  const FakeWorker deaf("exec /bin/sleep 1000");
  WorkerOptions options;
  options.path = deaf.path();
  WorkerClient client(options);
  client.give_up_at(WorkerProcess::now_ms() + 500);
  // More than any socket takes.
  const auto begun = client.begin(task_of(std::string(size_t{64} << 20, 'x')));
  EXPECT_EQ(begun.status().code(), ir::Code::kTIMEOUT) << begun.status().to_string();
  EXPECT_EQ(client.pid(), -1) << "it has ended";
  EXPECT_EQ(client.begin(task_of("kernel")).status().code(), ir::Code::kTIMEOUT) << "and is not started again";
  EXPECT_EQ(client.spawned(), 1);
}

// Signs of life are no end: without a deadline there is one all the same.
TEST(Wait, AWorkerThatTalksForEverIsGivenUp) {
  const FakeWorker worker(kTalks);
  WorkerOptions options;
  options.path = worker.path();
  options.cpu_s = 0;
  WorkerClient client(options);
  const auto begun = client.begin(task_of("kernel"));
  EXPECT_EQ(begun.status().code(), ir::Code::kIO) << begun.status().to_string();
  EXPECT_NE(begun.status().message().find(worker.path()), std::string::npos) << begun.status().message();
}

TEST(Wait, AWorkerWithAnotherProtocolIsNamed) {
  for (const char* body : {kForeign, kNoLine}) {
    const FakeWorker worker(body);
    WorkerOptions options;
    options.path = worker.path();
    options.verify_ms = 1'000;
    WorkerClient client(options);
    const auto begun = client.begin(task_of("kernel"));
    EXPECT_EQ(begun.status().code(), ir::Code::kIO) << begun.status().to_string();
    EXPECT_NE(begun.status().message().find(worker.path()), std::string::npos) << begun.status().message();
  }
}

}  // namespace
}  // namespace lathe::runtime
