// Rows with chains before and after them in one launch, and with two results: the results of the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/served_chain.h"
#include "tests/gpu/served_op.h"

namespace lathe::test {
namespace {

using Dims = std::vector<int64_t>;

class DeviceFusedRows : public DeviceServe {
 protected:
  // inputs: of the graph; `rows` stands for as many as a call has.
  void expect_served(lathe_context* ctx, const std::vector<Op>& ops, lathe_dim columns, const Dims& lengths) {
    const lathe_dim rows = range("M", 0, 5000);
    const auto graph = graph_of(ctx, {{rows, columns}, {rows, columns}, {columns}}, ops);
    Owned<lathe_kernel> kernel;
    lathe_error e;
    ASSERT_EQ(resolve_on(ctx, graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
    for (const int64_t n : lengths) {
      for (const int64_t m : {0, 1, 7}) {
        const int before = fake_gpu().state.launches;
        expect_as_on_cpu(ctx, graph.get(), kernel.get(), {{{m, n}}, {{m, n}}, {{n}}}, {{m, n}});
        EXPECT_EQ(fake_gpu().state.launches, before + (m > 0 ? 1 : 0));
      }
    }
  }
};

TEST_F(DeviceFusedRows, SumThenNorm) {
  const auto ctx = gpu_context();
  for (const char* norm : {"rmsnorm", "layernorm"}) {
    const std::vector<Op> ops = {{"add", {0, 1}}, {norm, {-1, 2}}};
    for (const int64_t n : {1, 3, 128, 1000, 1025}) expect_served(ctx.get(), ops, fixed(n), {n});
    expect_served(ctx.get(), ops, range("N", 1, 100000), {1, 3, 127, 1000, 1025});
  }
}

TEST_F(DeviceFusedRows, ChainsAroundSoftmax) {
  const auto ctx = gpu_context();
  const std::vector<Op> ops = {{"mul", {0, 2}}, {"softmax", {-1}}, {"add", {-1, 1}}};
  for (const int64_t n : {1, 3, 128, 1000, 1025}) expect_served(ctx.get(), ops, fixed(n), {n});
  // Longer rows than registers hold: what the chain makes is made again in each loop.
  expect_served(ctx.get(), ops, range("N", 1, 200000), {1, 3, 127, 1025});
}

// Elements of 16 bits: what is between is f32.
TEST_F(DeviceFusedRows, NarrowTypes) {
  const auto ctx = gpu_context();
  const lathe_dim m = range("M", 0, 5000);
  for (const uint32_t type : {LATHE_DTYPE_BF16, LATHE_DTYPE_F16}) {
    const float ulp = type == LATHE_DTYPE_BF16 ? 0.0079f : 0.00098f;
    for (const char* op : {"softmax", "rmsnorm", "sum", "max"}) {
      const bool norm = std::string(op) == "rmsnorm", full = norm || std::string(op) == "softmax";
      for (const int64_t n : {3, 128, 1000, 1025}) {
        std::vector<DescOf> inputs = {{{m, fixed(n)}, type}};
        if (norm) inputs.push_back({{fixed(n)}, type});
        const auto graph = single_graph(ctx.get(), op, inputs);
        const auto kernel = served_on_device(ctx.get(), graph.get());
        ASSERT_NE(kernel, nullptr) << op;
        for (const int64_t rows : {0, 1, 7}) {
          std::vector<ArgOf> args = {{{rows, n}, type}};
          if (norm) args.push_back({{n}, type});
          const ArgOf out = full ? ArgOf{{rows, n}, type} : ArgOf{{rows}, type};
          expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), args, out, 0, ulp);
        }
      }
    }
  }
}

// The sum is a result too.
TEST_F(DeviceFusedRows, TwoResults) {
  const auto ctx = gpu_context();
  for (const int64_t n : {3, 1000, 4096}) {
    lathe_graph* g = nullptr;
    lathe_error e;
    ASSERT_EQ(lathe_graph_create(ctx.get(), "two", &g, &e), LATHE_STATUS_OK) << e.message;
    const Owned<lathe_graph> graph(g);
    const std::vector<lathe_dim> rows = {range("M", 1, 100), fixed(n)}, column = {fixed(n)};
    const lathe_tensor_desc x = desc("x", rows), y = desc("y", rows), w = desc("w", column);
    int32_t ids[3] = {}, sum = 0, norm = 0;
    for (const auto& [d, at] : {std::pair(&x, 0), std::pair(&y, 1), std::pair(&w, 2)})
      ASSERT_EQ(lathe_graph_tensor(g, d, &ids[at], &e), LATHE_STATUS_OK);
    ASSERT_EQ(lathe_graph_op(g, "add", ids, 2, nullptr, 0, "sum", &sum, &e), LATHE_STATUS_OK) << e.message;
    const int32_t scaled[] = {sum, ids[2]};
    ASSERT_EQ(lathe_graph_op(g, "rmsnorm", scaled, 2, nullptr, 0, "norm", &norm, &e), LATHE_STATUS_OK) << e.message;
    ASSERT_EQ(lathe_graph_output(g, sum, &e), LATHE_STATUS_OK);
    ASSERT_EQ(lathe_graph_output(g, norm, &e), LATHE_STATUS_OK);
    ASSERT_EQ(lathe_graph_finish(g, &e), LATHE_STATUS_OK) << e.message;
    Owned<lathe_kernel> kernel;
    ASSERT_EQ(resolve_on(ctx.get(), g, LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
    DeviceFloats a({5, n}), b({5, n}), c({n}), added({5, n}), result({5, n});
    const auto count = static_cast<size_t>(5 * n);
    a = values(count, 1);
    b = values(count, 2);
    c = values(static_cast<size_t>(n), 3);
    const lathe_arg args[] = {a.arg(), b.arg(), c.arg(), added.arg(), result.arg()};
    const lathe_exec exec = on_stream();
    Accesses& accesses = fake_gpu().state.accesses;
    accesses = {};
    const int before = fake_gpu().state.launches;
    ASSERT_EQ(lathe_execute(kernel.get(), args, 5, &exec, &e), LATHE_STATUS_OK) << e.message << fake_gpu().state.why;
    EXPECT_EQ(fake_gpu().state.launches, before + 1);
    for (int64_t r = 0; r < 5; ++r) {
      double squares = 0;
      for (int64_t i = r * n; i < (r + 1) * n; ++i) {
        EXPECT_EQ(added.data[i], a.data[i] + b.data[i]);
        squares += static_cast<double>(added.data[i]) * static_cast<double>(added.data[i]);
      }
      const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(1e-5f));
      for (int64_t i = 0; i < n; ++i) {
        const double want = static_cast<double>(added.data[r * n + i]) * scale * static_cast<double>(c.data[i]);
        EXPECT_NEAR(result.data[r * n + i], want, 2e-6 * (1 + std::abs(want))) << n << ": " << r << ", " << i;
      }
    }
    // Each operand is read once, and the sum is not read back.
    if (n % 4 == 0) {
      EXPECT_EQ(accesses.loads[2], 3 * 5 * n / 4) << n;
      EXPECT_EQ(accesses.stores[2], 2 * 5 * n / 4) << n;
    }
  }
}

}  // namespace
}  // namespace lathe::test
