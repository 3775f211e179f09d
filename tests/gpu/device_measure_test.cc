// What measures on a device, in this process: how much is launched at once, that samples are told, and who is blamed
// when the device fails.
#include <gtest/gtest.h>

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

// The device fails in the decision, under a finalist: that one is named. A task that begins on it says so, too.
TEST(DeviceEvaluation, ADeviceLostInTheDecisionIsSaid) {
  const test::TempStore folder;  // a driver of its own: the device stays broken as long as the process runs
  const std::string driver = folder.path / "libcuda_lost.so";
  std::filesystem::copy_file(LATHE_FAKE_CUDA, driver);
  void* library = dlopen(driver.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  test::FakeCuda& state = *reinterpret_cast<test::FakeCuda* (*)()>(dlsym(library, "fake_cuda"))();
  EvaluateTask task;
  task.kernel_text = test::kFlat;
  task.dims = {{"N", 403}};
  task.device = 1;
  task.cuda = driver;
  task.nvrtc = LATHE_FAKE_NVRTC;
  bool deciding = false;
  EvaluationHooks hooks;
  hooks.progress = [&](int candidate, EvaluatePhase phase) {
    if (deciding && candidate == 1 && phase == EvaluatePhase::time) state.fail_graph = 700;
  };
  std::vector<int> lost;
  const auto on_lost = [&](int candidate, const std::string&) { lost.push_back(candidate); };
  auto begun = begin_device_evaluation(task, hooks, on_lost);
  ASSERT_TRUE(begun.ok()) << begun.status().message();
  const auto ranked = rank_on_device(test::kernel_of(test::kFlat), task.dims, *ir::find_gpu_target("h200"), 2);
  ASSERT_TRUE(ranked.ok()) << ranked.status().message();
  ASSERT_EQ(ranked->size(), 2u);
  std::vector<CandidateSpec> specs;
  for (const search::Scheduled& s : *ranked) specs.push_back({search::to_text(s.schedule), true});
  const auto results = (*begun)->screen(specs);
  ASSERT_TRUE(results.ok()) << results.status().message();
  for (const CandidateResult& r : *results) ASSERT_EQ(r.outcome, search::Outcome::timed) << r.reason;
  deciding = true;
  EXPECT_EQ((*begun)->decide({1}, -1).status().code(), ir::Code::kDEVICE);
  EXPECT_EQ(lost, std::vector<int>{1});
  EXPECT_EQ(begin_device_evaluation(task, {}, on_lost).status().code(), ir::Code::kDEVICE);
  EXPECT_EQ(lost, (std::vector<int>{1, -1}));
}

// A candidate for a GPU is none for a CPU of the same name, and has the epoch of its own code.
TEST(DeviceEvaluation, QuarantineIsByTheDevicesCode) {
  EXPECT_NE(quarantine_key("k", "s", "sm_90a h200", true).name, quarantine_key("k", "s", "sm_90a h200", false).name);
}

}  // namespace
}  // namespace lathe::runtime
