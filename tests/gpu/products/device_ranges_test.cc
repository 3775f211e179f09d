// Hinted ranges on a device without a warm-up, through the C ABI and the fakes: a kernel of its own wherever ranking
// chooses another Schedule than for the largest hint, one kernel for all elsewhere, and nothing compiled that the
// caller does not allow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/integers/served_weight.h"
#include "tests/gpu/temp_store.h"

namespace lathe::test {
namespace {

constexpr lathe_hint kHints[] = {{1, 1}, {512, 1}};
constexpr int64_t kK = 256, kN = 1024;

enum class Hinted { one, many, both };
// M in 0..5000, mostly 1, or 512, or either.
lathe_dim rows(Hinted hinted) {
  lathe_dim m = range("M", 0, 5000);
  m.hints = hinted == Hinted::many ? kHints + 1 : kHints;
  m.num_hints = hinted == Hinted::both ? 2 : 1;
  return m;
}
Owned<lathe_graph> floats(lathe_context* ctx, Hinted hinted) {
  return single_graph(ctx, "matmul",
                      {{{rows(hinted), fixed(kK)}, LATHE_DTYPE_BF16}, {{fixed(kK), fixed(kN)}, LATHE_DTYPE_BF16}});
}
Owned<lathe_graph> chain(lathe_context* ctx, Hinted hinted) {
  return single_graph(ctx, "add", {{{rows(hinted), fixed(1 << 15)}}, {{rows(hinted), fixed(1 << 15)}}});
}

class DeviceRanges : public ServedWeight {
 protected:
  // Kernels compiled by a resolve, and ranges whose own it may not make.
  struct Made {
    uint64_t compiled = 0, left = 0;
    Owned<lathe_graph> graph;
    Owned<lathe_kernel> kernel;
  };
  template <class Graph>
  static Made made(lathe_context* on, const Graph& graph, Hinted hinted, uint32_t wait = LATHE_WAIT_TUNED) {
    Made out;
    const uint64_t before = counter(on, "compiled_nvrtc"), left = counter(on, "ranges_by_whole");
    out.graph = graph(on, hinted);
    lathe_error e;
    EXPECT_EQ(resolve_on(on, out.graph.get(), wait, out.kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
    out.compiled = counter(on, "compiled_nvrtc") - before;
    out.left = counter(on, "ranges_by_whole") - left;
    return out;
  }
  static void expect_product(lathe_context* on, const Made& m, std::vector<int64_t> calls = {0, 1, 2, 9}) {
    const uint32_t type = LATHE_DTYPE_BF16;
    for (const int64_t r : calls)
      expect_as_on_cpu(on, m.graph.get(), m.kernel.get(), {{{r, kK}, type}, {{kK, kN}, type}}, {{r, kN}, type}, 8,
                       0.0079F);
  }
};

TEST_F(DeviceRanges, OneRowOfAProduct) {
  std::vector<uint64_t> compiled;
  std::vector<unsigned> launched;  // blocks of the last launch of a call with one row
  for (const Hinted hinted : {Hinted::one, Hinted::many, Hinted::both}) {
    const auto on = gpu_context();
    const Made m = made(on.get(), floats, hinted);
    EXPECT_EQ(m.left, 0u);
    compiled.push_back(m.compiled);
    expect_product(on.get(), m, {0, 2, 9, 1});
    launched.push_back(fake_gpu().state.last_blocks);
  }
  EXPECT_GT(compiled[2], compiled[1]);
  EXPECT_LE(compiled[2], compiled[0] + compiled[1]);
  EXPECT_NE(launched[0], launched[1]);
  EXPECT_EQ(launched[2], launched[0]);
}

TEST_F(DeviceRanges, OneRowOfFewBits) {
  const Weight w = blocks("q4_k", 256, 96, 8);
  const auto graph = [&](lathe_context* on, Hinted hinted) {
    std::vector<DescOf> descs = descs_of(w);
    descs.insert(descs.begin(), {{rows(hinted), fixed(w.k)}});
    return single_graph(on, "quantized_matmul", descs, attrs_of(w));
  };
  const auto other = gpu_context();
  const Made many = made(other.get(), graph, Hinted::many);
  const Made both = made(ctx.get(), graph, Hinted::both);
  EXPECT_GT(both.compiled, many.compiled);
  EXPECT_EQ(both.left, 0u);
  for (const int64_t r : {0, 1, 2, 9})
    expect_as_cpu(both.graph.get(), both.kernel.get(), {{{{r, w.k}}, ""}}, w, {}, {{r, w.n}}, 4e-6F);
  EXPECT_EQ(packed_, 4) << "both kernels take the constant as it is packed";
}

// Where ranking chooses one Schedule for both, they share its kernel.
TEST_F(DeviceRanges, OfOneScheduleShareAKernel) {
  const auto on = gpu_context();
  const Made both = made(on.get(), chain, Hinted::both);
  EXPECT_EQ(both.compiled, 1u);
}

// Who may not compile is served by what is stored: of the range's own, or of the whole range.
TEST_F(DeviceRanges, NothingIsCompiledUnasked) {
  const TempStore store;
  (void)made(gpu_context(store.path).get(), floats, Hinted::many);
  const auto on = gpu_context(store.path);
  const Made now = made(on.get(), floats, Hinted::both, LATHE_WAIT_NOW);
  EXPECT_EQ(now.compiled, 0u);
  EXPECT_EQ(now.left, 1u);
  expect_product(on.get(), now);
}

TEST_F(DeviceRanges, ServedInAnotherProcess) {
  const TempStore store;
  (void)made(gpu_context(store.path).get(), floats, Hinted::both);
  expect_served_in_another_process(store, "DeviceRanges.DISABLED_SecondProcess");
}
TEST_F(DeviceRanges, DISABLED_SecondProcess) {
  const auto on = gpu_context(std::getenv("LATHE_TEST_STORE"));
  const Made now = made(on.get(), floats, Hinted::both, LATHE_WAIT_NOW);
  ASSERT_NE(now.kernel, nullptr);
  EXPECT_EQ(now.left, 0u);
  expect_product(on.get(), now);
  expect_nothing_compiled(on.get());
}

}  // namespace
}  // namespace lathe::test
