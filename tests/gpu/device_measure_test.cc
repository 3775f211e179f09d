// What measures on a device, in this process: how much is launched at once, that samples are told, and who is blamed
// when the device fails.
#include <gtest/gtest.h>

#include "runtime/base/tasks.h"
#include "runtime/cuda/device_stage.h"
#include "runtime/cuda/measure/device_evaluation.h"
#include "runtime/cuda/measure/device_timing.h"
#include "runtime/measure/worker_client.h"
#include "runtime/store/store.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/fake_gpu.h"
#include "tests/gpu/temp_store.h"

namespace lathe::runtime {
namespace {

// A long launch is not recorded twenty times, and each sample is told before it is taken.
TEST(DeviceTiming, SignsOfLifeComeSoon) {
  const auto device = cuda_device(LATHE_FAKE_CUDA, 0);
  ASSERT_TRUE(device.ok()) << device.status().message();
  auto opened = DeviceSession::open(*device);
  ASSERT_TRUE(opened.ok());
  const std::shared_ptr<DeviceSession> session = std::move(*opened);
  constexpr size_t kBytes = 64 << 20;
  auto from = DeviceMemory::map(*device, kBytes, 256), to = DeviceMemory::map(*device, kBytes, 256);
  ASSERT_TRUE(from.ok() && to.ok());
  std::vector<int> told;
  DeviceTiming timing(session, [&](int n) { told.push_back(n); });
  int recorded = 0;
  const auto add = [&](size_t bytes, int times) {
    recorded = 0;
    const auto number = timing.add([&, bytes, times](void*) {
      ++recorded;
      for (int i = 0; i < times; ++i) LATHE_RETURN_IF_ERROR(session->copy(to->data(), from->data(), bytes));
      return ir::Status();
    });
    ASSERT_TRUE(number.ok()) << number.status().message();
  };
  add(4, 1);
  EXPECT_GT(recorded, DeviceSession::kLaunches / 2);
  add(kBytes, 8);  // half a GiB
  EXPECT_LT(recorded, 1 + DeviceSession::kLaunches / 2);
  EXPECT_TRUE(told.empty());
  ASSERT_TRUE(timing.screen(1).ok());
  EXPECT_EQ(told, (std::vector<int>{0, 1, 0, 1, 0, 1}));
}

// A task of two candidates on a device of its own, which a graph breaks when it is told to: it stays broken as long as
// the process runs.
struct BreakableTask {
  explicit BreakableTask(const char* name) {
    const std::string driver = folder.path / (std::string("libcuda_") + name + ".so");
    std::filesystem::copy_file(LATHE_FAKE_CUDA, driver);
    void* library = dlopen(driver.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) state = reinterpret_cast<test::FakeCuda* (*)()>(dlsym(library, "fake_cuda"))();
    task.kernel_text = test::kFlat;
    task.dims = {{"N", 403}};
    task.device = 1;
    task.cuda = driver;
    task.nvrtc = LATHE_FAKE_NVRTC;
  }
  auto begin() {
    EvaluationHooks hooks;
    hooks.progress = [this](int candidate, EvaluatePhase phase) {
      if (candidate == breaks && phase == EvaluatePhase::time && --left == 0) state->fail_graph = 700;
    };
    return begin_device_evaluation(task, hooks,
                                   [this](int candidate, const std::string&) { lost.push_back(candidate); });
  }
  // From its `times`th sign of life in a timing on.
  void break_under(int candidate, int times) {
    breaks = candidate;
    left = times;
  }
  std::vector<CandidateSpec> two() const {
    const auto ranked = rank_on_device(test::kernel_of(test::kFlat), task.dims, *ir::find_gpu_target("h200"), 2);
    std::vector<CandidateSpec> out;
    for (const search::Scheduled& s : *ranked) out.push_back({search::to_text(s.schedule), true});
    return out;
  }

  const test::TempStore folder;
  test::FakeCuda* state = nullptr;
  EvaluateTask task;
  int breaks = -1, left = 0;
  std::vector<int> lost;
};

// The device fails in the decision, under a finalist: that one is named. A task that begins on it says so, too.
TEST(DeviceEvaluation, ADeviceLostInTheDecisionIsSaid) {
  for (const int guilty : {1, 0}) {
    BreakableTask t(guilty == 1 ? "lost" : "lost_reference");
    ASSERT_NE(t.state, nullptr) << dlerror();
    auto begun = t.begin();
    ASSERT_TRUE(begun.ok()) << begun.status().message();
    const auto results = (*begun)->screen(t.two());
    ASSERT_TRUE(results.ok()) << results.status().message();
    ASSERT_EQ(results->size(), 2u);
    for (const CandidateResult& r : *results) ASSERT_EQ(r.outcome, search::Outcome::timed) << r.reason;
    t.break_under(guilty, 1);
    EXPECT_EQ((*begun)->decide({1}, -1).status().code(), ir::Code::kDEVICE);
    EXPECT_EQ(t.lost, std::vector<int>{guilty});
    EXPECT_EQ(t.begin().status().code(), ir::Code::kDEVICE);
    EXPECT_EQ(t.lost, (std::vector<int>{guilty, -1}));
  }
}

// It fails under the reference that a candidate is compared with: the candidate has nothing to do with that.
TEST(DeviceEvaluation, AReferenceThatFailsBesideACandidateIsNamed) {
  BreakableTask t("beside");
  ASSERT_NE(t.state, nullptr) << dlerror();
  auto begun = t.begin();
  ASSERT_TRUE(begun.ok()) << begun.status().message();
  t.break_under(0, 5);  // one as it begins, one for each of its three samples, then beside candidate 1
  const auto results = (*begun)->screen(t.two());
  ASSERT_TRUE(results.ok()) << results.status().message();
  ASSERT_EQ(results->size(), 2u);
  EXPECT_EQ(t.lost, std::vector<int>{0});
  EXPECT_EQ((*results)[0].outcome, search::Outcome::crashed);
  EXPECT_EQ((*results)[1].outcome, search::Outcome::skipped);
  EXPECT_TRUE((*results)[1].reason.starts_with("the reference beside it: ")) << (*results)[1].reason;
  EXPECT_EQ((*begun)->decide({1}, -1).status().code(), ir::Code::kDEVICE);
  EXPECT_EQ(t.lost, std::vector<int>{0}) << "said once";
}

// Nor has the reference to do with a finalist that breaks the device when the decision admits it.
TEST(DeviceEvaluation, AFinalistThatFailsWhenItIsAdmittedIsNamedAlone) {
  BreakableTask t("admitted");
  ASSERT_NE(t.state, nullptr) << dlerror();
  auto begun = t.begin();
  ASSERT_TRUE(begun.ok()) << begun.status().message();
  std::vector<CandidateSpec> specs = t.two();
  ASSERT_EQ(specs.size(), 2u);
  specs[1].time = false;
  ASSERT_TRUE((*begun)->screen(specs).ok());
  t.break_under(1, 2);  // as it begins, then its first sample
  EXPECT_EQ((*begun)->decide({1}, -1).status().code(), ir::Code::kDEVICE);
  EXPECT_EQ(t.lost, std::vector<int>{1});
}

// Launches that hand each other parts of sums have a workspace while they are timed.
TEST(DeviceEvaluation, PartsOfSumsAreTimed) {
  BreakableTask t("parts");
  ASSERT_NE(t.state, nullptr) << dlerror();
  t.task.dims = {{"M", 1}, {"N", 4}, {"K", 2048}};
  const ir::Kernel kernel = test::up_to(test::kernel_of(test::kTurnedProduct), t.task.dims);
  t.task.kernel_text = ir::print(kernel);
  const auto ranked = rank_on_device(kernel, t.task.dims, *ir::find_gpu_target("h200"), 1);
  ASSERT_TRUE(ranked.ok()) << ranked.status().message();
  const std::string schedule = search::to_text(ranked->front().schedule);
  ASSERT_NE(schedule.find("share_sum"), std::string::npos) << schedule;
  auto begun = t.begin();
  ASSERT_TRUE(begun.ok()) << begun.status().message();
  const auto results = (*begun)->screen({{schedule, true}});
  ASSERT_TRUE(results.ok()) << results.status().message();
  EXPECT_EQ((*results)[0].outcome, search::Outcome::timed) << (*results)[0].reason;
}

// Code of several candidates is compiled at once: one waits in the compiler until another one is there.
TEST(DeviceEvaluation, CandidatesAreCompiledAtOnce) {
  if (TaskArena(2).threads() < 2) GTEST_SKIP() << "one core";
  BreakableTask t("at_once");
  ASSERT_NE(t.state, nullptr) << dlerror();
  test::FakeNvrtc& compiler = test::fake_compiler();
  compiler.most_at_once = 0;
  compiler.wait_for = 2;
  auto begun = t.begin();
  ASSERT_TRUE(begun.ok()) << begun.status().message();
  const auto results = (*begun)->screen(t.two());
  compiler.wait_for = 0;
  ASSERT_TRUE(results.ok()) << results.status().message();
  for (const CandidateResult& r : *results) EXPECT_EQ(r.outcome, search::Outcome::timed) << r.reason;
  EXPECT_EQ(compiler.most_at_once, 2);
  compiler.most_at_once = 0;
}

// A candidate for a GPU is none for a CPU of the same name, and has the epoch of its own code.
TEST(DeviceEvaluation, QuarantineIsByTheDevicesCode) {
  EXPECT_NE(quarantine_key("k", "s", "sm_90a h200", true).name, quarantine_key("k", "s", "sm_90a h200", false).name);
}

}  // namespace
}  // namespace lathe::runtime
