// kv_append and kv_append_int8 on a device, through the C ABI and the fakes: caches afterwards are the CPU's, whatever
// tokens name: rows of their own, no row, or one that a later token has, too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/serve/cli_run.h"
#include "tests/gpu/served_op.h"
#include "tests/gpu/temp_store.h"

namespace lathe::test {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kF32 = LATHE_DTYPE_F32, kBf16 = LATHE_DTYPE_BF16, kF16 = LATHE_DTYPE_F16, kI8 = LATHE_DTYPE_I8,
                   kI32 = LATHE_DTYPE_I32, kI64 = LATHE_DTYPE_I64;
const lathe_hint kOne = {1, 1}, kMany = {300, 1};

struct Append {
  uint32_t x = kF32, cache = kF32, integers = kI32;
  int64_t heads = 3, width = 8;
  int64_t turned = 0;  // pairs; 0: no angles
  bool interleaved = false, normed = false;
  const lathe_hint* hint = &kMany;
};

std::vector<ArgOf> args_of(const Append& a, int64_t tokens, int64_t room) {
  std::vector<ArgOf> out = {
      {{tokens, a.heads, a.width}, a.x}, {{tokens}, a.integers}, {{room, a.heads, a.width}, a.cache}};
  if (a.cache == kI8) out.push_back({{room, a.heads}});
  if (a.turned == 0) return out;
  out.push_back({{40, a.turned}});
  out.push_back({{40, a.turned}});
  out.push_back({{tokens}, a.integers, 40});
  if (a.normed) out.push_back({{a.width}});
  return out;
}

Owned<lathe_graph> graph_of(lathe_context* ctx, const Append& a) {
  lathe_dim tokens = range("T", 0, 500);
  tokens.hints = a.hint;
  tokens.num_hints = 1;
  std::vector<DescOf> inputs;
  for (const ArgOf& arg : args_of(a, -1, -2)) {
    DescOf d{{}, arg.dtype};
    for (const int64_t size : arg.dims)
      d.dims.push_back(size == -1 ? tokens : size == -2 ? range("P", 0, 1000) : fixed(size));
    inputs.push_back(d);
  }
  lathe_attr interleaved{};
  interleaved.name = "interleaved";
  interleaved.type = LATHE_ATTR_BOOL;
  interleaved.i = a.interleaved;
  return single_graph(ctx, a.cache == kI8 ? "kv_append_int8" : "kv_append", inputs, {interleaved});
}

// One call on a host or a device.
struct Call {
  Call(const Append& a, int64_t room, const std::vector<int64_t>& slots, bool on_device) {
    for (const ArgOf& arg : args_of(a, static_cast<int64_t>(slots.size()), room)) {
      const auto seed = static_cast<int>(tensors.size());
      tensors.push_back(std::make_unique<TensorOf>(arg, on_device, 8));
      tensors.back()->fill(arg, seed);
      if (seed == 1) {
        for (size_t t = 0; t < slots.size(); ++t) {
          if (arg.dtype == kI32) reinterpret_cast<int32_t*>(tensors[1]->data)[t] = static_cast<int32_t>(slots[t]);
          if (arg.dtype == kI64) reinterpret_cast<int64_t*>(tensors[1]->data)[t] = slots[t];
        }
      }
      args.push_back(tensors.back()->arg());
    }
  }
  lathe_status run(lathe_kernel* kernel, lathe_error* e) {
    const bool on_device = tensors[0]->device;
    uint64_t bytes = 0;
    const lathe_status sized = lathe_workspace_bytes(kernel, args.data(), args.size(), 1, &bytes, e);
    if (sized != LATHE_STATUS_OK) return sized;
    const Aligned on_host(on_device ? 0 : bytes);
    lathe_exec exec = LATHE_EXEC_INIT;
    if (on_device) exec = on_stream();
    void* const memory = on_device && bytes != 0 ? fake_gpu().alloc(bytes, 0) : nullptr;
    exec.workspace = on_device ? memory : on_host.memory;
    exec.workspace_bytes = bytes;
    const lathe_status status = lathe_execute(kernel, args.data(), args.size(), &exec, e);
    if (memory != nullptr) fake_gpu().free(memory);
    return status;
  }
  std::vector<std::unique_ptr<TensorOf>> tensors;
  std::vector<lathe_arg> args;
};

// In units in the last place of what a cache holds, where sums are not exact.
float tolerance_of(const Append& a) { return a.cache == kBf16 ? 0.0079f : a.cache == kF16 ? 0.001f : 4e-6f; }

void expect_as_on_cpu(lathe_kernel* cpu, lathe_kernel* kernel, const Append& a, int64_t room,
                      const std::vector<int64_t>& slots) {
  SCOPED_TRACE(testing::Message() << slots.size() << " tokens, " << room << " rows");
  Call want(a, room, slots, false), got(a, room, slots, true);
  lathe_error e;
  ASSERT_EQ(want.run(cpu, &e), LATHE_STATUS_OK) << e.message;
  ASSERT_EQ(got.run(kernel, &e), LATHE_STATUS_OK) << e.message << fake_gpu().state.why;
  for (size_t i = 0; i < got.tensors.size(); ++i) {
    const TensorOf &w = *want.tensors[i], &g = *got.tensors[i];
    const bool updated = i == 2 || (i == 3 && a.cache == kI8);
    // A value between two integers goes to either of them.
    const float tolerance = !updated ? 0 : i == 2 && a.cache == kI8 ? 1.f : tolerance_of(a);
    const float scale = a.cache == kI8 && i == 2 ? 0.f : 1.f;
    int apart = 0;
    for (size_t n = 0; n < g.count; ++n) {
      const float x = w.value(n), y = g.value(n);
      ASSERT_LE(std::fabs(x - y), tolerance * (1 + scale * std::fabs(x))) << "argument " << i << ", element " << n;
      apart += x != y;
    }
    if (i == 2 && a.cache == kI8) {
      ASSERT_LE(apart * 50, static_cast<int>(g.count)) << "too many are rounded otherwise";
    }
    for (size_t n = g.bytes; n < g.all; ++n) ASSERT_EQ(g.data[n], 0x5b) << "past the end of " << i;
  }
}

// Rows of their own, some none.
std::vector<int64_t> apart(int64_t tokens, int64_t room) {
  std::vector<int64_t> out;
  for (int64_t t = 0; t < tokens; ++t) out.push_back(t % 5 == 3 ? -1 : t * 7 % room);
  return out;
}

class DeviceAppend : public testing::Test {
  void TearDown() override { fake_gpu().state.order = Order::forward; }
};

const std::vector<Append> kForms = {
    {},
    {.hint = &kOne},
    {.x = kBf16, .cache = kBf16, .integers = kI64, .heads = 8, .width = 128, .turned = 64, .normed = true},
    {.x = kBf16, .cache = kBf16, .heads = 2, .width = 34, .turned = 17, .hint = &kOne},
    {.x = kF16, .cache = kF32, .heads = 1, .width = 12, .turned = 3, .interleaved = true, .normed = true},
    {.cache = kF16, .heads = 5, .width = 2, .turned = 1, .interleaved = true},
    {.cache = kI8, .heads = 2, .width = 64},
    {.x = kBf16, .cache = kI8, .heads = 3, .width = 128, .turned = 64, .normed = true},
    {.cache = kI8, .integers = kI64, .heads = 1, .width = 10, .turned = 2, .interleaved = true, .hint = &kOne},
    {.cache = kI8, .heads = 2, .width = 1100, .turned = 300, .normed = true}};

TEST_F(DeviceAppend, AnyNumberOfTokens) {
  const auto ctx = gpu_context();
  for (const Append& a : kForms) {
    SCOPED_TRACE(&a - kForms.data());
    const auto graph = graph_of(ctx.get(), a);
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr);
    const auto cpu = resolve(ctx.get(), graph.get());
    for (const int64_t tokens : {0, 1, 2, 7, 33, 128}) {
      if (tokens > 33 && a.width * a.heads > 24) continue;
      fake_gpu().state.order = tokens % 2 == 0 ? Order::shuffled : Order::forward;
      expect_as_on_cpu(cpu.get(), kernel.get(), a, 211, apart(tokens, 211));
      if (testing::Test::HasFatalFailure()) return;
    }
    expect_as_on_cpu(cpu.get(), kernel.get(), a, 0, {-1, -1});
  }
}

// The later one of two stays, in whatever order blocks run.
TEST_F(DeviceAppend, TokensWithOneSlot) {
  const auto ctx = gpu_context();
  for (const Append& a : kForms) {
    if (a.width > 64) continue;
    SCOPED_TRACE(&a - kForms.data());
    const auto graph = graph_of(ctx.get(), a);
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr);
    const auto cpu = resolve(ctx.get(), graph.get());
    std::vector<int64_t> many;
    for (int64_t t = 0; t < 75; ++t) many.push_back(t * t % 13 - 1);
    for (const Order order : {Order::forward, Order::backward, Order::shuffled}) {
      fake_gpu().state.order = order;
      for (const std::vector<int64_t>& slots :
           {std::vector<int64_t>{3, 3}, {0, 4, 0, -1, 4, 0}, {-1, -1, 2, -1, 2}, many})
        expect_as_on_cpu(cpu.get(), kernel.get(), a, 12, slots);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// One token needs one launch and no workspace, many need a second one, which finds the last ones with their slots.
TEST_F(DeviceAppend, FewTokensTakeOneLaunch) {
  const auto ctx = gpu_context();
  for (const lathe_hint* hint : {&kOne, &kMany}) {
    const Append a{.hint = hint};
    const auto graph = graph_of(ctx.get(), a);
    const auto kernel = served_on_device(ctx.get(), graph.get());
    Call call(a, 9, {4}, true);
    lathe_error e;
    const int before = fake_gpu().state.launches;
    ASSERT_EQ(call.run(kernel.get(), &e), LATHE_STATUS_OK) << e.message;
    EXPECT_EQ(fake_gpu().state.launches - before, hint == &kOne ? 1 : 2);
  }
}

// What is no row is taken as the nearest that is one, or as none, and no access leaves the cache.
TEST_F(DeviceAppend, SlotsThatAreNoRowsStayInside) {
  const auto ctx = gpu_context();
  for (const lathe_hint* hint : {&kOne, &kMany}) {
    const Append a{.hint = hint};
    const auto graph = graph_of(ctx.get(), a);
    const auto kernel = served_on_device(ctx.get(), graph.get());
    Call call(a, 5, {-7, 1, 900, INT32_MIN}, true), none(a, 0, {3}, true);
    lathe_error e;
    ASSERT_EQ(call.run(kernel.get(), &e), LATHE_STATUS_OK) << e.message << fake_gpu().state.why;
    ASSERT_EQ(none.run(kernel.get(), &e), LATHE_STATUS_OK) << e.message << fake_gpu().state.why;
    const TensorOf &x = *call.tensors[0], &cache = *call.tensors[2];
    const auto row = static_cast<size_t>(a.heads * a.width);
    for (size_t i = 0; i < row; ++i) {
      EXPECT_EQ(cache.floats()[row + i], x.floats()[row + i]);
      EXPECT_EQ(cache.floats()[4 * row + i], x.floats()[2 * row + i]);
    }
    for (size_t n = cache.bytes; n < cache.all; ++n) ASSERT_EQ(cache.data[n], 0x5b);
  }
}

TEST_F(DeviceAppend, ACacheElsewhereIsRefused) {
  const auto ctx = gpu_context();
  const Append a;
  const auto graph = graph_of(ctx.get(), a);
  const auto kernel = served_on_device(ctx.get(), graph.get());
  Call call(a, 9, {4, 4}, true);
  TensorOf host({{9, a.heads, a.width}}, false);
  lathe_error e;
  lathe_tensor named = host.tensor;
  named.device = {2, 0};
  for (const lathe_tensor* cache : {&host.tensor, &named}) {
    call.args[2].tensor = const_cast<lathe_tensor*>(cache);
    EXPECT_EQ(call.run(kernel.get(), &e), LATHE_STATUS_INVALID);
    EXPECT_THAT(e.arg_name, HasSubstr("x2"));
  }
  call.args[2].tensor = &call.tensors[0]->tensor;  // it may overlap no other argument
  EXPECT_EQ(call.run(kernel.get(), &e), LATHE_STATUS_INVALID);
}

// Tokens of 3 heads of 20 elements, and a cache of 11 rows with their scales.
std::string append_line(int tokens) {
  const std::string t = std::to_string(tokens);
  return R"({"name":"append_)" + t + R"(","graph":{"tensors":{"x":{"dtype":"bf16","dims":[)" + t +
         R"(,3,20]},"slots":{"dtype":"i32","dims":[)" + t +
         R"(]},"cache":{"dtype":"i8","dims":[11,3,20]},"scales":{"dtype":"f32","dims":[11,3]}},)"
         R"("nodes":[{"op":"kv_append_int8","in":["x","slots","cache","scales"],"out":"y"}],"outputs":["y"]}})"
         "\n";
}

// What is updated comes with contents for whoever verifies and measures; both ways are timed.
TEST_F(DeviceAppend, TheCommandLineVerifiesAndMeasuresIt) {
  const Cli cli(append_line(1) + append_line(30));
  const tools::Finished verified = cli.run("verify", {"--json", "--device", "0"});
  ASSERT_EQ(verified.code, 0) << verified.err << verified.out;
  EXPECT_EQ(verified.summary()["failed"], 0) << verified.out;
  EXPECT_EQ(verified.summary()["refused"], 0) << verified.out;
  const tools::Finished warmed = cli.run("warmup", {"--json", "--device", "0"});
  ASSERT_EQ(warmed.code, 0) << warmed.err << warmed.out;
  EXPECT_EQ(warmed.summary()["failed"], 0) << warmed.out;
  EXPECT_GE(warmed.summary()["measurements"], 3) << warmed.out;
  for (const auto& row : warmed.rows()) EXPECT_EQ(row["tier"], "T2") << row;
  const tools::Finished timed = cli.run("bench", {"--json", "--device", "0", "--row-ms", "20"});
  ASSERT_EQ(timed.code, 0) << timed.err << timed.out;
  for (const auto& row : timed.rows()) EXPECT_GT(row["us"], 0);
}

TEST_F(DeviceAppend, DISABLED_ServesWhatIsStored) {
  const auto ctx = gpu_context(std::getenv("LATHE_TEST_STORE"));
  for (const Append& a : kForms) {
    const auto graph = graph_of(ctx.get(), a);
    Owned<lathe_kernel> kernel;
    lathe_error e;
    ASSERT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_NOW, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
    expect_as_on_cpu(resolve(ctx.get(), graph.get()).get(), kernel.get(), a, 17, {5, -1, 16, 5, 0});
  }
  expect_nothing_compiled(ctx.get());
}

TEST_F(DeviceAppend, AnotherProcessServesThem) {
  const TempStore store;
  const auto ctx = gpu_context(store.path);
  for (const Append& a : kForms) ASSERT_NE(served_on_device(ctx.get(), graph_of(ctx.get(), a).get()), nullptr);
  expect_served_in_another_process(store, "DeviceAppend.DISABLED_ServesWhatIsStored");
}

}  // namespace
}  // namespace lathe::test
