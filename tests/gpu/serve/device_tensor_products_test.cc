// Products of bf16 and f16 on tensor cores, through the C ABI and the fakes, against what the CPU makes of the same.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include "tests/gpu/served_op.h"
#include "tests/gpu/temp_store.h"

extern char** environ;

namespace lathe::test {
namespace {

constexpr uint32_t kTypes[] = {LATHE_DTYPE_BF16, LATHE_DTYPE_F16};
float ulp_of(uint32_t type) { return type == LATHE_DTYPE_BF16 ? 0.0079f : 0.00098f; }

struct Turned {
  bool a = false, b = false;
};
Owned<lathe_graph> product(lathe_context* ctx, uint32_t type, const Turned& turned, int64_t batch = 0) {
  std::vector<lathe_attr> attrs(2);
  attrs[0].name = "transpose_a";
  attrs[0].i = turned.a;
  attrs[1].name = "transpose_b";
  attrs[1].i = turned.b;
  for (lathe_attr& a : attrs) a.type = LATHE_ATTR_BOOL;
  const lathe_dim m = range("M", 0, 20000), n = range("N", 0, 20000), k = range("K", 0, 20000);
  std::vector<lathe_dim> a = {turned.a ? k : m, turned.a ? m : k}, b = {turned.b ? n : k, turned.b ? k : n};
  if (batch != 0) a.insert(a.begin(), fixed(batch));
  return single_graph(ctx, "matmul", {{a, type}, {b, type}}, attrs);
}
void expect_product(lathe_context* ctx, const lathe_graph* graph, lathe_kernel* kernel, uint32_t type,
                    const Turned& turned, int64_t m, int64_t n, int64_t k, int64_t batch = 0) {
  std::vector<int64_t> a = {turned.a ? k : m, turned.a ? m : k}, b = {turned.b ? n : k, turned.b ? k : n}, y = {m, n};
  if (batch != 0) {
    a.insert(a.begin(), batch);
    y.insert(y.begin(), batch);
  }
  expect_as_on_cpu(ctx, graph, kernel, {{a, type}, {b, type}}, {y, type}, 0, ulp_of(type));
}

TEST(DeviceTensorProducts, AtEverySize) {
  const auto ctx = gpu_context();
  for (const uint32_t type : kTypes) {
    const auto graph = product(ctx.get(), type, {});
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr);
    for (const int64_t m : {0, 1, 17, 129}) {
      for (const int64_t n : {1, 7, 131}) {
        for (const int64_t k : {0, 1, 16, 31, 65})
          expect_product(ctx.get(), graph.get(), kernel.get(), type, {}, m, n, k);
      }
    }
    expect_product(ctx.get(), graph.get(), kernel.get(), type, {}, 64, 64, 128);
  }
}

TEST(DeviceTensorProducts, EveryLayoutAndBatches) {
  const auto ctx = gpu_context();
  for (const Turned& turned : {Turned{true, false}, {false, true}, {true, true}}) {
    for (const int64_t batch : {0, 2}) {
      const uint32_t type = turned.a ? LATHE_DTYPE_F16 : LATHE_DTYPE_BF16;
      const auto graph = product(ctx.get(), type, turned, batch);
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr);
      expect_product(ctx.get(), graph.get(), kernel.get(), type, turned, 33, 70, 75, batch);
      expect_product(ctx.get(), graph.get(), kernel.get(), type, turned, 64, 64, 64, batch);
    }
  }
}

// What is made before a product and after it is part of the launch.
TEST(DeviceTensorProducts, WithWhatIsFused) {
  const auto ctx = gpu_context();
  lathe_graph* g = nullptr;
  lathe_error e;
  ASSERT_EQ(lathe_graph_create(ctx.get(), "mlp", &g, &e), LATHE_STATUS_OK) << e.message;
  const Owned<lathe_graph> graph(g);
  const lathe_dim m = range("M", 1, 500);
  const std::vector<std::vector<lathe_dim>> dims = {
      {m, fixed(40)}, {m, fixed(40)}, {fixed(40), fixed(70)}, {fixed(70)}, {m, fixed(70)}};
  static constexpr const char* kNames[] = {"gate", "up", "w", "bias", "rest"};
  int32_t id[5];
  for (size_t i = 0; i < 5; ++i) {
    const lathe_tensor_desc d = desc(kNames[i], dims[i], i == 2 ? LATHE_TENSOR_CONST : 0, LATHE_DTYPE_BF16);
    ASSERT_EQ(lathe_graph_tensor(g, &d, &id[i], &e), LATHE_STATUS_OK) << e.message;
  }
  int32_t last = 0;
  const auto op = [&](const char* name, std::vector<int32_t> in) {
    const std::string result = "r" + std::to_string(last);
    ASSERT_EQ(lathe_graph_op(g, name, in.data(), in.size(), nullptr, 0, result.c_str(), &last, &e), LATHE_STATUS_OK)
        << e.message;
  };
  op("swiglu", {id[0], id[1]});
  op("matmul", {last, id[2]});
  op("add", {last, id[3]});
  op("relu", {last});
  op("add", {last, id[4]});
  ASSERT_EQ(lathe_graph_output(g, last, &e), LATHE_STATUS_OK);
  ASSERT_EQ(lathe_graph_finish(g, &e), LATHE_STATUS_OK) << e.message;
  const auto kernel = served_on_device(ctx.get(), g);
  ASSERT_NE(kernel, nullptr);
  for (const int64_t rows : {1, 31, 65}) {
    const int before = fake_gpu().state.launches;
    const uint32_t t = LATHE_DTYPE_BF16;
    expect_as_on_cpu(ctx.get(), g, kernel.get(),
                     {{{rows, 40}, t}, {{rows, 40}, t}, {{40, 70}, t}, {{70}, t}, {{rows, 70}, t}}, {{rows, 70}, t}, 0,
                     3 * ulp_of(t));
    EXPECT_EQ(fake_gpu().state.launches, before + 1);
  }
}

TEST(DeviceTensorProducts, DISABLED_ServesWhatIsStored) {
  const auto ctx = gpu_context(std::getenv("LATHE_TEST_STORE"), "/nonexistent/libnvrtc.so");
  for (const uint32_t type : kTypes) {
    const auto graph = product(ctx.get(), type, {});
    Owned<lathe_kernel> kernel;
    lathe_error e;
    ASSERT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_NOW, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
    expect_product(ctx.get(), graph.get(), kernel.get(), type, {}, 37, 50, 21);
  }
  EXPECT_EQ(counter(ctx.get(), "compiled_nvrtc"), 0u);
}

TEST(DeviceTensorProducts, AnotherProcessServesIt) {
  const TempStore store;
  const auto ctx = gpu_context(store.path);
  for (const uint32_t type : kTypes)
    ASSERT_NE(served_on_device(ctx.get(), product(ctx.get(), type, {}).get()), nullptr);
  setenv("LATHE_TEST_STORE", store.path.c_str(), 1);
  const char* const args[] = {"/proc/self/exe", "--gtest_also_run_disabled_tests", "--gtest_brief=1",
                              "--gtest_filter=DeviceTensorProducts.DISABLED_ServesWhatIsStored", nullptr};
  pid_t child = 0;
  ASSERT_EQ(posix_spawn(&child, args[0], nullptr, nullptr, const_cast<char**>(args), environ), 0);
  int status = 0;
  waitpid(child, &status, 0);
  const bool served = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  EXPECT_TRUE(served);
  RecordProperty("compiles_second", served ? 0 : 1);
}

}  // namespace
}  // namespace lathe::test
