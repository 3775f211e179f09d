// Products of bf16 and f16 on tensor cores, through the C ABI and the fakes, against what the CPU makes of the same.
#include <gtest/gtest.h>

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
    expect_product(ctx.get(), graph.get(), kernel.get(), type, {}, 16, 0, 32);
    for (const int64_t k : {32, 33, 63, 64}) expect_product(ctx.get(), graph.get(), kernel.get(), type, {}, 127, 33, k);
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

// Few tiles and many terms: blocks share sums, which lie in the workspace meanwhile.
TEST(DeviceTensorProducts, OfManyTerms) {
  const auto ctx = gpu_context();
  std::vector<lathe_attr> attrs;
  const auto graph = single_graph(ctx.get(), "matmul",
                                  {{{range("M", 0, 40), range("K", 0, 9000)}, LATHE_DTYPE_BF16},
                                   {{range("K", 0, 9000), range("N", 0, 70)}, LATHE_DTYPE_BF16}},
                                  attrs);
  const auto kernel = served_on_device(ctx.get(), graph.get());
  ASSERT_NE(kernel, nullptr);
  for (const int64_t k : {0, 1, 63, 1500}) {
    const int before = fake_gpu().state.launches;
    expect_product(ctx.get(), graph.get(), kernel.get(), LATHE_DTYPE_BF16, {}, 33, 17, k);
    EXPECT_EQ(fake_gpu().state.launches, before + (k == 0 ? 1 : 2));
  }
}

// What is made before a product and after it is part of the launch.
TEST(DeviceTensorProducts, WithWhatIsFused) {
  const auto ctx = gpu_context();
  const auto graph = fused_product(ctx.get(), LATHE_DTYPE_BF16, "relu");
  ASSERT_NE(graph, nullptr);
  const auto kernel = served_on_device(ctx.get(), graph.get());
  ASSERT_NE(kernel, nullptr);
  for (const int64_t rows : {1, 31, 65}) {
    const int before = fake_gpu().state.launches;
    const uint32_t t = LATHE_DTYPE_BF16;
    expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(),
                     {{{rows, 40}, t}, {{rows, 40}, t}, {{40, 70}, t}, {{70}, t}, {{rows, 70}, t}}, {{rows, 70}, t}, 0,
                     3 * ulp_of(t));
    EXPECT_EQ(fake_gpu().state.launches, before + 1);
  }
}

TEST(DeviceTensorProducts, DISABLED_ServesWhatIsStored) {
  const auto ctx = gpu_context(std::getenv("LATHE_TEST_STORE"));
  for (const uint32_t type : kTypes) {
    const auto graph = product(ctx.get(), type, {});
    Owned<lathe_kernel> kernel;
    lathe_error e;
    ASSERT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_NOW, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
    expect_product(ctx.get(), graph.get(), kernel.get(), type, {}, 37, 50, 21);
  }
  expect_nothing_compiled(ctx.get());
}

TEST(DeviceTensorProducts, AnotherProcessServesIt) {
  const TempStore store;
  const auto ctx = gpu_context(store.path);
  for (const uint32_t type : kTypes)
    ASSERT_NE(served_on_device(ctx.get(), product(ctx.get(), type, {}).get()), nullptr);
  expect_served_in_another_process(store, "DeviceTensorProducts.DISABLED_ServesWhatIsStored");
}

}  // namespace
}  // namespace lathe::test
