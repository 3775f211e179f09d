// Calls on a GPU that something stands against, and what a call may not do: allocate, wait, load. Each refusal names
// the argument and the state; the CPU notices nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/store/store.h"
#include "tests/gpu/fakes/fake_cubin.h"
#include "tests/gpu/served_chain.h"
#include "tests/gpu/temp_store.h"

namespace lathe::test {
namespace {

using ::testing::HasSubstr;

class DeviceRefuse : public DeviceServe {
 protected:
  void SetUp() override {
    ctx = gpu_context();
    graph = unary_graph(ctx.get(), "relu", {range("N", 1, 4096)});
    ASSERT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &error), LATHE_STATUS_OK)
        << error.message;
  }
  template <class Function>
  static Function driver(const char* name) {
    return reinterpret_cast<Function>(dlsym(fake_gpu().library, name));
  }
  Owned<lathe_context> ctx;
  Owned<lathe_graph> graph;
  Owned<lathe_kernel> kernel;
  lathe_error error{};
};

// Neither the first call of a shape nor a later one, pinned or not.
TEST_F(DeviceRefuse, ACallAllocatesWaitsAndLoadsNothing) {
  FakeCuda& state = fake_gpu().state;
  lathe_exec exec = on_stream();
  for (const int64_t n : {9, 10, 9}) {
    DeviceFloats x({n}), y({n});
    x = values(static_cast<size_t>(n), 1);
    const lathe_arg args[] = {x.arg(), y.arg()};
    const int allocations = state.allocations, waits = state.synchronisations, loads = state.loads;
    ASSERT_EQ(lathe_execute(kernel.get(), args, 2, &exec, &error), LATHE_STATUS_OK) << error.message;
    lathe_pinned* made = nullptr;
    ASSERT_EQ(lathe_pin(kernel.get(), args, 2, 1, &made, &error), LATHE_STATUS_OK) << error.message;
    const Owned<lathe_pinned> pinned(made);
    void* const data[] = {x.data, y.data};
    EXPECT_EQ(lathe_pinned_run(made, data, &exec), LATHE_STATUS_OK);
    EXPECT_EQ(state.allocations, allocations);
    EXPECT_EQ(state.synchronisations, waits);
    EXPECT_EQ(state.loads, loads);
  }
}

// A call at a shape that was never seen joins a stream that captures; a resolve that loads meanwhile ends no capture.
TEST_F(DeviceRefuse, CallsAreCapturedAndResolvesEndNoCapture) {
  DeviceFloats x({77}), y({77});
  x = values(77, 1);
  const lathe_arg args[] = {x.arg(), y.arg()};
  const lathe_exec exec = on_stream();
  ASSERT_EQ(driver<int (*)(void*, int)>("cuStreamBeginCapture_v2")(exec.stream, 0), 0);
  ASSERT_EQ(lathe_execute(kernel.get(), args, 2, &exec, &error), LATHE_STATUS_OK) << error.message;
  const int loads = fake_gpu().state.loads;
  const auto other = graph_of(ctx.get(), {{range("N", 1, 4096)}}, {{"floor", {0}}, {"exp", {-1}}, {"floor", {-1}}});
  Owned<lathe_kernel> loaded;
  EXPECT_EQ(resolve_on(ctx.get(), other.get(), LATHE_WAIT_TUNED, loaded, nullptr, &error), LATHE_STATUS_OK)
      << error.message;
  EXPECT_EQ(fake_gpu().state.loads, loads + 1);
  void *recorded = nullptr, *exec_graph = nullptr;
  ASSERT_EQ(driver<int (*)(void*, void**)>("cuStreamEndCapture")(exec.stream, &recorded), 0);
  ASSERT_EQ(driver<int (*)(void**, void*, unsigned long long)>("cuGraphInstantiateWithFlags")(&exec_graph, recorded, 0),
            0);
  EXPECT_EQ(y.data[5], -7.5f) << "nothing ran yet";
  ASSERT_EQ(driver<int (*)(void*, void*)>("cuGraphLaunch")(exec_graph, exec.stream), 0);
  for (size_t i = 0; i < 77; ++i) ASSERT_EQ(y.data[i], std::max(x.data[i], 0.f)) << i;
}

// A GPU has no kernel of it that takes no such liberty: resolve says so, and the CPU serves it.
TEST_F(DeviceRefuse, AClassThatThePolicyForbidsIsNamed) {
  const auto softmax = unary_graph(ctx.get(), "softmax", {range("M", 1, 64), fixed(300)});
  Owned<lathe_kernel> made;
  EXPECT_EQ(resolve_on(ctx.get(), softmax.get(), LATHE_WAIT_TUNED, made, nullptr, &error, 1, LATHE_CLASS_CONTRACT),
            LATHE_STATUS_UNSUPPORTED);
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(std::string(error.arg_name), "policy.allowed");
  EXPECT_EQ(error.arg_index, 2);
  EXPECT_THAT(std::string(error.message), HasSubstr("policy.allowed: contract, expected reassociate as well"));
  EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, made, nullptr, &error, 1, LATHE_CLASS_CONTRACT),
            LATHE_STATUS_OK)
      << error.message;
  lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
  EXPECT_EQ(resolve_on(ctx.get(), softmax.get(), LATHE_WAIT_NOW, made, &info, &error, 0, LATHE_CLASS_CONTRACT),
            LATHE_STATUS_OK)
      << error.message;
  EXPECT_EQ(info.numeric_class & ~LATHE_CLASS_CONTRACT, 0u);
}

// The second device fails for good: whatever is asked of it says so, other devices and the CPU go on.
TEST_F(DeviceRefuse, EveryCallOnADeviceThatFailedSaysSo) {
  // A driver of its own: the device stays broken as long as the process runs.
  const TempStore folder;
  for (const int failure : {700, 719}) {
    const std::string path = folder.path / ("libcuda_" + std::to_string(failure) + ".so");
    std::filesystem::copy_file(LATHE_FAKE_CUDA, path);
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    FakeCuda& state = *reinterpret_cast<FakeCuda* (*)()>(dlsym(library, "fake_cuda"))();
    const auto alloc = reinterpret_cast<void* (*)(size_t, int)>(dlsym(library, "fake_cuda_alloc"));
    const auto own = gpu_context({}, LATHE_FAKE_NVRTC, path.c_str());
    const auto relu = unary_graph(own.get(), "relu", {range("N", 0, 4096)});
    Owned<lathe_kernel> first, second;
    ASSERT_EQ(resolve_on(own.get(), relu.get(), LATHE_WAIT_TUNED, first, nullptr, &error, 1), LATHE_STATUS_OK);
    ASSERT_EQ(resolve_on(own.get(), relu.get(), LATHE_WAIT_TUNED, second, nullptr, &error, 2), LATHE_STATUS_OK);
    int64_t shape = 9;
    const auto args_on = [&](int device) {
      static lathe_tensor tensors[2];
      for (lathe_tensor& t : tensors) t = {alloc(36, device), {2, device}, 1, {2, 32, 1}, &shape, nullptr, 0};
      return std::array<lathe_arg, 2>{{{&tensors[0], 0, 0, 0, 0}, {&tensors[1], 0, 0, 0, 0}}};
    };
    const auto args = args_on(1);
    lathe_pinned* made = nullptr;
    ASSERT_EQ(lathe_pin(second.get(), args.data(), 2, 1, &made, &error), LATHE_STATUS_OK) << error.message;
    const Owned<lathe_pinned> pinned(made);
    shape = 0;
    ASSERT_EQ(lathe_pin(second.get(), args.data(), 2, 1, &made, &error), LATHE_STATUS_OK) << error.message;
    const Owned<lathe_pinned> pinned_empty(made);
    shape = 9;
    void* const data[] = {args[0].tensor->data, args[1].tensor->data};
    const lathe_exec exec = on_stream();
    state.fail_launch = failure;
    EXPECT_EQ(lathe_execute(second.get(), args.data(), 2, &exec, &error), LATHE_STATUS_DEVICE);
    const std::string says = "device 1 failed before: CUDA_ERROR_" +
                             std::string(failure == 700 ? "ILLEGAL_ADDRESS (700)" : "LAUNCH_FAILED (719)");
    const int launches = state.launches;
    EXPECT_EQ(lathe_execute(second.get(), args.data(), 2, &exec, &error), LATHE_STATUS_DEVICE);
    EXPECT_THAT(std::string(error.message), HasSubstr(says));
    EXPECT_EQ(lathe_pinned_run(pinned.get(), data, &exec), LATHE_STATUS_DEVICE);
    EXPECT_EQ(lathe_pinned_run(pinned_empty.get(), data, &exec), LATHE_STATUS_DEVICE) << "also of no elements";
    lathe_pinned* none = nullptr;
    EXPECT_EQ(lathe_pin(second.get(), args.data(), 2, 1, &none, &error), LATHE_STATUS_DEVICE);
    EXPECT_EQ(std::string(error.arg_name), "kernel");
    shape = 0;
    EXPECT_EQ(lathe_execute(second.get(), args.data(), 2, &exec, &error), LATHE_STATUS_DEVICE);
    shape = 9;
    Owned<lathe_kernel> again;
    EXPECT_EQ(resolve_on(own.get(), relu.get(), LATHE_WAIT_NOW, again, nullptr, &error, 2), LATHE_STATUS_DEVICE);
    EXPECT_THAT(std::string(error.message), HasSubstr(says));
    EXPECT_EQ(std::string(error.arg_name), "policy.device");
    lathe_plan* plan = nullptr;
    ASSERT_EQ(lathe_plan_create(own.get(), &plan, &error), LATHE_STATUS_OK);
    const Owned<lathe_plan> owned_plan(plan);
    lathe_budget budget = LATHE_BUDGET_INIT;
    budget.device = 2;
    EXPECT_EQ(lathe_plan_run(plan, &budget, nullptr, nullptr, nullptr, &error), LATHE_STATUS_DEVICE);
    EXPECT_THAT(std::string(error.message), HasSubstr(says));
    EXPECT_EQ(state.launches, launches) << "nothing is tried again";
    const auto others = args_on(0);
    EXPECT_EQ(lathe_execute(first.get(), others.data(), 2, &exec, &error), LATHE_STATUS_OK) << error.message;
    Floats x({9}), y({9});
    const lathe_arg host[] = {x.arg(), y.arg()};
    EXPECT_EQ(lathe_execute(resolve(own.get(), relu.get()).get(), host, 2, nullptr, &error), LATHE_STATUS_OK);
  }
}

// What an earlier launch did may show first where a call asks whose memory it has.
TEST_F(DeviceRefuse, AFailureThatShowsBeforeALaunchIsRemembered) {
  const TempStore folder;
  const std::string path = folder.path / "libcuda_memory.so";
  std::filesystem::copy_file(LATHE_FAKE_CUDA, path);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  FakeCuda& state = *reinterpret_cast<FakeCuda* (*)()>(dlsym(library, "fake_cuda"))();
  const auto alloc = reinterpret_cast<void* (*)(size_t, int)>(dlsym(library, "fake_cuda_alloc"));
  const auto own = gpu_context({}, LATHE_FAKE_NVRTC, path.c_str());
  const auto relu = unary_graph(own.get(), "relu", {range("N", 1, 4096)});
  Owned<lathe_kernel> made, again;
  state.fail_load = 209;
  EXPECT_EQ(resolve_on(own.get(), relu.get(), LATHE_WAIT_TUNED, made, nullptr, &error), LATHE_STATUS_DEVICE)
      << "code that was made for it";
  EXPECT_THAT(std::string(error.message), HasSubstr("code that device 0 does not take"));
  EXPECT_EQ(std::string(error.arg_name), "policy.device");
  state.fail_load = 0;
  ASSERT_EQ(resolve_on(own.get(), relu.get(), LATHE_WAIT_TUNED, made, nullptr, &error), LATHE_STATUS_OK);
  int64_t shape = 9;
  const lathe_tensor x = {alloc(36, 0), {2, 0}, 1, {2, 32, 1}, &shape, nullptr, 0};
  const lathe_arg args[] = {{&x, 0, 0, 0, 0}, {&x, 0, 0, 0, 0}};
  const lathe_exec exec = on_stream();
  state.fail_memory = 700;
  EXPECT_EQ(lathe_execute(made.get(), args, 2, &exec, &error), LATHE_STATUS_DEVICE);
  EXPECT_THAT(std::string(error.message), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
  EXPECT_EQ(lathe_execute(made.get(), args, 2, &exec, &error), LATHE_STATUS_DEVICE);
  EXPECT_THAT(std::string(error.message), HasSubstr("device 0 failed before: CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
  EXPECT_EQ(resolve_on(own.get(), relu.get(), LATHE_WAIT_NOW, again, nullptr, &error), LATHE_STATUS_DEVICE);
  EXPECT_EQ(state.launches, 0);
}

// Code that the store takes for sound and the driver does not: a counted miss, and made anew.
TEST_F(DeviceRefuse, CodeThatTheDriverDoesNotTakeIsMadeAnew) {
  const TempStore store;
  const auto resolve_stored = [&](uint32_t wait, lathe_kernel_info* info, uint64_t* corrupt) {
    const auto own = gpu_context(store.path);
    const auto relu = unary_graph(own.get(), "abs", {range("N", 1, 4096)});
    Owned<lathe_kernel> made;
    const lathe_status status = resolve_on(own.get(), relu.get(), wait, made, info, &error);
    if (corrupt != nullptr) *corrupt = counter(own.get(), "misses_corrupt");
    return status;
  };
  ASSERT_EQ(resolve_stored(LATHE_WAIT_TUNED, nullptr, nullptr), LATHE_STATUS_OK) << error.message;
  const std::filesystem::path file = store.cubin();
  const runtime::ObjectKey key{runtime::ObjectKind::k_cubin, file.parent_path().parent_path().filename().string(),
                               file.stem().string()};
  runtime::StoreOptions options;
  options.cache_dir = store.path;
  runtime::Stats stats;
  const auto opened = runtime::Store::open(options, &stats);
  ASSERT_TRUE(opened.ok());
  std::string record = (*opened)->find(key).bytes;
  ASSERT_FALSE(record.empty());
  const size_t at = record.find(".lathe.host");
  ASSERT_NE(at, std::string::npos);
  record[at + 1] = 'L';  // foreign: no code that this driver knows
  (*opened)->remove(key);
  ASSERT_TRUE((*opened)->put(key, record).ok());
  EXPECT_EQ(resolve_stored(LATHE_WAIT_NOW, nullptr, nullptr), LATHE_STATUS_MISS);
  lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
  uint64_t corrupt = 0;
  (*opened)->remove(key);
  ASSERT_TRUE((*opened)->put(key, record).ok());
  EXPECT_EQ(resolve_stored(LATHE_WAIT_TUNED, &info, &corrupt), LATHE_STATUS_OK) << error.message;
  EXPECT_EQ(info.origin, static_cast<uint32_t>(LATHE_ORIGIN_COMPILED));
  EXPECT_GE(corrupt, 1u);
}

}  // namespace
}  // namespace lathe::test
