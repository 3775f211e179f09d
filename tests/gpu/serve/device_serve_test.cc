// Chains served on a device through the C ABI, with the fakes in the places of NVRTC and the driver: the results of the
// CPU at every size, in accesses as wide as they may be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/gpu/served_chain.h"

namespace lathe::test {
namespace {

using ::testing::HasSubstr;

TEST_F(DeviceServe, OneRunOfMemoryAtEverySize) {
  const auto ctx = gpu_context();
  const auto graph = graph_of(ctx.get(), {{range("N", 0, 1 << 20)}, {range("N", 0, 1 << 20)}},
                              {{"mul", {0, 1}}, {"silu", {-1}}, {"add_scalar", {-1}, {float_attr("value", 0.5)}}});
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
      {{"abs", {0}}, {"add_scalar", {-1}, {float_attr("value", 1)}}, {"rsqrt", {-1}}, {"tanh", {-1}}, {"erf", {-1}}},
      {{"scale", {0}, {float_attr("value", 3)}},
       {"round", {-1}},
       {"sigmoid", {-1}},
       {"gelu", {-1}, {text_attr("approximate", "none")}}},
      {{"scale", {0}, {float_attr("value", 3e4f)}}, {"sin", {-1}}, {"cos", {-1}}, {"sub", {-1, 1}}},
      {{"gelu", {0}, {text_attr("approximate", "tanh")}}, {"relu", {-1}}, {"maximum", {-1, 1}}, {"minimum", {-1, 0}}},
      {{"swiglu", {0, 1}}, {"sub", {-1, 0}}, {"div", {-1, 1}}},
      {{"geglu", {0, 1}, {text_attr("approximate", "tanh")}}, {"add", {-1, 0}}}};
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

// Every exponent, both signs, and what is no number.
TEST_F(DeviceServe, SinesOfAnyArgument) {
  const auto ctx = gpu_context();
  std::vector<float> in;
  for (uint32_t bits = 0; bits < 0x7f800000u; bits += 0x00156789u) {
    in.push_back(std::bit_cast<float>(bits));
    in.push_back(-in.back());
  }
  for (const float x : {69999.9f, 70000.1f, 1.5707964f, 3.1415927f, 3.4028235e38f}) in.push_back(x);
  const size_t finite = in.size();
  for (const float x : {INFINITY, -INFINITY, NAN}) in.push_back(x);
  const auto n = static_cast<int64_t>(in.size());
  for (const bool sine : {true, false}) {
    const auto graph = unary_graph(ctx.get(), sine ? "sin" : "cos", {range("N", 1, 4096)});
    Owned<lathe_kernel> kernel;
    lathe_error e;
    ASSERT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
    DeviceFloats x({n}), y({n});
    x = in;
    const lathe_arg args[] = {x.arg(), y.arg()};
    const lathe_exec exec = on_stream();
    ASSERT_EQ(lathe_execute(kernel.get(), args, 2, &exec, &e), LATHE_STATUS_OK) << e.message;
    for (size_t i = 0; i < finite; ++i) {
      const double want = sine ? std::sin(static_cast<double>(in[i])) : std::cos(static_cast<double>(in[i]));
      const double unit = std::ldexp(1.0, std::max(want == 0 ? -149 : std::ilogb(want) - 23, -149));
      ASSERT_LE(std::fabs(y.data[i] - want), 1.5 * unit) << in[i];
      if (sine) ASSERT_EQ(std::signbit(y.data[i]), std::signbit(want)) << in[i];
    }
    for (size_t i = finite; i < in.size(); ++i) ASSERT_TRUE(std::isnan(y.data[i])) << in[i];
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

TEST_F(DeviceServe, AScalarAndARow) {
  const auto ctx = gpu_context();
  const auto graph = graph_of(ctx.get(), {{}, {range("N", 0, 4096)}}, {{"add", {0, 1}}});
  Owned<lathe_kernel> kernel;
  lathe_error e;
  ASSERT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
  for (const int64_t n : {0, 1, 8, 97, 1000}) expect_as_cpu(ctx.get(), graph.get(), kernel.get(), {{}, {n}}, {n}, 0);
}

// A result that another launch reads.
TEST_F(DeviceServe, LaunchesFollowEachOther) {
  const auto ctx = gpu_context();
  lathe_graph* g = nullptr;
  lathe_error e;
  ASSERT_EQ(lathe_graph_create(ctx.get(), "two", &g, &e), LATHE_STATUS_OK) << e.message;
  const Owned<lathe_graph> graph(g);
  const std::vector<lathe_dim> column = {range("M", 1, 100), fixed(1)}, rows = {range("M", 1, 100), fixed(33)};
  const lathe_tensor_desc x = desc("x", column), z = desc("z", rows);
  int32_t a = 0, b = 0, exp = 0, sum = 0;
  ASSERT_EQ(lathe_graph_tensor(g, &x, &a, &e), LATHE_STATUS_OK);
  ASSERT_EQ(lathe_graph_tensor(g, &z, &b, &e), LATHE_STATUS_OK);
  ASSERT_EQ(lathe_graph_op(g, "exp", &a, 1, nullptr, 0, "exp", &exp, &e), LATHE_STATUS_OK) << e.message;
  const int32_t both[] = {exp, b};
  ASSERT_EQ(lathe_graph_op(g, "add", both, 2, nullptr, 0, "sum", &sum, &e), LATHE_STATUS_OK) << e.message;
  ASSERT_EQ(lathe_graph_output(g, exp, &e), LATHE_STATUS_OK);
  ASSERT_EQ(lathe_graph_output(g, sum, &e), LATHE_STATUS_OK);
  ASSERT_EQ(lathe_graph_finish(g, &e), LATHE_STATUS_OK) << e.message;
  Owned<lathe_kernel> kernel;
  lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
  ASSERT_EQ(resolve_on(ctx.get(), g, LATHE_WAIT_TUNED, kernel, &info, &e), LATHE_STATUS_OK) << e.message;
  DeviceFloats in({7, 1}), more({7, 33}), out({7, 1}), result({7, 33});
  in = values(7, 1);
  more = values(7 * 33, 2);
  const lathe_arg args[] = {in.arg(), more.arg(), out.arg(), result.arg()};
  lathe_exec exec = on_stream();
  const int before = fake_gpu().state.launches;
  ASSERT_EQ(lathe_execute(kernel.get(), args, 4, &exec, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(fake_gpu().state.launches, before + 2);
  for (int i = 0; i < 7 * 33; ++i)
    EXPECT_NEAR(result.data[i], std::exp(in.data[i / 33]) + more.data[i], 1e-5 * (1 + std::fabs(result.data[i])));
}

// More operands than one Kernel takes: what is between two launches lies in the caller's workspace.
TEST_F(DeviceServe, TheWorkspaceIsTheCallers) {
  constexpr size_t kInputs = 14;
  const auto ctx = gpu_context();
  std::vector<Op> sums = {{"add", {0, 1}}};
  for (int i = 2; i < static_cast<int>(kInputs); ++i) sums.push_back({"add", {-1, i}});
  const auto graph = graph_of(ctx.get(), std::vector<std::vector<lathe_dim>>(kInputs, {range("N", 1, 4096)}), sums);
  Owned<lathe_kernel> kernel;
  lathe_error e;
  ASSERT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
  std::vector<std::unique_ptr<DeviceFloats>> tensors;
  std::vector<lathe_arg> args;
  for (size_t i = 0; i <= kInputs; ++i) {
    tensors.push_back(std::make_unique<DeviceFloats>(std::vector<int64_t>{1001}));
    if (i < kInputs) *tensors[i] = values(1001, static_cast<int>(i));
    args.push_back(tensors[i]->arg());
  }
  uint64_t bytes = 0;
  ASSERT_EQ(lathe_workspace_bytes(kernel.get(), args.data(), args.size(), 1, &bytes, &e), LATHE_STATUS_OK) << e.message;
  ASSERT_GE(bytes, 1001 * sizeof(float));
  const size_t room = (bytes + 255) / 256 * 256;
  auto* workspace = static_cast<char*>(fake_gpu().alloc(room, 0));
  std::vector<char> host(room + 256);
  char* const in_host = host.data() + (256 - reinterpret_cast<uintptr_t>(host.data()) % 256);
  lathe_exec exec = on_stream();
  const auto refused = [&](void* at, uint64_t size, const char* arg, const char* why) {
    exec.workspace = at;
    exec.workspace_bytes = size;
    EXPECT_EQ(lathe_execute(kernel.get(), args.data(), args.size(), &exec, &e), LATHE_STATUS_INVALID) << why;
    EXPECT_EQ(std::string(e.arg_name), arg);
    EXPECT_THAT(std::string(e.message), HasSubstr(why));
  };
  refused(nullptr, 0, "exec.workspace", "NULL, expected");
  refused(workspace + 64, room - 64, "exec.workspace", "not aligned to 256 bytes");
  refused(workspace, bytes - 1, "exec.workspace_bytes", "expected at least");
  refused(in_host, room, "exec.workspace", "host memory, expected memory of device 0");
  exec.workspace = workspace;
  exec.workspace_bytes = bytes;
  ASSERT_EQ(lathe_execute(kernel.get(), args.data(), args.size(), &exec, &e), LATHE_STATUS_OK) << e.message;
  for (size_t i = 0; i < 1001; ++i) {
    float want = tensors[0]->data[i];
    for (size_t k = 1; k < kInputs; ++k) want += tensors[k]->data[i];
    ASSERT_EQ(tensors[kInputs]->data[i], want) << i;
  }
  fake_gpu().free(workspace);
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

}  // namespace
}  // namespace lathe::test
