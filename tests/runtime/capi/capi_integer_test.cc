// matmul_integer through the C ABI, on every level, with its weight as it lies and packed, on one thread and two: the
// i32 sums of plain loops, bit by bit; the chain that requantises them gives the bytes of its definition.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/common/c_client.h"

namespace lathe::test {
namespace {

constexpr const char* kLevels[] = {"portable", "avx2", "avx512"};

// A tensor of integers: their bytes, and the DLTensor on them.
template <class T>
struct Numbers {
  Numbers(std::vector<int64_t> dims, T value = 0) : shape(std::move(dims)) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    data.assign(static_cast<size_t>(n), value);
    constexpr bool is_signed = static_cast<T>(-1) < 0;
    tensor = {data.data(),
              {1, 0},
              static_cast<int32_t>(shape.size()),
              {is_signed ? uint8_t{0} : uint8_t{1}, 8 * sizeof(T), 1},
              shape.data(),
              nullptr,
              0};
  }
  Numbers(const Numbers&) = delete;
  lathe_arg arg() const { return {&tensor, data.size() * sizeof(T), 0, 0, 0}; }
  std::vector<int64_t> shape;
  std::vector<T> data;
  lathe_tensor tensor;
};

template <class T>
void fill(std::vector<T>& data, int seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  constexpr T kEnds[] = {std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
  for (T& v : data) v = random() % 4 == 0 ? kEnds[random() % 2] : static_cast<T>(random());
}

template <class T>
constexpr uint32_t kDtype = static_cast<T>(-1) < 0 ? LATHE_DTYPE_I8 : LATHE_DTYPE_U8;

struct Sizes {
  int64_t m, n, k;
  bool turned = false, zeros = false, varies = true;
};

template <class A, class B>
struct Product {
  explicit Product(const Sizes& sizes)
      : s(sizes),
        a({s.m, s.k}),
        b(s.turned ? std::vector<int64_t>{s.n, s.k} : std::vector<int64_t>{s.k, s.n}),
        za({1}),
        zb({s.n}),
        y({s.m, s.n}, 77) {
    fill(a.data, 1);
    fill(b.data, 2);
    fill(za.data, 3);
    fill(zb.data, 4);
  }
  int32_t sum(int64_t m, int64_t n) const {
    int32_t out = 0;
    for (int64_t k = 0; k < s.k; ++k) {
      const int x = a.data[static_cast<size_t>(m * s.k + k)] - (s.zeros ? za.data[0] : 0),
                w = b.data[static_cast<size_t>(s.turned ? n * s.k + k : k * s.n + n)] -
                    (s.zeros ? zb.data[static_cast<size_t>(n)] : 0);
      out += x * w;
    }
    return out;
  }
  Owned<lathe_kernel> kernel(lathe_context* ctx) const {
    const std::vector<lathe_dim> da = {s.varies ? range("M", 0, 256) : fixed(s.m), fixed(s.k)},
                                 db = {fixed(b.shape[0]), fixed(b.shape[1])}, one = {fixed(1)}, columns = {fixed(s.n)};
    const lathe_tensor_desc inputs[] = {desc("a", da, 0, kDtype<A>), desc("b", db, LATHE_TENSOR_CONST, kDtype<B>),
                                        desc("za", one, 0, kDtype<A>),
                                        desc("zb", columns, LATHE_TENSOR_CONST, kDtype<B>)};
    lathe_attr turned{};
    turned.name = "transpose_b";
    turned.type = LATHE_ATTR_BOOL;
    turned.i = s.turned ? 1 : 0;
    lathe_graph* graph = nullptr;
    lathe_error e;
    EXPECT_EQ(lathe_graph_single(ctx, "matmul_integer", inputs, s.zeros ? 4 : 2, &turned, 1, &graph, &e),
              LATHE_STATUS_OK)
        << e.message;
    return resolve(ctx, Owned<lathe_graph>(graph).get());
  }
  lathe_status run(lathe_kernel* kernel, bool packed, int threads, lathe_error* e) {
    if (s.zeros) {
      lathe_arg args[] = {a.arg(), b.arg(), za.arg(), zb.arg(), y.arg()};
      return run_with_weight(kernel, args, packed, threads, e);
    }
    lathe_arg args[] = {a.arg(), b.arg(), y.arg()};
    return run_with_weight(kernel, args, packed, threads, e);
  }
  Sizes s;
  Numbers<A> a;
  Numbers<B> b;
  Numbers<A> za;
  Numbers<B> zb;
  Numbers<int32_t> y;
};

template <class A, class B>
void expect_exact(const Sizes& s) {
  for (const char* level : kLevels) {
    for (const int threads : {1, 2}) {
      const auto ctx = make_context(level, threads);
      Product<A, B> p(s);
      const auto kernel = p.kernel(ctx.get());
      ASSERT_NE(kernel, nullptr);
      for (const bool packed : {false, true}) {
        p.y.data.assign(p.y.data.size(), 77);
        lathe_error e;
        ASSERT_EQ(p.run(kernel.get(), packed, threads, &e), LATHE_STATUS_OK) << e.message;
        for (int64_t m = 0; m < s.m; ++m) {
          for (int64_t n = 0; n < s.n; ++n) {
            ASSERT_EQ(p.y.data[static_cast<size_t>(m * s.n + n)], p.sum(m, n))
                << fmt::format("{}x{}x{} turned {} zeros {} at {}, {}: {} threads {} packed {}", s.m, s.n, s.k,
                               s.turned, s.zeros, m, n, level, threads, packed);
          }
        }
      }
    }
  }
}

TEST(Integers, SumsAreExactAtEverySize) {
  for (const bool zeros : {false, true}) {
    for (const bool turned : {false, true}) {
      for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                                       {2, 17, 4},
                                                                       {3, 31, 5},
                                                                       {1, 33, 8},
                                                                       {7, 64, 12},
                                                                       {5, 47, 31},
                                                                       {9, 32, 64},
                                                                       {4, 100, 127},
                                                                       {0, 8, 8},
                                                                       {3, 8, 0}}) {
        const Sizes s{m, n, k, turned, zeros};
        expect_exact<int8_t, int8_t>(s);
        expect_exact<uint8_t, int8_t>(s);
        expect_exact<int8_t, uint8_t>(s);
        expect_exact<uint8_t, uint8_t>(s);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Integers, SumsOfFixedSizesAreExact) {
  for (const bool zeros : {false, true}) {
    expect_exact<uint8_t, int8_t>({70, 96, 256, false, zeros, false});
    expect_exact<int8_t, int8_t>({33, 65, 512, true, zeros, false});
    expect_exact<int8_t, int8_t>({1, 256, 1024, true, zeros, false});
  }
}

// The bytes are the largest ones, and the sums as long as they may be.
TEST(Integers, TheLongestSumsAreExact) {
  for (const char* level : kLevels) {
    const auto ctx = make_context(level);
    Product<uint8_t, int8_t> p({3, 33, 65793, true, false, false});
    p.a.data.assign(p.a.data.size(), 255);
    for (size_t i = 0; i < p.b.data.size(); ++i) p.b.data[i] = i / 65793 % 2 == 0 ? -128 : 127;
    const auto kernel = p.kernel(ctx.get());
    lathe_error e;
    ASSERT_EQ(p.run(kernel.get(), true, 1, &e), LATHE_STATUS_OK) << e.message;
    for (size_t i = 0; i < p.y.data.size(); ++i)
      ASSERT_EQ(p.y.data[i], i % 33 % 2 == 0 ? -128 * 255 * 65793 : 127 * 255 * 65793) << level;
  }
}

// saturate(round((sum + bias) * scale[n]) + 3), as engines requantise.
TEST(Integers, SumsAreRequantised) {
  constexpr int64_t kM = 13, kN = 70, kK = 96;
  for (const char* level : kLevels) {
    for (const char* to : {"u8", "i8"}) {
      const auto ctx = make_context(level);
      lathe_graph* made = nullptr;
      lathe_error e;
      ASSERT_EQ(lathe_graph_create(ctx.get(), "requantised", &made, &e), LATHE_STATUS_OK) << e.message;
      const Owned<lathe_graph> graph(made);
      const std::vector<lathe_dim> da = {range("M", 0, 64), fixed(kK)}, db = {fixed(kK), fixed(kN)},
                                   columns = {fixed(kN)};
      const lathe_tensor_desc inputs[] = {desc("a", da, 0, LATHE_DTYPE_U8),
                                          desc("b", db, LATHE_TENSOR_CONST, LATHE_DTYPE_I8),
                                          desc("bias", columns, 0, LATHE_DTYPE_I32), desc("scale", columns)};
      int32_t id[4];
      for (int i = 0; i < 4; ++i)
        ASSERT_EQ(lathe_graph_tensor(graph.get(), &inputs[i], &id[i], &e), LATHE_STATUS_OK) << e.message;
      int32_t y = 0;
      int number = 0;
      const auto node = [&](const char* op, std::vector<int32_t> in, std::vector<lathe_attr> attrs = {}) {
        const std::string name = fmt::format("t{}", number++);
        ASSERT_EQ(
            lathe_graph_op(graph.get(), op, in.data(), in.size(), attrs.data(), attrs.size(), name.c_str(), &y, &e),
            LATHE_STATUS_OK)
            << e.message;
      };
      node("matmul_integer", {id[0], id[1]});
      node("add", {y, id[2]});
      node("cast", {y}, {text_attr("to", "f32")});
      node("mul", {y, id[3]});
      node("round", {y});
      node("add_scalar", {y}, {float_attr("value", 3)});
      node("cast", {y}, {text_attr("to", to)});
      ASSERT_EQ(lathe_graph_output(graph.get(), y, &e), LATHE_STATUS_OK) << e.message;
      ASSERT_EQ(lathe_graph_finish(graph.get(), &e), LATHE_STATUS_OK) << e.message;
      const auto kernel = resolve(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr);
      Product<uint8_t, int8_t> p({kM, kN, kK});
      Numbers<int32_t> bias({kN});
      for (size_t n = 0; n < kN; ++n) bias.data[n] = static_cast<int32_t>(n * 977) - 30000;
      Floats scale({kN});
      for (size_t n = 0; n < kN; ++n)
        scale.data[n] = std::ldexp(static_cast<float>(n % 5 + 1), -10 - static_cast<int>(n % 7));
      Numbers<uint8_t> bytes({kM, kN}, 77);
      if (std::strcmp(to, "i8") == 0) bytes.tensor.dtype.code = 0;
      for (const bool packed : {false, true}) {
        lathe_arg args[] = {p.a.arg(), p.b.arg(), bias.arg(), scale.arg(), bytes.arg()};
        ASSERT_EQ(run_with_weight(kernel.get(), args, packed, 1, &e), LATHE_STATUS_OK) << e.message;
        for (int64_t m = 0; m < kM; ++m) {
          for (int64_t n = 0; n < kN; ++n) {
            const auto column = static_cast<size_t>(n);
            const float real = static_cast<float>(p.sum(m, n) + bias.data[column]) * scale.data[column];
            const float shifted = std::nearbyint(real) + 3;
            const uint8_t got = bytes.data[static_cast<size_t>(m * kN + n)];
            if (std::strcmp(to, "i8") == 0) {
              ASSERT_EQ(static_cast<int8_t>(got), static_cast<int8_t>(std::clamp(shifted, -128.0f, 127.0f))) << level;
            } else {
              ASSERT_EQ(got, static_cast<uint8_t>(std::clamp(shifted, 0.0f, 255.0f))) << level;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace lathe::test
