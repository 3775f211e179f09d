// grouped_matmul through the C ABI, on every level, with its weights as they lie and packed, on one thread and two:
// exact against plain loops, for groups of any size and none; weights of empty groups are not read; offsets that fall
// or leave the rows are refused, by position, before anything is written.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/common/c_client.h"

namespace lathe::test {
namespace {

using testing::HasSubstr;

// a[S, K], b[E, N, K], offsets[E + 1] -> y[S, N]
struct Case {
  int64_t rows, k, n;
  std::vector<int32_t> offsets;
};

Owned<lathe_kernel> make_kernel(lathe_context* ctx, const Case& c) {
  const auto groups = static_cast<int64_t>(c.offsets.size()) - 1;
  const std::vector<lathe_dim> a = {range("S", 0, 512), fixed(c.k)}, b = {fixed(groups), fixed(c.n), fixed(c.k)},
                               offsets = {fixed(groups + 1)};
  const lathe_tensor_desc inputs[] = {desc("a", a), desc("b", b, LATHE_TENSOR_CONST),
                                      desc("offsets", offsets, 0, LATHE_DTYPE_I32)};
  lathe_attr turned{};
  turned.name = "transpose_b";
  turned.type = LATHE_ATTR_BOOL;
  turned.i = 1;
  lathe_graph* graph = nullptr;
  lathe_error e;
  EXPECT_EQ(lathe_graph_single(ctx, "grouped_matmul", inputs, 3, &turned, 1, &graph, &e), LATHE_STATUS_OK) << e.message;
  return resolve(ctx, Owned<lathe_graph>(graph).get());
}

struct Operands {
  explicit Operands(const Case& c)
      : a({c.rows, c.k}),
        b({static_cast<int64_t>(c.offsets.size()) - 1, c.n, c.k}),
        y({c.rows, c.n}, 77),
        offsets(c.offsets),
        size(static_cast<int64_t>(c.offsets.size())) {
    a.numbers(3);
    b.numbers(5);
    tensor = {offsets.data(), {1, 0}, 1, {0, 32, 1}, &size, nullptr, 0};
  }
  Floats a, b, y;
  std::vector<int32_t> offsets;
  int64_t size;
  lathe_tensor tensor;
};

lathe_status run(lathe_kernel* kernel, Operands& o, bool packed, int threads, lathe_error* e) {
  lathe_arg args[] = {o.a.arg(), o.b.arg(), {&o.tensor, o.offsets.size() * 4, 0, 0, 0}, o.y.arg()};
  return run_with_weight(kernel, args, packed, threads, e);
}

TEST(Groups, MultiplyByTheirOwnWeight) {
  const Case cases[] = {{1, 64, 96, {0, 0, 1, 1}},
                        {17, 33, 70, {0, 5, 5, 16, 17}},
                        {200, 40, 17, {0, 128, 129, 200}},
                        {9, 8, 33, {2, 4, 4, 7}},
                        {0, 8, 8, {0, 0, 0}},
                        {6, 0, 5, {0, 2, 6}},
                        {40, 5, 1, {40, 40, 40}},
                        {3, 16, 48, {0, 3}}};
  for (const char* level : {"portable", "avx2", "avx512"}) {
    const auto ctx = make_context(level, 2);
    for (const Case& c : cases) {
      SCOPED_TRACE(fmt::format("{} S {} K {} N {}", level, c.rows, c.k, c.n));
      const auto kernel = make_kernel(ctx.get(), c);
      for (const bool packed : {false, true}) {
        Operands o(c);
        std::vector<float> expected(o.y.data.size(), 0);
        for (size_t e = 0; e + 1 < c.offsets.size(); ++e) {
          float* const weight = o.b.data.data() + static_cast<int64_t>(e) * c.n * c.k;
          if (c.offsets[e] == c.offsets[e + 1]) std::fill_n(weight, c.n * c.k, NAN);
          for (int64_t r = c.offsets[e]; r < c.offsets[e + 1]; ++r) {
            for (int64_t n = 0; n < c.n; ++n) {
              for (int64_t k = 0; k < c.k; ++k)
                expected[static_cast<size_t>(r * c.n + n)] += o.a.data[r * c.k + k] * weight[n * c.k + k];
            }
          }
        }
        lathe_error e;
        ASSERT_EQ(run(kernel.get(), o, packed, packed ? 2 : 1, &e), LATHE_STATUS_OK) << e.message;
        for (size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(o.y.data[i], expected[i]) << "element " << i;
      }
    }
  }
}

// Weights of few panels, which a vector at a time does not pack: the last panel has a column less than it could.
TEST(Groups, WeightsOfFewPanelsArePacked) {
  const Case c = {40, 33, 31, {0, 5, 5, 40}};
  for (const char* level : {"portable", "avx2", "avx512"}) {
    SCOPED_TRACE(level);
    const auto ctx = make_context(level, 2);
    const std::vector<lathe_dim> a = {fixed(c.rows), fixed(c.k)}, b = {fixed(3), fixed(c.k), fixed(c.n)},
                                 offsets = {fixed(4)};
    const lathe_tensor_desc inputs[] = {desc("a", a), desc("b", b, LATHE_TENSOR_CONST),
                                        desc("offsets", offsets, 0, LATHE_DTYPE_I32)};
    lathe_graph* made = nullptr;
    lathe_error e;
    ASSERT_EQ(lathe_graph_single(ctx.get(), "grouped_matmul", inputs, 3, nullptr, 0, &made, &e), LATHE_STATUS_OK);
    const auto kernel = resolve(ctx.get(), Owned<lathe_graph>(made).get(), nullptr, 2);
    Operands given(c), packed(c);
    given.b.shape = packed.b.shape = {3, c.k, c.n};
    ASSERT_EQ(run(kernel.get(), given, false, 2, &e), LATHE_STATUS_OK) << e.message;
    ASSERT_EQ(run(kernel.get(), packed, true, 2, &e), LATHE_STATUS_OK) << e.message;
    EXPECT_EQ(packed.y.data, given.y.data);
    EXPECT_NE(given.y.data[0], 77);
  }
}

TEST(Groups, OffsetsThatFallOrLeaveTheRowsAreRefused) {
  const auto ctx = make_context();
  const Case c = {10, 16, 16, {0, 4, 7, 10}};
  const auto kernel = make_kernel(ctx.get(), c);
  const struct {
    std::vector<int32_t> offsets;
    const char* message;
  } bad[] = {{{0, 7, 4, 10}, "offsets[2]: 4, expected 7..10"},
             {{-1, 4, 7, 10}, "offsets[0]: -1, expected 0..10"},
             {{0, 4, 7, 11}, "offsets[3]: 11, expected 0..10"}};
  for (const auto& [offsets, message] : bad) {
    Operands o(c);
    o.offsets = offsets;
    o.tensor.data = o.offsets.data();
    lathe_error e;
    EXPECT_EQ(run(kernel.get(), o, false, 1, &e), LATHE_STATUS_INVALID);
    EXPECT_THAT(e.message, HasSubstr(message));
    EXPECT_EQ(e.arg_index, 2);
    for (const float v : o.y.data) ASSERT_EQ(v, 77);
  }
}

TEST(Groups, ShapesThatDoNotFitAreNamed) {
  const auto ctx = make_context();
  const std::vector<lathe_dim> a = {fixed(6), fixed(8)}, b = {fixed(4), fixed(8), fixed(6)};
  const auto refused = [&](const std::vector<lathe_dim>& weights, const std::vector<lathe_dim>& offsets) {
    const lathe_tensor_desc inputs[] = {desc("a", a), desc("b", weights), desc("offsets", offsets, 0, LATHE_DTYPE_I32)};
    lathe_graph* graph = nullptr;
    lathe_error e;
    EXPECT_EQ(lathe_graph_single(ctx.get(), "grouped_matmul", inputs, 3, nullptr, 0, &graph, &e), LATHE_STATUS_INVALID);
    return std::string(e.message);
  };
  EXPECT_THAT(refused(b, {fixed(4)}), HasSubstr("offsets.shape[0]: 4, expected 5 (one more than the weights of b)"));
  EXPECT_THAT(refused({range("E", 1, 4), fixed(8), fixed(6)}, {fixed(5)}), HasSubstr("a fixed number of weights"));
  EXPECT_THAT(refused({fixed(4), fixed(9), fixed(6)}, {fixed(5)}), HasSubstr("a.shape[1]: 8, expected 9 (K of b)"));
}

}  // namespace
}  // namespace lathe::test
