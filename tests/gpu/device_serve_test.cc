// Chains served on a device through the C ABI, with the fakes in the places of NVRTC and the driver: the results of the
// CPU at every size, results that other processes serve from the store, states and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cmath>
#include <fstream>
#include <functional>

#include "tests/gpu/fake_gpu.h"

extern char** environ;

namespace lathe::test {
namespace {

using ::testing::HasSubstr;

struct Op {
  const char* name;
  std::vector<int> inputs;  // by number; negative: from the end
  std::vector<lathe_attr> attrs = {};
};
lathe_attr number(const char* name, double value) {
  lathe_attr a{};
  a.name = name;
  a.type = LATHE_ATTR_FLOAT;
  a.f = value;
  return a;
}
lathe_attr text(const char* name, const char* value) {
  lathe_attr a{};
  a.name = name;
  a.type = LATHE_ATTR_STRING;
  a.s = value;
  return a;
}

// The last result is the output.
Owned<lathe_graph> graph_of(lathe_context* ctx, const std::vector<std::vector<lathe_dim>>& inputs,
                            const std::vector<Op>& ops) {
  lathe_graph* g = nullptr;
  lathe_error e;
  EXPECT_EQ(lathe_graph_create(ctx, "chain", &g, &e), LATHE_STATUS_OK) << e.message;
  Owned<lathe_graph> out(g);
  int32_t id = -1;
  std::vector<std::string> names;
  for (size_t i = 0; i < inputs.size(); ++i) names.push_back("x" + std::to_string(i));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const lathe_tensor_desc d = desc(names[i].c_str(), inputs[i]);
    EXPECT_EQ(lathe_graph_tensor(g, &d, &id, &e), LATHE_STATUS_OK) << e.message;
  }
  for (const Op& op : ops) {
    const std::string result = "r" + std::to_string(&op - ops.data());
    std::vector<int32_t> in;
    for (const int i : op.inputs) in.push_back(i < 0 ? id + 1 + i : i);
    EXPECT_EQ(
        lathe_graph_op(g, op.name, in.data(), in.size(), op.attrs.data(), op.attrs.size(), result.c_str(), &id, &e),
        LATHE_STATUS_OK)
        << op.name << ": " << e.message;
  }
  EXPECT_EQ(lathe_graph_output(g, id, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(lathe_graph_finish(g, &e), LATHE_STATUS_OK) << e.message;
  return out;
}

std::vector<float> values(size_t n, int seed) {
  std::vector<float> out(n);
  for (size_t i = 0; i < n; ++i)
    out[i] = static_cast<float>(static_cast<int>((i * 37 + static_cast<size_t>(seed) * 11) % 101) - 50) * 0.0625f;
  return out;
}

class DeviceServe : public testing::Test {
 protected:
  void TearDown() override { RecordProperty("emulated", calls); }
  static inline int calls = 0;  // that the emulator ran and the CPU agreed with
  void SetUp() override { calls = 0; }
  static void expect_as_cpu(lathe_context* ctx, const lathe_graph* graph, lathe_kernel* kernel,
                            const std::vector<std::vector<int64_t>>& inputs, const std::vector<int64_t>& output,
                            size_t room);
};

// What the CPU makes of the same, and how far a device may be off: a few units in the last place of each function.
void DeviceServe::expect_as_cpu(lathe_context* ctx, const lathe_graph* graph, lathe_kernel* kernel,
                                const std::vector<std::vector<int64_t>>& inputs, const std::vector<int64_t>& output,
                                size_t room) {
  std::vector<std::unique_ptr<Floats>> host;
  std::vector<std::unique_ptr<DeviceFloats>> device;
  std::vector<lathe_arg> host_args, device_args;
  for (size_t i = 0; i <= inputs.size(); ++i) {
    const std::vector<int64_t>& dims = i < inputs.size() ? inputs[i] : output;
    host.push_back(std::make_unique<Floats>(dims));
    device.push_back(std::make_unique<DeviceFloats>(dims, room));
    if (i < inputs.size()) {
      host[i]->data = values(host[i]->data.size(), static_cast<int>(i));
      host[i]->tensor.data = host[i]->data.data();
      *device[i] = host[i]->data;
    }
    host_args.push_back(host[i]->arg());
    device_args.push_back(device[i]->arg());
  }
  lathe_error e;
  const Owned<lathe_kernel> cpu = resolve(ctx, graph);
  const lathe_exec exec = on_stream();
  ASSERT_EQ(lathe_execute(cpu.get(), host_args.data(), host_args.size(), nullptr, &e), LATHE_STATUS_OK) << e.message;
  ASSERT_EQ(lathe_execute(kernel, device_args.data(), device_args.size(), &exec, &e), LATHE_STATUS_OK) << e.message;
  const DeviceFloats& got = *device.back();
  for (size_t i = 0; i < got.count; ++i) {
    const float want = host.back()->data[i];
    const bool near = std::fabs(got.data[i] - want) <= 4e-6f * (1 + std::fabs(want));
    ASSERT_TRUE(std::isnan(want) ? std::isnan(got.data[i]) : got.data[i] == want || near)
        << "element " << i << " of " << got.count << " is " << got.data[i] << ", expected " << want;
  }
  for (size_t i = got.count; i < got.all; ++i) ASSERT_EQ(got.data[i], -7.5f) << "past the end";
  ++calls;
}

TEST_F(DeviceServe, OneRunOfMemoryAtEverySize) {
  const auto ctx = gpu_context();
  const auto graph = graph_of(ctx.get(), {{range("N", 0, 1 << 20)}, {range("N", 0, 1 << 20)}},
                              {{"mul", {0, 1}}, {"silu", {-1}}, {"add_scalar", {-1}, {number("value", 0.5)}}});
  Owned<lathe_kernel> kernel;
  lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
  lathe_error e;
  ASSERT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, &info, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(info.origin, static_cast<uint32_t>(LATHE_ORIGIN_COMPILED));
  EXPECT_EQ(info.tier, 1);
  EXPECT_EQ(info.workspace_bytes, 0u);
  for (const Order order : {Order::forward, Order::backward, Order::shuffled}) {
    fake_gpu().state.order = order;
    for (const int64_t n : {0, 1, 2, 3, 4, 5, 7, 255, 1021, 1023, 1024, 1025, 4099, 70001})
      for (const size_t room : {size_t{0}, static_cast<size_t>(-n & 3)})
        expect_as_cpu(ctx.get(), graph.get(), kernel.get(), {{n}, {n}}, {n}, room);
  }
  fake_gpu().state.order = Order::forward;
  EXPECT_EQ(counter(ctx.get(), "compiled_nvrtc"), 1u);
}

// Operators of a chain, each at some place.
TEST_F(DeviceServe, EveryFunction) {
  const auto ctx = gpu_context();
  const std::vector<std::vector<Op>> chains = {
      {{"neg", {0}}, {"floor", {-1}}, {"exp", {-1}}, {"sqrt", {-1}}, {"log", {-1}}},
      {{"abs", {0}}, {"add_scalar", {-1}, {number("value", 1)}}, {"rsqrt", {-1}}, {"tanh", {-1}}, {"erf", {-1}}},
      {{"scale", {0}, {number("value", 3)}},
       {"round", {-1}},
       {"sigmoid", {-1}},
       {"gelu", {-1}, {text("approximate", "none")}}},
      {{"gelu", {0}, {text("approximate", "tanh")}}, {"relu", {-1}}, {"maximum", {-1, 1}}, {"minimum", {-1, 0}}},
      {{"swiglu", {0, 1}}, {"sub", {-1, 0}}, {"div", {-1, 1}}},
      {{"geglu", {0, 1}, {text("approximate", "tanh")}}, {"add", {-1, 0}}}};
  for (const std::vector<Op>& chain : chains) {
    const bool second = std::any_of(chain.begin(), chain.end(), [](const Op& o) { return o.inputs.size() > 1; });
    std::vector<std::vector<lathe_dim>> dims(second ? 2 : 1, {range("N", 1, 4096)});
    const auto graph = graph_of(ctx.get(), dims, chain);
    Owned<lathe_kernel> kernel;
    lathe_error e;
    ASSERT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
    expect_as_cpu(ctx.get(), graph.get(), kernel.get(), std::vector<std::vector<int64_t>>(dims.size(), {405}), {405},
                  3);
  }
}

TEST_F(DeviceServe, RowsAndBroadcasts) {
  const auto ctx = gpu_context();
  const lathe_dim m = range("M", 0, 4096);
  for (const int64_t n : {1, 3, 8, 97, 132}) {
    const auto graph =
        graph_of(ctx.get(), {{m, fixed(n)}, {fixed(n)}, {m, fixed(1)}}, {{"add", {0, 1}}, {"mul", {-1, 2}}});
    Owned<lathe_kernel> kernel;
    lathe_error e;
    ASSERT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
    for (const int64_t rows : {0, 1, 7, 64, 65})
      expect_as_cpu(ctx.get(), graph.get(), kernel.get(), {{rows, n}, {n}, {rows, 1}}, {rows, n}, 0);
  }
  EXPECT_LE(counter(ctx.get(), "compiled_nvrtc"), 5u);
}

// All of an aligned run goes by 16 bytes, but for its last elements; what is not aligned element by element.
TEST_F(DeviceServe, AccessesAreAsWideAsTheyMayBe) {
  const auto ctx = gpu_context();
  const auto graph = unary_graph(ctx.get(), "relu", {range("N", 1, 1 << 20)});
  Owned<lathe_kernel> kernel;
  lathe_error e;
  ASSERT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
  const auto count = [&](size_t first) {
    DeviceFloats x({4096}, 0), y({4096}, 0);
    std::vector<int64_t> shape = {1027};
    x.tensor.shape = y.tensor.shape = shape.data();
    x.tensor.byte_offset = first * sizeof(float);
    const lathe_arg args[] = {{&x.tensor, 0, 0, 0, 0}, {&y.tensor, 0, 0, 0, 0}};
    const lathe_exec exec = on_stream();
    fake_gpu().state.accesses = {};
    EXPECT_EQ(lathe_execute(kernel.get(), args, 2, &exec, &e), LATHE_STATUS_OK) << e.message;
    return fake_gpu().state.accesses;
  };
  const Accesses aligned = count(4), apart = count(1);
  EXPECT_EQ(aligned.loads[2], 256);
  EXPECT_EQ(aligned.loads[0], 3);
  EXPECT_EQ(aligned.stores[2], 256);
  EXPECT_EQ(aligned.stores[0], 3);
  EXPECT_EQ(apart.loads[2] + apart.stores[2], 0);
  EXPECT_EQ(apart.loads[0], 1027);
}

// In a process of its own: serves what another one stored, without a compiler.
TEST_F(DeviceServe, DISABLED_ServesWhatIsStored) {
  const auto ctx = gpu_context(std::getenv("LATHE_TEST_STORE"));
  const auto graph = graph_of(ctx.get(), {{range("N", 1, 4096)}}, {{"silu", {0}}, {"exp", {-1}}});
  Owned<lathe_kernel> kernel;
  lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
  lathe_error e;
  ASSERT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_NOW, kernel, &info, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(info.origin, static_cast<uint32_t>(LATHE_ORIGIN_STORE));
  expect_as_cpu(ctx.get(), graph.get(), kernel.get(), {{1003}}, {1003}, 1);
  EXPECT_EQ(counter(ctx.get(), "compiled_nvrtc"), 0u);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) EXPECT_EQ(line.find("nvrtc"), std::string::npos) << line;
}

struct TempStore {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("lathe_gpu_" + std::to_string(getpid()) + "_" + std::to_string(next++));
  TempStore() { std::filesystem::create_directories(path); }
  ~TempStore() { std::filesystem::remove_all(path); }
  static inline int next = 0;
  std::filesystem::path cubin() const {
    for (const auto& f : std::filesystem::recursive_directory_iterator(path)) {
      if (f.path().extension() == ".cub") return f.path();
    }
    return {};
  }
};

lathe_status warm_up(const std::string& store, lathe_kernel_info* info = nullptr) {
  const auto ctx = gpu_context(store);
  const auto graph = graph_of(ctx.get(), {{range("N", 1, 4096)}}, {{"silu", {0}}, {"exp", {-1}}});
  Owned<lathe_kernel> kernel;
  lathe_error e;
  return resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, info, &e);
}

TEST_F(DeviceServe, AnotherProcessServesIt) {
  const TempStore store;
  ASSERT_EQ(warm_up(store.path), LATHE_STATUS_OK);
  setenv("LATHE_TEST_STORE", store.path.c_str(), 1);
  const char* const args[] = {"/proc/self/exe", "--gtest_also_run_disabled_tests", "--gtest_brief=1",
                              "--gtest_filter=DeviceServe.DISABLED_ServesWhatIsStored", nullptr};
  pid_t child = 0;
  ASSERT_EQ(posix_spawn(&child, args[0], nullptr, nullptr, const_cast<char**>(args), environ), 0);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(DeviceServe, WhatIsNotStoredIsAMiss) {
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
TEST_F(DeviceServe, DamagedCodeIsMadeAnew) {
  const std::function<void(std::string&)> damages[] = {
      [](std::string& f) { f.resize(f.size() / 2); },
      [](std::string& f) { f[f.size() - 200] ^= 1; },
      [](std::string& f) { f.clear(); },
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
    ASSERT_EQ(warm_up(store.path, &info), LATHE_STATUS_OK);
    EXPECT_EQ(info.origin, static_cast<uint32_t>(LATHE_ORIGIN_COMPILED));
    ASSERT_EQ(warm_up(store.path, &info), LATHE_STATUS_OK);
    EXPECT_EQ(info.origin, static_cast<uint32_t>(LATHE_ORIGIN_STORE));
  }
}

TEST_F(DeviceServe, WithoutDriverOrCompilerItSaysSoAndTheCpuServes) {
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
  }
  const auto ctx = gpu_context();
  const auto graph = unary_graph(ctx.get(), "relu", {range("N", 1, 4096)});
  EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_NOW, kernel, nullptr, &e, 3), LATHE_STATUS_DEVICE);
  EXPECT_THAT(std::string(e.message), HasSubstr("device 2, and the driver has 2"));
  EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_NOW, kernel, nullptr, &e, 65), LATHE_STATUS_INVALID);
  const auto product = matmul_graph(ctx.get(), fixed(4), 8, 8);
  EXPECT_EQ(resolve_on(ctx.get(), product.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_UNSUPPORTED);
  EXPECT_THAT(std::string(e.message), HasSubstr("no elementwise chain"));
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
