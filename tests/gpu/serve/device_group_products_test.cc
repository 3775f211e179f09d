// Products of bf16 and f16 with many rows and columns, which groups of four warps compute, through the C ABI and the
// fakes, against what the CPU makes of the same.
#include <gtest/gtest.h>

#include "tests/gpu/served_op.h"
#include "tests/gpu/temp_store.h"

namespace lathe::test {
namespace {

constexpr uint32_t kTypes[] = {LATHE_DTYPE_BF16, LATHE_DTYPE_F16};
constexpr lathe_hint kMany = {300, 1}, kBoxes = {304, 1},  // of lines that begin at multiples of 16 bytes
    kRoles = {2048, 1},                                    // so many that some warps only ask for boxes
    kPersistent = {4096, 1},                               // that blocks go through several tiles
    kPairs = {16384, 1};                                   // that pairs of blocks share what they read
float ulp_of(uint32_t type) { return type == LATHE_DTYPE_BF16 ? 0.0079f : 0.00098f; }

struct Turned {
  bool a = false, b = false;
};
Owned<lathe_graph> product(lathe_context* ctx, uint32_t type, const Turned& turned, int64_t batch = 0,
                           const lathe_hint* hint = &kMany) {
  std::vector<lathe_attr> attrs(2);
  attrs[0].name = "transpose_a";
  attrs[0].i = turned.a;
  attrs[1].name = "transpose_b";
  attrs[1].i = turned.b;
  for (lathe_attr& a : attrs) a.type = LATHE_ATTR_BOOL;
  lathe_dim m = range("M", 0, 20000), n = range("N", 0, 20000), k = range("K", 0, 20000);
  for (lathe_dim* d : {&m, &n, &k}) {
    d->hints = hint;
    d->num_hints = 1;
  }
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

TEST(DeviceGroupProducts, AtEverySize) {
  const auto ctx = gpu_context();
  for (const uint32_t type : kTypes) {
    const auto graph = product(ctx.get(), type, {});
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr);
    for (const int64_t m : {0, 1, 129}) {
      for (const int64_t n : {1, 131}) {
        for (const int64_t k : {0, 1, 63, 65}) expect_product(ctx.get(), graph.get(), kernel.get(), type, {}, m, n, k);
      }
    }
    expect_product(ctx.get(), graph.get(), kernel.get(), type, {}, 300, 300, 300);
    expect_product(ctx.get(), graph.get(), kernel.get(), type, {}, 256, 0, 64);
    expect_product(ctx.get(), graph.get(), kernel.get(), type, {}, 257, 193, 128);
  }
}

TEST(DeviceGroupProducts, EveryLayoutAndBatches) {
  const auto ctx = gpu_context();
  for (const Turned& turned : {Turned{true, false}, {false, true}, {true, true}}) {
    const uint32_t type = turned.a ? LATHE_DTYPE_F16 : LATHE_DTYPE_BF16;
    const int64_t batch = turned.b ? 2 : 0;
    const auto graph = product(ctx.get(), type, turned, batch);
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr);
    expect_product(ctx.get(), graph.get(), kernel.get(), type, turned, 67, 70, 139, batch);
    expect_product(ctx.get(), graph.get(), kernel.get(), type, turned, 128, 128, 64, batch);
  }
}

// What the hardware copies, and what threads do in calls whose lines begin elsewhere.
TEST(DeviceGroupProducts, ByBoxes) {
  const auto ctx = gpu_context();
  for (const Turned& turned : {Turned{false, false}, {true, true}}) {
    const uint32_t type = turned.a ? LATHE_DTYPE_F16 : LATHE_DTYPE_BF16;
    const int64_t batch = turned.b ? 0 : 2;
    const auto graph = product(ctx.get(), type, turned, batch, &kBoxes);
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr);
    for (const int64_t k : {0, 8, 64, 328, 65})
      expect_product(ctx.get(), graph.get(), kernel.get(), type, turned, 136, 264, k, batch);
    expect_product(ctx.get(), graph.get(), kernel.get(), type, turned, 1, 8, 640, batch);
    expect_product(ctx.get(), graph.get(), kernel.get(), type, turned, 257, 193, 128, batch);
    expect_product(ctx.get(), graph.get(), kernel.get(), type, turned, 0, 264, 64, batch);
  }
}

// Warps that only ask for boxes, or copy, beside those that only multiply.
TEST(DeviceGroupProducts, ByRoles) {
  const auto ctx = gpu_context();
  for (const Turned& turned : {Turned{false, true}, {true, false}}) {
    const uint32_t type = turned.a ? LATHE_DTYPE_F16 : LATHE_DTYPE_BF16;
    const int64_t batch = turned.b ? 2 : 0;
    const auto graph = product(ctx.get(), type, turned, batch, &kRoles);
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr);
    for (const int64_t k : {0, 1, 8, 64, 328, 65})
      expect_product(ctx.get(), graph.get(), kernel.get(), type, turned, 136, 264, k, batch);
    expect_product(ctx.get(), graph.get(), kernel.get(), type, turned, 1, 1, 640, batch);
    expect_product(ctx.get(), graph.get(), kernel.get(), type, turned, 257, 193, 127, batch);
    expect_product(ctx.get(), graph.get(), kernel.get(), type, turned, 0, 264, 64, batch);
    expect_product(ctx.get(), graph.get(), kernel.get(), type, turned, 1032, 520, 72, batch);
  }
}

// As many blocks as there are multiprocessors go through more tiles, and those of no use are left out.
TEST(DeviceGroupProducts, ByBlocksThatGoOn) {
  const auto ctx = gpu_context();
  const auto graph = product(ctx.get(), LATHE_DTYPE_BF16, {false, true}, 0, &kPersistent);
  const auto kernel = served_on_device(ctx.get(), graph.get());
  ASSERT_NE(kernel, nullptr);
  expect_product(ctx.get(), graph.get(), kernel.get(), LATHE_DTYPE_BF16, {false, true}, 129, 17160, 72);
  EXPECT_EQ(fake_gpu().state.last_blocks, 132u);
  for (const int64_t k : {0, 1, 200})
    expect_product(ctx.get(), graph.get(), kernel.get(), LATHE_DTYPE_BF16, {false, true}, 136, 264, k);
  EXPECT_LT(fake_gpu().state.last_blocks, 132u);
}

// Clusters of two blocks, of which as many as there is room for go through all tiles.
TEST(DeviceGroupProducts, ByPairsOfBlocks) {
  const auto ctx = gpu_context();
  for (const Turned& turned : {Turned{false, true}, {true, false}}) {
    const uint32_t type = turned.a ? LATHE_DTYPE_F16 : LATHE_DTYPE_BF16;
    const auto graph = product(ctx.get(), type, turned, 0, &kPairs);
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr);
    if (turned.b) {
      expect_product(ctx.get(), graph.get(), kernel.get(), type, turned, 129, 17160, 72);
      EXPECT_EQ(fake_gpu().state.last_blocks, 132u);
    }
    for (const int64_t k : {0, 1, 200}) expect_product(ctx.get(), graph.get(), kernel.get(), type, turned, 136, 264, k);
    EXPECT_EQ(fake_gpu().state.last_cluster, 2u);
    EXPECT_LT(fake_gpu().state.last_blocks, 132u);
    expect_product(ctx.get(), graph.get(), kernel.get(), type, turned, 1, 1, 640);
    expect_product(ctx.get(), graph.get(), kernel.get(), type, turned, 0, 264, 64);
  }
}

TEST(DeviceGroupProducts, DISABLED_ServesWhatIsStored) {
  const auto ctx = gpu_context(std::getenv("LATHE_TEST_STORE"));
  for (const lathe_hint* hint : {&kMany, &kBoxes, &kRoles, &kPairs}) {
    const uint32_t type = hint == &kBoxes ? LATHE_DTYPE_F16 : LATHE_DTYPE_BF16;
    const auto graph = product(ctx.get(), type, {}, 0, hint);
    Owned<lathe_kernel> kernel;
    lathe_error e;
    ASSERT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_NOW, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
    expect_product(ctx.get(), graph.get(), kernel.get(), type, {}, 137, 90, 65);
    expect_product(ctx.get(), graph.get(), kernel.get(), type, {}, 136, 88, 136);
  }
  expect_nothing_compiled(ctx.get());
}

TEST(DeviceGroupProducts, AnotherProcessServesIt) {
  const TempStore store;
  const auto ctx = gpu_context(store.path);
  for (const lathe_hint* hint : {&kMany, &kBoxes, &kRoles, &kPairs}) {
    const uint32_t type = hint == &kBoxes ? LATHE_DTYPE_F16 : LATHE_DTYPE_BF16;
    ASSERT_NE(served_on_device(ctx.get(), product(ctx.get(), type, {}, 0, hint).get()), nullptr);
  }
  expect_served_in_another_process(store, "DeviceGroupProducts.DISABLED_ServesWhatIsStored");
}

}  // namespace
}  // namespace lathe::test
