// Products with the weights of experts on a device, through the C ABI and the fakes: the results of the CPU, whatever
// groups there are, and nothing read of a weight that no row is sent to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/gpu/served_op.h"

namespace lathe::test {
namespace {

constexpr int64_t kExperts = 5;

lathe_attr turned(bool value) {
  lathe_attr a{};
  a.name = "transpose_b";
  a.type = LATHE_ATTR_BOOL;
  a.i = value;
  return a;
}

// Both sides with these integers.
void expect_as_cpu(lathe_context* ctx, const lathe_graph* graph, lathe_kernel* kernel, const ArgOf& a, const ArgOf& b,
                   uint32_t type, const std::vector<int64_t>& integers, const ArgOf& result, float tolerance,
                   const std::vector<int64_t>& unread = {}) {
  std::vector<std::unique_ptr<TensorOf>> tensors[2];
  std::vector<lathe_arg> args[2];
  const ArgOf of_integers{{static_cast<int64_t>(integers.size())}, type};
  for (const int on_device : {0, 1}) {
    for (const ArgOf* arg : {&a, &b, &of_integers, &result}) {
      tensors[on_device].push_back(std::make_unique<TensorOf>(*arg, on_device != 0));
      TensorOf& t = *tensors[on_device].back();
      t.fill(*arg, static_cast<int>(tensors[on_device].size()));
      if (arg == &of_integers) {
        for (size_t i = 0; i < integers.size(); ++i) {
          if (type == LATHE_DTYPE_I64) reinterpret_cast<int64_t*>(t.data)[i] = integers[i];
          if (type == LATHE_DTYPE_I32) reinterpret_cast<int32_t*>(t.data)[i] = static_cast<int32_t>(integers[i]);
        }
      }
      // NaN shows where it is read.
      const size_t expert = t.bytes / kExperts;
      for (const int64_t e : unread)
        if (arg == &b) std::memset(t.data + static_cast<size_t>(e) * expert, 0xff, expert);
      args[on_device].push_back(t.arg());
    }
  }
  lathe_error e;
  const Owned<lathe_kernel> cpu = resolve(ctx, graph);
  uint64_t bytes = 0;
  ASSERT_EQ(lathe_workspace_bytes(cpu.get(), args[0].data(), 4, 1, &bytes, &e), LATHE_STATUS_OK);
  const Aligned workspace(bytes);
  lathe_exec on_cpu = LATHE_EXEC_INIT;
  on_cpu.workspace = workspace.memory;
  on_cpu.workspace_bytes = bytes;
  const lathe_exec exec = on_stream();
  ASSERT_EQ(lathe_execute(cpu.get(), args[0].data(), 4, &on_cpu, &e), LATHE_STATUS_OK) << e.message;
  ASSERT_EQ(lathe_execute(kernel, args[1].data(), 4, &exec, &e), LATHE_STATUS_OK) << e.message;
  const TensorOf &want = *tensors[0].back(), &got = *tensors[1].back();
  for (size_t i = 0; i < want.count; ++i) {
    const float x = want.value(i), y = got.value(i);
    ASSERT_TRUE(x == y || std::fabs(x - y) <= tolerance * (1 + std::fabs(x)))
        << "element " << i << " of " << want.count << " is " << y << ", expected " << x;
  }
}

float tolerance_of(uint32_t type) { return type == LATHE_DTYPE_F32 ? 4e-6f : 0.0079f; }

// Groups of every kind: none, empty ones, one over and under a tile, rows before the first and behind the last.
TEST(DeviceExperts, GroupsOfRows) {
  const auto ctx = gpu_context();
  for (const uint32_t type : {LATHE_DTYPE_F32, LATHE_DTYPE_BF16}) {
    for (const bool turn : {true, false}) {
      for (const auto& [n, k] : {std::pair<int64_t, int64_t>{70, 33}, {1, 16}, {64, 1}, {129, 48}}) {
        const std::vector<lathe_dim> b =
            turn ? std::vector{fixed(kExperts), fixed(n), fixed(k)} : std::vector{fixed(kExperts), fixed(k), fixed(n)};
        const auto graph = single_graph(ctx.get(), "grouped_matmul",
                                        {{{range("S", 0, 5000), fixed(k)}, type},
                                         {b, type, LATHE_TENSOR_CONST},
                                         {{fixed(kExperts + 1)}, LATHE_DTYPE_I32}},
                                        {turned(turn)});
        const auto kernel = served_on_device(ctx.get(), graph.get());
        ASSERT_NE(kernel, nullptr);
        const std::vector<int64_t> of_b = turn ? std::vector{kExperts, n, k} : std::vector{kExperts, k, n};
        struct Case {
          int64_t rows;
          std::vector<int64_t> offsets, unread;
        };
        for (const Case& c : {Case{0, {0, 0, 0, 0, 0, 0}, {0, 1, 2, 3, 4}},
                              {1, {0, 0, 0, 1, 1, 1}, {0, 1, 3, 4}},
                              {70, {3, 20, 20, 36, 53, 66}, {1}},
                              {90, {0, 1, 2, 66, 67, 90}, {}},
                              {33, {0, 33, 33, 33, 33, 33}, {1, 2, 3, 4}}})
          expect_as_cpu(ctx.get(), graph.get(), kernel.get(), {{c.rows, k}, type}, {of_b, type}, LATHE_DTYPE_I32,
                        c.offsets, {{c.rows, n}, type}, tolerance_of(type), c.unread);
      }
    }
  }
}

// As many rows as a call has are known, or bounded: fewer than a tile has, one over and under it, and none.
TEST(DeviceExperts, GroupsOfFewRows) {
  const auto ctx = gpu_context();
  constexpr int64_t kColumns = 37, kTerms = 24;
  const auto expect_served = [&](const lathe_dim& dim, uint32_t type, const std::vector<int64_t>& of_calls) {
    const auto graph = single_graph(ctx.get(), "grouped_matmul",
                                    {{{dim, fixed(kTerms)}, type},
                                     {{fixed(kExperts), fixed(kColumns), fixed(kTerms)}, type, LATHE_TENSOR_CONST},
                                     {{fixed(kExperts + 1)}, LATHE_DTYPE_I32}},
                                    {turned(true)});
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr);
    for (const int64_t rows : of_calls)
      expect_as_cpu(ctx.get(), graph.get(), kernel.get(), {{rows, kTerms}, type}, {{kExperts, kColumns, kTerms}, type},
                    LATHE_DTYPE_I32, {0, rows / 3, rows / 3, rows / 2, rows, rows}, {{rows, kColumns}, type},
                    tolerance_of(type), {1, 4});
  };
  for (const uint32_t type : {LATHE_DTYPE_F32, LATHE_DTYPE_BF16, LATHE_DTYPE_F16}) {
    for (const int64_t rows : {0, 1, 2, 3, 5, 7, 9, 13, 15, 17}) expect_served(fixed(rows), type, {rows});
    const lathe_hint one{1, 1};
    lathe_dim few = range("S", 1, 7), hinted = range("S", 1, 4096);
    hinted.hints = &one;
    hinted.num_hints = 1;
    expect_served(few, type, {1, 2, 7});
    expect_served(hinted, type, {1, 2, 33});
  }
}

// Offsets are not looked at before a call: they mean the nearest ones that are allowed, and nothing outside is touched.
TEST(DeviceExperts, OffsetsOutsideOfTheRows) {
  const auto ctx = gpu_context();
  const auto graph = single_graph(ctx.get(), "grouped_matmul",
                                  {{{range("S", 0, 5000), fixed(8)}},
                                   {{fixed(kExperts), fixed(4), fixed(8)}, LATHE_DTYPE_F32, LATHE_TENSOR_CONST},
                                   {{fixed(kExperts + 1)}, LATHE_DTYPE_I64}},
                                  {turned(true)});
  const auto kernel = served_on_device(ctx.get(), graph.get());
  ASSERT_NE(kernel, nullptr);
  TensorOf a({{9, 8}}, true), b({{kExperts, 4, 8}}, true), y({{9, 4}}, true);
  TensorOf offsets({{kExperts + 1}, LATHE_DTYPE_I64}, true);
  a.fill({{9, 8}}, 1);
  b.fill({{kExperts, 4, 8}}, 2);
  const int64_t wild[] = {-7, 1000000, 3, -9000000000, 5, 8000000000};
  std::memcpy(offsets.data, wild, sizeof wild);
  const lathe_arg args[] = {a.arg(), b.arg(), offsets.arg(), y.arg()};
  const lathe_exec exec = on_stream();
  lathe_error e;
  EXPECT_EQ(lathe_execute(kernel.get(), args, 4, &exec, &e), LATHE_STATUS_OK) << e.message;
}

// Each row with the weight that it names, fused with what follows.
TEST(DeviceExperts, RowsThatNameTheirWeight) {
  const auto ctx = gpu_context();
  for (const uint32_t type : {LATHE_DTYPE_F32, LATHE_DTYPE_BF16}) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{70, 33}, {1, 16}, {64, 1}}) {
      const auto graph = single_graph(ctx.get(), "expert_matmul",
                                      {{{range("T", 0, 5000), fixed(k)}, type},
                                       {{fixed(kExperts), fixed(n), fixed(k)}, type, LATHE_TENSOR_CONST},
                                       {{range("T", 0, 5000)}, LATHE_DTYPE_I64}},
                                      {turned(true)});
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr);
      for (const int64_t t : {0, 1, 7, 33}) {
        std::vector<int64_t> ids(static_cast<size_t>(t));
        for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 3 % 4);
        expect_as_cpu(ctx.get(), graph.get(), kernel.get(), {{t, k}, type}, {{kExperts, n, k}, type}, LATHE_DTYPE_I64,
                      ids, {{t, n}, type}, tolerance_of(type), {4});
      }
    }
  }
}

}  // namespace
}  // namespace lathe::test
