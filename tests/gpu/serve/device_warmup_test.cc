// Warm-up for a GPU: through the C ABI and the command line, with the GPU and without, measured in the worker and
// ranked; what a failing GPU costs; and that what was stored serves without a compiler.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/serve/cli_run.h"
#include "tests/gpu/served_chain.h"
#include "tests/gpu/served_op.h"

namespace lathe::test {
namespace {

using ::testing::HasSubstr;

class DeviceWarmup : public DeviceServe {
 protected:
  void SetUp() override { setenv("LATHE_WORKER", LATHE_WORKER_FILE, 1); }
  void TearDown() override {
    unsetenv("LATHE_WORKER");
    DeviceServe::TearDown();
  }
  static lathe_kernel_info serve(const std::string& store, const char* nvrtc, int64_t size, uint32_t wait,
                                 lathe_status want = LATHE_STATUS_OK) {
    const auto ctx = gpu_context(store, nvrtc);
    const auto graph = unary_graph(ctx.get(), "exp", {fixed(size)});
    Owned<lathe_kernel> kernel;
    lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
    lathe_error e;
    EXPECT_EQ(resolve_on(ctx.get(), graph.get(), wait, kernel, &info, &e), want) << e.message;
    if (kernel != nullptr) expect_as_cpu(ctx.get(), graph.get(), kernel.get(), {{size}}, {size}, 1);
    return info;
  }
  static lathe_status run_plan(const std::string& store, int tier, lathe_report& report, lathe_error& e,
                               uint32_t device = 1) {
    const auto ctx = gpu_context(store);
    return run_plan(ctx.get(), unary_graph(ctx.get(), "exp", {fixed(1003)}).get(), tier, report, e, device);
  }
  static lathe_status run_plan(lathe_context* ctx, const lathe_graph* graph, int tier, lathe_report& report,
                               lathe_error& e, uint32_t device = 1) {
    lathe_plan* made = nullptr;
    EXPECT_EQ(lathe_plan_create(ctx, &made, &e), LATHE_STATUS_OK);
    const Owned<lathe_plan> plan(made);
    EXPECT_EQ(lathe_plan_add(made, graph, 1, &e), LATHE_STATUS_OK);
    lathe_budget budget = LATHE_BUDGET_INIT;
    budget.device = device;
    budget.tier = tier;
    return lathe_plan_run(made, &budget, nullptr, nullptr, &report, &e);
  }
};

TEST_F(DeviceWarmup, APlanStoresWhatRankingChose) {
  const TempStore store;
  lathe_report report = LATHE_REPORT_INIT;
  lathe_error e;
  ASSERT_EQ(run_plan(store.path, 1, report, e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(report.ops, 1u);
  EXPECT_EQ(report.compiled_nvrtc, 1u);
  EXPECT_EQ(report.failed, 0u);
  EXPECT_EQ(report.measurements, 0u);
  const lathe_kernel_info info = serve(store.path, "/nowhere/libnvrtc.so", 1003, LATHE_WAIT_NOW);
  EXPECT_EQ(info.tier, 1);
  EXPECT_EQ(std::string(info.miss_reason), "unmeasured");
  // Once more: nothing is left to do.
  ASSERT_EQ(run_plan(store.path, 1, report, e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(report.from_store, 1u);
  EXPECT_EQ(report.compiled_nvrtc, 0u);
}

TEST_F(DeviceWarmup, APlanTimesTheBest) {
  const TempStore store;
  lathe_report report = LATHE_REPORT_INIT;
  lathe_error e;
  ASSERT_EQ(run_plan(store.path, 2, report, e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(report.searches, 1u);
  EXPECT_GE(report.measurements, 2u);
  EXPECT_EQ(report.failed, 0u);
  const lathe_kernel_info info = serve(store.path, "/nowhere/libnvrtc.so", 1003, LATHE_WAIT_NOW);
  EXPECT_EQ(info.tier, 2);
  EXPECT_EQ(info.origin, static_cast<uint32_t>(LATHE_ORIGIN_STORE));
  EXPECT_EQ(std::string(info.miss_reason), "");
  ASSERT_EQ(run_plan(store.path, 2, report, e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(report.searches, 0u);
  EXPECT_EQ(report.from_store, 1u);
}

// Of a product that has more Schedules than that.
TEST_F(DeviceWarmup, TheDefaultAndTheEightBestAreTimed) {
  const TempStore store;
  const auto ctx = gpu_context(store.path);
  const auto graph = single_graph(ctx.get(), "matmul", {{{fixed(17), fixed(12)}}, {{fixed(12), fixed(18)}}});
  ASSERT_NE(graph, nullptr);
  lathe_report report = LATHE_REPORT_INIT;
  lathe_error e;
  ASSERT_EQ(run_plan(ctx.get(), graph.get(), 2, report, e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(report.searches, 1u);
  EXPECT_EQ(report.measurements, 9u);
  EXPECT_EQ(report.failed, 0u);
  RecordProperty("emulated", static_cast<int>(report.measurements));
}

// What was timed with code of another compiler is timed again, once: the code in the store is replaced.
TEST_F(DeviceWarmup, AnotherCompilerIsMeasuredOnce) {
  const TempStore store;
  lathe_report report = LATHE_REPORT_INIT;
  lathe_error e;
  fake_compiler().minor = 8;
  const lathe_status older = run_plan(store.path, 2, report, e);
  fake_compiler().minor = 9;
  ASSERT_EQ(older, LATHE_STATUS_OK) << e.message;
  ASSERT_EQ(run_plan(store.path, 2, report, e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(report.searches, 1u);
  EXPECT_EQ(report.compiled_nvrtc, 1u);
  ASSERT_EQ(run_plan(store.path, 2, report, e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(report.searches, 0u);
  EXPECT_EQ(report.compiled_nvrtc, 0u);
  EXPECT_EQ(report.from_store, 1u);
}

TEST_F(DeviceWarmup, BadBudgetsAreNamed) {
  lathe_report report = LATHE_REPORT_INIT;
  lathe_error e;
  EXPECT_EQ(run_plan({}, 1, report, e, 65), LATHE_STATUS_INVALID);
  EXPECT_EQ(std::string(e.arg_name), "budget.device");
  EXPECT_EQ(run_plan({}, 1, report, e, 9), LATHE_STATUS_DEVICE);
  EXPECT_EQ(std::string(e.arg_name), "budget.device");
  EXPECT_THAT(std::string(e.message), HasSubstr("device 8, and the driver has 8"));
}

// Without a driver for a kind, then on such a GPU.
TEST_F(DeviceWarmup, AKindFirstThenTheGpu) {
  Cli cli(fixed_line("exp", "exp", 1003) + chain_line("silu", "silu", 3000));
  cli.environment["LATHE_CUDA"] = "/nowhere/libcuda.so";
  const tools::Finished ranked = cli.run("warmup", {"--json", "--device", "h200"});
  ASSERT_EQ(ranked.code, 0) << ranked.err;
  EXPECT_EQ(ranked.summary()["failed"], 0);
  EXPECT_EQ(ranked.summary()["measurements"], 0);
  EXPECT_GE(ranked.summary()["compiled_nvrtc"], 2);
  for (const auto& row : ranked.rows()) {
    EXPECT_EQ(row["tier"], "T1");
    EXPECT_EQ(row["note"], "ranked: no such GPU at hand");
  }
  EXPECT_EQ(serve(cli.store, "/nowhere/libnvrtc.so", 1003, LATHE_WAIT_NOW).tier, 1);
  cli.environment["LATHE_CUDA"] = LATHE_FAKE_CUDA;
  const tools::Finished timed = cli.run("warmup", {"--json", "--device", "0"});
  ASSERT_EQ(timed.code, 0) << timed.err;
  EXPECT_EQ(timed.summary()["searches"], 2);
  EXPECT_EQ(timed.summary()["failed"], 0);
  for (const auto& row : timed.rows()) EXPECT_EQ(row["tier"], "T2") << row;
  EXPECT_EQ(serve(cli.store, "/nowhere/libnvrtc.so", 1003, LATHE_WAIT_NOW).tier, 2);
  const tools::Finished again = cli.run("warmup", {"--json", "--device", "cuda:0"});
  EXPECT_EQ(again.summary()["from_store"], 2) << again.out << again.err;
  EXPECT_EQ(again.summary()["digest"], timed.summary()["digest"]);
}

// Decisions of one kind of GPU are none of another's, and none of the CPU's.
TEST_F(DeviceWarmup, KindsHaveEnvironmentsOfTheirOwn) {
  Cli cli(fixed_line("exp", "exp", 1003));
  ASSERT_EQ(cli.run("warmup", {"--json", "--device", "h100"}).code, 0);
  const lathe_kernel_info info = serve(cli.store, "/nowhere/libnvrtc.so", 1003, LATHE_WAIT_NOW);
  EXPECT_EQ(info.tier, 1) << "the code is of the same architecture";
  EXPECT_EQ(std::string(info.miss_reason), "never_seen") << "the decision is not";
  ASSERT_EQ(cli.run("warmup", {"--json", "--device", "h200"}).code, 0);
  EXPECT_EQ(std::string(serve(cli.store, "/nowhere/libnvrtc.so", 1003, LATHE_WAIT_NOW).miss_reason), "unmeasured");
  EXPECT_EQ(cli.folder.files(".rec").size(), 2u);
}

// The driver's file asks for an illegal address while the second candidate is verified: it is rejected, the rest goes
// on.
TEST_F(DeviceWarmup, AFailureCostsOneCandidate) {
  Cli cli(fixed_line("exp", "exp", 1003));
  const std::string driver = cli.folder.path / "libcuda_fail-700-at-30_.so";
  std::filesystem::copy_file(LATHE_FAKE_CUDA, driver);
  cli.environment["LATHE_CUDA"] = driver;
  const tools::Finished run = cli.run("warmup", {"--json", "--device", "0"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_TRUE(std::filesystem::exists(driver + ".done"));
  EXPECT_EQ(run.summary()["rejected"], 1) << run.out;
  EXPECT_GE(run.summary()["measurements"], 2) << run.out;
  EXPECT_EQ(run.rows().at(0)["tier"], "T2");
  EXPECT_EQ(cli.folder.files(".txt").empty(), false);
}

TEST_F(DeviceWarmup, WithoutAWorkerRankingDecides) {
  Cli cli(fixed_line("exp", "exp", 1003));
  cli.environment["LATHE_WORKER"] = "/nowhere/lathe-worker";
  const tools::Finished run = cli.run("warmup", {"--json", "--device", "0"});
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.err, HasSubstr("nothing was measured"));
  EXPECT_EQ(serve(cli.store, "/nowhere/libnvrtc.so", 1003, LATHE_WAIT_NOW).tier, 1);
}

// A search that fails leaves what was measured before.
TEST_F(DeviceWarmup, AFailedSearchKeepsTheDecision) {
  Cli cli(fixed_line("exp", "exp", 1003));
  ASSERT_EQ(cli.run("warmup", {"--json", "--device", "0"}).code, 0);
  cli.environment["LATHE_WORKER"] = "/nowhere/lathe-worker";
  EXPECT_EQ(cli.run("warmup", {"--json", "--force", "--device", "0"}).code, 1);
  EXPECT_EQ(serve(cli.store, "/nowhere/libnvrtc.so", 1003, LATHE_WAIT_NOW).tier, 2);
}

TEST_F(DeviceWarmup, WithoutACompilerNothingIsMade) {
  Cli cli(fixed_line("exp", "exp", 1003));
  cli.environment["LATHE_NVRTC"] = "/nowhere/libnvrtc.so";
  const tools::Finished run = cli.run("warmup", {"--json", "--device", "h200"});
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.err, HasSubstr("no NVRTC; /nowhere/libnvrtc.so"));
  EXPECT_EQ(run.summary()["failed"], 1);
}

}  // namespace
}  // namespace lathe::test
