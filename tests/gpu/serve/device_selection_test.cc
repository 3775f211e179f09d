// The largest elements of rows on a device, through the C ABI and the fakes: both results are the CPU's, bit by bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/gpu/served_op.h"

namespace lathe::test {
namespace {

using ::testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

struct Selected {
  std::vector<float> values;
  std::vector<int32_t> indices;
};

// x: `rows` of equal length, in the type.
Selected selected(lathe_kernel* kernel, bool on_device, const std::vector<float>& x, int64_t rows, int64_t k,
                  uint32_t type) {
  const int64_t columns = rows == 0 ? 7 : static_cast<int64_t>(x.size()) / rows;
  TensorOf s({{rows, columns}, type}, on_device, 4), d({{rows, k}, type}, on_device, 4),
      i({{rows, k}, LATHE_DTYPE_I32}, on_device, 4);
  for (size_t at = 0; at < s.count; ++at) {
    if (type == LATHE_DTYPE_F32) s.floats()[at] = x[at];
    if (type == LATHE_DTYPE_F16) reinterpret_cast<_Float16*>(s.data)[at] = static_cast<_Float16>(x[at]);
    if (type == LATHE_DTYPE_BF16)
      reinterpret_cast<uint16_t*>(s.data)[at] = static_cast<uint16_t>(std::bit_cast<uint32_t>(x[at]) >> 16);
  }
  const lathe_arg args[] = {s.arg(), d.arg(), i.arg()};
  const lathe_exec on_gpu = on_stream();
  lathe_error e;
  EXPECT_EQ(lathe_execute(kernel, args, 3, on_device ? &on_gpu : nullptr, &e), LATHE_STATUS_OK)
      << e.message << fake_gpu().state.why;
  Selected out;
  for (size_t at = 0; at < d.count; ++at) {
    out.values.push_back(d.value(at));
    out.indices.push_back(reinterpret_cast<int32_t*>(i.data)[at]);
  }
  if (on_device) {
    for (const TensorOf* t : {&d, &i})
      for (size_t at = t->bytes; at < t->all; ++at) EXPECT_EQ(t->data[at], 0x5b) << "past the end";
  }
  return out;
}

class DeviceSelection : public testing::Test {
  void TearDown() override { fake_gpu().state.order = Order::forward; }
};

Owned<lathe_graph> top_k_graph(lathe_context* ctx, lathe_dim n, int64_t k, uint32_t type) {
  return single_graph(ctx, "top_k", {{{range("M", 0, 500), n}, type}}, {int_attr("k", k)});
}

// Values of which many are equal, in no order.
std::vector<float> many_ties(int64_t count) {
  std::vector<float> out;
  uint32_t state = 5;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    out.push_back(static_cast<float>(state >> 24) * 0.25f - 20.f);
  }
  return out;
}

TEST_F(DeviceSelection, AnyLength) {
  const auto ctx = gpu_context();
  for (const uint32_t type : {LATHE_DTYPE_F32, LATHE_DTYPE_BF16, LATHE_DTYPE_F16}) {
    for (const int64_t k : {1, 3, 17}) {
      if (type != LATHE_DTYPE_F32 && k != 3) continue;
      const auto graph = top_k_graph(ctx.get(), range("N", 0, 100000), k, type);
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr);
      const auto cpu = resolve(ctx.get(), graph.get());
      for (const int64_t rows : {0, 1, 7}) {
        for (const int64_t n : {0, 1, 2, 17, 31, 127, 128, 129, 1031}) {
          if (rows == 7 && (k > 3 || n == 128 || n > 129)) continue;
          SCOPED_TRACE(testing::Message() << rows << " x " << n << ", the " << k << " largest");
          fake_gpu().state.order = rows == 7 ? Order::shuffled : Order::forward;
          const std::vector<float> x = many_ties(rows * n);
          const Selected want = selected(cpu.get(), false, x, rows, k, type),
                         got = selected(kernel.get(), true, x, rows, k, type);
          ASSERT_EQ(got.values, want.values);
          ASSERT_EQ(got.indices, want.indices);
        }
      }
    }
  }
}

// All of a row, which sorts it, none of it, and rows that registers hold.
TEST_F(DeviceSelection, AllOfARowAndNone) {
  const auto ctx = gpu_context();
  for (const int64_t n : {1, 2, 31, 64, 101}) {
    for (const int64_t k : {int64_t{0}, int64_t{1}, n}) {
      const auto graph = top_k_graph(ctx.get(), fixed(n), k, LATHE_DTYPE_F32);
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr) << n << ", " << k;
      const std::vector<float> x = many_ties(5 * n);
      const Selected got = selected(kernel.get(), true, x, 5, k, LATHE_DTYPE_F32);
      ASSERT_EQ(got.values.size(), static_cast<size_t>(5 * k));
      for (int64_t row = 0; row < 5; ++row) {
        std::vector<int32_t> order(static_cast<size_t>(n));
        for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
        std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
          return x[static_cast<size_t>(row * n + a)] > x[static_cast<size_t>(row * n + b)];
        });
        for (int64_t i = 0; i < k; ++i) {
          ASSERT_EQ(got.indices[static_cast<size_t>(row * k + i)], order[static_cast<size_t>(i)]);
          ASSERT_EQ(got.values[static_cast<size_t>(row * k + i)],
                    x[static_cast<size_t>(row * n + order[static_cast<size_t>(i)])]);
        }
      }
    }
  }
}

// The lower index of equal elements, never NaN, and -1 where a row has too few numbers. In rows that one thread has and
// in rows that many share.
TEST_F(DeviceSelection, TiesAndWhatIsNoNumber) {
  const auto ctx = gpu_context();
  const std::vector<float> x = {1,     3,    3,     2,    3,     //
                                -kInf, kNan, -kInf, kNan, kNan,  //
                                kInf,  5,    kInf,  kNan, kInf,  //
                                0.f,   -0.f, -1,    0.f,  2,     //
                                kNan,  kNan, kNan,  kNan, kNan};
  for (const int64_t length : {5, 64, 1030}) {
    // What stands behind the five is never taken.
    std::vector<float> rows;
    for (size_t row = 0; row < 5; ++row) {
      for (int64_t i = 0; i < length; ++i) rows.push_back(i < 5 ? x[row * 5 + static_cast<size_t>(i)] : kNan);
    }
    const auto graph = top_k_graph(ctx.get(), length == 64 ? fixed(64) : range("N", 3, 100000), 3, LATHE_DTYPE_F32);
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr);
    const Selected got = selected(kernel.get(), true, rows, 5, 3, LATHE_DTYPE_F32);
    EXPECT_THAT(got.values, ElementsAre(3, 3, 3, -kInf, -kInf, -kInf, kInf, kInf, kInf, 2, 0, 0, -kInf, -kInf, -kInf));
    EXPECT_THAT(got.indices, ElementsAre(1, 2, 4, 0, 2, -1, 0, 2, 4, 4, 0, 1, -1, -1, -1));
  }
}

}  // namespace
}  // namespace lathe::test
