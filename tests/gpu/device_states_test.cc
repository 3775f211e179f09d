// What a device serves from the store, in this process and in others; missing drivers and compilers, damaged files, bad
// arguments, devices that fail: a status that says what it is, or a counted miss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <thread>

#include "tests/gpu/served_chain.h"
#include "tests/gpu/temp_store.h"

extern char** environ;

namespace lathe::test {
namespace {

using ::testing::HasSubstr;

class DeviceStore : public DeviceServe {
 protected:
  static Owned<lathe_graph> product_of(lathe_context* ctx) {
    return graph_of(ctx, {{range("M", 1, 4096), fixed(21)}, {fixed(21), fixed(50)}}, {{"matmul", {0, 1}}});
  }
};

// In a process of its own: serves what another one stored, without a compiler.
TEST_F(DeviceStore, DISABLED_ServesWhatIsStored) {
  const auto ctx = gpu_context(std::getenv("LATHE_TEST_STORE"));
  const auto graph = graph_of(ctx.get(), {{range("N", 1, 4096)}}, {{"silu", {0}}, {"exp", {-1}}});
  Owned<lathe_kernel> kernel;
  lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
  lathe_error e;
  ASSERT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_NOW, kernel, &info, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(info.origin, static_cast<uint32_t>(LATHE_ORIGIN_STORE));
  expect_as_cpu(ctx.get(), graph.get(), kernel.get(), {{1003}}, {1003}, 1);
  const auto product = product_of(ctx.get());
  ASSERT_EQ(resolve_on(ctx.get(), product.get(), LATHE_WAIT_NOW, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
  expect_as_cpu(ctx.get(), product.get(), kernel.get(), {{37, 21}, {21, 50}}, {37, 50}, 0);
  expect_nothing_compiled(ctx.get());
}

// corrupt: counted misses of files that are no sound code.
lathe_status warm_up(const std::string& store, lathe_kernel_info* info = nullptr, uint64_t* corrupt = nullptr) {
  const auto ctx = gpu_context(store);
  const auto graph = graph_of(ctx.get(), {{range("N", 1, 4096)}}, {{"silu", {0}}, {"exp", {-1}}});
  Owned<lathe_kernel> kernel;
  lathe_error e;
  const lathe_status status = resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, info, &e);
  if (corrupt != nullptr) *corrupt = counter(ctx.get(), "misses_corrupt");
  return status;
}

TEST_F(DeviceStore, AnotherProcessServesIt) {
  const TempStore store;
  ASSERT_EQ(warm_up(store.path), LATHE_STATUS_OK);
  {
    const auto ctx = gpu_context(store.path);
    Owned<lathe_kernel> kernel;
    lathe_error e;
    ASSERT_EQ(resolve_on(ctx.get(), product_of(ctx.get()).get(), LATHE_WAIT_TUNED, kernel, nullptr, &e),
              LATHE_STATUS_OK)
        << e.message;
  }
  expect_served_in_another_process(store, "DeviceStore.DISABLED_ServesWhatIsStored");
}

TEST_F(DeviceStore, WhatIsNotStoredIsAMiss) {
  const auto ctx = gpu_context();
  const auto graph = unary_graph(ctx.get(), "tanh", {range("N", 1, 4096)});
  Owned<lathe_kernel> kernel;
  lathe_error e;
  for (const uint32_t wait : {LATHE_WAIT_NOW, LATHE_WAIT_STORED}) {
    EXPECT_EQ(resolve_on(ctx.get(), graph.get(), wait, kernel, nullptr, &e), LATHE_STATUS_MISS);
    EXPECT_THAT(std::string(e.message), HasSubstr("code for sm_90a is not stored, and compiling is not allowed"));
  }
  ASSERT_EQ(lathe_seal(ctx.get(), LATHE_SEAL_FALLBACK, &e), LATHE_STATUS_OK);
  EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_MISS);
  ASSERT_EQ(lathe_seal(ctx.get(), LATHE_SEAL_OFF, &e), LATHE_STATUS_OK);
  EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_NOW, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
}

// A file that was cut, flipped, made for another GPU or is no cubin at all: a counted miss, then made anew.
TEST_F(DeviceStore, DamagedCodeIsMadeAnew) {
  const std::function<void(std::string&)> damages[] = {
      [](std::string& f) { f.resize(f.size() / 2); },
      [](std::string& f) { f[f.size() - 200] ^= 1; },
      [](std::string& f) { f.clear(); },
      [](std::string& f) { f = "no record of anybody's"; },
  };
  for (const auto& damage : damages) {
    const TempStore store;
    ASSERT_EQ(warm_up(store.path), LATHE_STATUS_OK);
    const std::filesystem::path file = store.cubin();
    ASSERT_FALSE(file.empty());
    std::ifstream in(file, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    in.close();
    damage(bytes);
    std::filesystem::remove(file);
    std::ofstream(file, std::ios::binary) << bytes;
    std::filesystem::permissions(file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
    uint64_t corrupt = 0;
    ASSERT_EQ(warm_up(store.path, &info, &corrupt), LATHE_STATUS_OK);
    EXPECT_EQ(info.origin, static_cast<uint32_t>(LATHE_ORIGIN_COMPILED));
    EXPECT_EQ(corrupt, 1u) << &damage - damages;
    ASSERT_EQ(warm_up(store.path, &info, &corrupt), LATHE_STATUS_OK);
    EXPECT_EQ(info.origin, static_cast<uint32_t>(LATHE_ORIGIN_STORE));
    EXPECT_EQ(corrupt, 0u);
  }
}

TEST(DeviceDrivers, WithoutDriverOrCompilerItSaysSoAndTheCpuServes) {
  lathe_error e;
  Owned<lathe_kernel> kernel;
  {
    const auto ctx = gpu_context({}, LATHE_FAKE_NVRTC, "/nowhere/libcuda.so");
    const auto graph = unary_graph(ctx.get(), "relu", {range("N", 1, 4096)});
    EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_DEVICE);
    EXPECT_THAT(std::string(e.message), HasSubstr("no CUDA driver: /nowhere/libcuda.so"));
    EXPECT_EQ(std::string(e.arg_name), "policy.device");
    EXPECT_NE(resolve(ctx.get(), graph.get()), nullptr);
  }
  {
    const auto ctx = gpu_context({}, "/nowhere/libnvrtc.so");
    const auto graph = unary_graph(ctx.get(), "floor", {range("N", 1, 4096)});
    EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_UNSUPPORTED);
    EXPECT_THAT(std::string(e.message), HasSubstr("no NVRTC; /nowhere/libnvrtc.so"));
    EXPECT_EQ(std::string(e.arg_name), "policy.device");
  }
  const auto ctx = gpu_context();
  const auto graph = unary_graph(ctx.get(), "relu", {range("N", 1, 4096)});
  EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_NOW, kernel, nullptr, &e, 9), LATHE_STATUS_DEVICE);
  EXPECT_THAT(std::string(e.message), HasSubstr("device 8, and the driver has 8"));
  EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_NOW, kernel, nullptr, &e, 65), LATHE_STATUS_INVALID);
}

// Each a library of its own, opened for the first time.
TEST(DeviceDrivers, ThatCannotServeSaySo) {
  struct Case {
    int start, version;
    const char* message;
  };
  const Case cases[] = {{34, 12040, "is the toolkit's stub"},
                        {100, 12040, "the CUDA driver does not start: CUDA_ERROR_FAKE (100)"},
                        {0, 11080, "CUDA driver 11.8, expected 12.0 or later"}};
  const TempStore folder;
  for (const Case& c : cases) {
    const std::string path = folder.path / ("libcuda_" + std::to_string(&c - cases) + ".so");
    std::filesystem::copy_file(LATHE_FAKE_CUDA, path);
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    FakeCuda& state = *reinterpret_cast<FakeCuda* (*)()>(dlsym(library, "fake_cuda"))();
    state.start = c.start;
    state.version = c.version;
    const auto ctx = gpu_context({}, LATHE_FAKE_NVRTC, path.c_str());
    const auto graph = unary_graph(ctx.get(), "relu", {range("N", 1, 4096)});
    Owned<lathe_kernel> kernel;
    lathe_error e;
    EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_DEVICE);
    EXPECT_THAT(std::string(e.message), HasSubstr(c.message));
    state.start = 0;  // what was not there may come
    state.version = 12040;
    EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
  }
}

TEST(DeviceThreads, ResolveAndCallAtOnce) {
  const auto ctx = gpu_context();
  const auto graph = unary_graph(ctx.get(), "abs", {range("N", 1, 4096)});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Owned<lathe_kernel> kernel;
      lathe_error e;
      EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_OK)
          << e.message;
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_GE(counter(ctx.get(), "compiled_nvrtc"), 1u);
}

class DeviceCalls : public testing::Test {
 protected:
  void SetUp() override {
    ctx = gpu_context();
    graph = unary_graph(ctx.get(), "relu", {range("N", 1, 4096)});
    lathe_error e;
    ASSERT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
  }
  lathe_status call(const lathe_arg& x, const lathe_arg& y, const lathe_exec* exec) {
    const lathe_arg args[] = {x, y};
    return lathe_execute(kernel.get(), args, 2, exec, &error);
  }
  Owned<lathe_context> ctx;
  Owned<lathe_graph> graph;
  Owned<lathe_kernel> kernel;
  lathe_error error{};
};

TEST_F(DeviceCalls, BadArgumentsAreNamed) {
  DeviceFloats x({9}), y({9}), other({9}, 0, 1);
  Floats host({9});
  lathe_exec exec = on_stream();
  const int before = fake_gpu().state.launches;
  EXPECT_EQ(call(x.arg(), y.arg(), nullptr), LATHE_STATUS_INVALID);
  EXPECT_EQ(std::string(error.arg_name), "exec.stream");
  lathe_exec without = exec;
  without.stream = nullptr;
  EXPECT_EQ(call(x.arg(), y.arg(), &without), LATHE_STATUS_INVALID);
  EXPECT_EQ(std::string(error.arg_name), "exec.stream");
  EXPECT_EQ(error.arg_index, 3);
  EXPECT_THAT(std::string(error.message), HasSubstr("NULL, expected the stream that the call joins"));
  lathe_pool pool{};
  exec.pool = &pool;
  EXPECT_EQ(call(x.arg(), y.arg(), &exec), LATHE_STATUS_INVALID);
  EXPECT_EQ(std::string(error.arg_name), "exec.pool");
  exec.pool = nullptr;
  EXPECT_EQ(call(host.arg(), y.arg(), &exec), LATHE_STATUS_INVALID);
  EXPECT_EQ(std::string(error.arg_name), "x.device");
  EXPECT_EQ(call(x.arg(), other.arg(), &exec), LATHE_STATUS_INVALID);
  EXPECT_THAT(std::string(error.message), HasSubstr("type 2 id 1, expected 2 (CUDA) id 0"));
  host.tensor.device = {2, 0};
  EXPECT_EQ(call(host.arg(), y.arg(), &exec), LATHE_STATUS_INVALID);
  EXPECT_EQ(std::string(error.arg_name), "x.data");
  EXPECT_EQ(error.arg_index, 0);
  EXPECT_THAT(std::string(error.message), HasSubstr("host memory, expected memory of device 0"));
  other.tensor.device = {2, 0};
  EXPECT_EQ(call(x.arg(), other.arg(), &exec), LATHE_STATUS_INVALID);
  EXPECT_THAT(std::string(error.message), HasSubstr("memory of device 1, expected device 0"));
  EXPECT_EQ(fake_gpu().state.launches, before);
  // And a kernel of the CPU refuses the device's.
  const Owned<lathe_kernel> cpu = resolve(ctx.get(), graph.get());
  const lathe_arg args[] = {x.arg(), y.arg()};
  EXPECT_EQ(lathe_execute(cpu.get(), args, 2, nullptr, &error), LATHE_STATUS_INVALID);
  EXPECT_THAT(std::string(error.message), HasSubstr("type 2, expected 1 (CPU)"));
}

TEST_F(DeviceCalls, LoadNothingAndJoinTheStream) {
  DeviceFloats x({9}), y({9});
  x = values(9, 1);
  const lathe_exec exec = on_stream();
  const lathe_arg args[] = {x.arg(), y.arg()};
  lathe_pinned* made = nullptr;
  ASSERT_EQ(lathe_pin(kernel.get(), args, 2, 1, &made, &error), LATHE_STATUS_OK) << error.message;
  const Owned<lathe_pinned> pinned(made);
  const int loads = fake_gpu().state.loads;
  ASSERT_EQ(call(args[0], args[1], &exec), LATHE_STATUS_OK) << error.message;
  EXPECT_EQ(fake_gpu().state.last_stream, exec.stream);
  const std::vector<float> want(y.data, y.data + 9);
  std::fill(y.data, y.data + 9, 0.f);
  void* const data[] = {x.data, y.data};
  EXPECT_EQ(lathe_pinned_run(pinned.get(), data, nullptr), LATHE_STATUS_INVALID);
  const lathe_exec without = LATHE_EXEC_INIT;
  EXPECT_EQ(lathe_pinned_run(pinned.get(), data, &without), LATHE_STATUS_INVALID) << "no stream";
  EXPECT_EQ(lathe_pinned_run(pinned.get(), data, &exec), LATHE_STATUS_OK);
  EXPECT_EQ(std::vector<float>(y.data, y.data + 9), want);
  EXPECT_EQ(fake_gpu().state.loads, loads);
  // In place.
  EXPECT_EQ(call(x.arg(), x.arg(), &exec), LATHE_STATUS_OK) << error.message;
  EXPECT_EQ(std::vector<float>(x.data, x.data + 9), want);
}

// The second device: it stays broken as long as the process runs.
TEST_F(DeviceCalls, ABrokenDeviceSaysSo) {
  const auto graph2 = unary_graph(ctx.get(), "relu", {range("N", 1, 4096)});
  ASSERT_EQ(resolve_on(ctx.get(), graph2.get(), LATHE_WAIT_TUNED, kernel, nullptr, &error, 2), LATHE_STATUS_OK)
      << error.message;
  DeviceFloats x({9}, 0, 1), y({9}, 0, 1);
  const lathe_exec exec = on_stream();
  EXPECT_EQ(call(x.arg(), y.arg(), &exec), LATHE_STATUS_OK) << error.message;
  fake_gpu().state.fail_launch = 2;
  EXPECT_EQ(call(x.arg(), y.arg(), &exec), LATHE_STATUS_DEVICE);
  EXPECT_EQ(call(x.arg(), y.arg(), &exec), LATHE_STATUS_OK) << error.message;
  fake_gpu().state.fail_launch = 700;
  EXPECT_EQ(call(x.arg(), y.arg(), &exec), LATHE_STATUS_DEVICE);
  EXPECT_THAT(std::string(error.message), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
  EXPECT_EQ(call(x.arg(), y.arg(), &exec), LATHE_STATUS_DEVICE);
  EXPECT_THAT(std::string(error.message), HasSubstr("device 1 failed before: CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
  EXPECT_EQ(std::string(error.arg_name), "kernel");
}

TEST(DeviceLibrary, NeedsNoLibraryOfCuda) {
  FILE* out = popen("readelf -d " LATHE_LIBRARY, "r");
  ASSERT_NE(out, nullptr);
  std::string all;
  for (char line[512]; std::fgets(line, sizeof line, out) != nullptr;) all += line;
  pclose(out);
  EXPECT_THAT(all, HasSubstr("NEEDED"));
  for (const char* name : {"libcuda", "libnvrtc", "libcudart"}) EXPECT_EQ(all.find(name), std::string::npos) << name;
}

}  // namespace
}  // namespace lathe::test
