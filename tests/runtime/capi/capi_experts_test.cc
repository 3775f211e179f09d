// expert_matmul through the C ABI, on every level, with its weights as they lie and packed, on one thread and two:
// exact against plain loops; weights that no id names are not read; ids that are no weights are refused, by position,
// value and range, before anything is written.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/common/c_client.h"

namespace lathe::test {
namespace {

using testing::HasSubstr;

constexpr int64_t kExperts = 5;

// a[T, J or 1, K], b[E, N, K], ids[T, J] -> y[T, J, N]
struct Case {
  int64_t rows, chosen, k, n;
  bool spread;  // one row for all that a token chooses
};

lathe_status make_kernel(lathe_context* ctx, const Case& c, Owned<lathe_kernel>* out, lathe_error* e) {
  const std::vector<lathe_dim> a = {range("T", 0, 64), fixed(c.spread ? 1 : c.chosen), fixed(c.k)},
                               b = {fixed(kExperts), fixed(c.n), fixed(c.k)},
                               ids = {range("T", 0, 64), fixed(c.chosen)};
  const lathe_tensor_desc inputs[] = {desc("a", a), desc("b", b, LATHE_TENSOR_CONST),
                                      desc("ids", ids, 0, LATHE_DTYPE_I32)};
  lathe_attr turned{};
  turned.name = "transpose_b";
  turned.type = LATHE_ATTR_BOOL;
  turned.i = 1;
  lathe_graph* graph = nullptr;
  const lathe_status status = lathe_graph_single(ctx, "expert_matmul", inputs, 3, &turned, 1, &graph, e);
  if (status == LATHE_STATUS_OK) *out = resolve(ctx, Owned<lathe_graph>(graph).get());
  return status;
}

struct Operands {
  explicit Operands(const Case& c)
      : a({c.rows, c.spread ? 1 : c.chosen, c.k}),
        b({kExperts, c.n, c.k}),
        y({c.rows, c.chosen, c.n}, 77),
        ids(static_cast<size_t>(c.rows * c.chosen)),
        shape{c.rows, c.chosen} {
    a.numbers(3);
    b.numbers(5);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((i * 3 + i / 4) % kExperts);
    tensor = {ids.data(), {1, 0}, 2, {0, 32, 1}, shape, nullptr, 0};
  }
  Floats a, b, y;
  std::vector<int32_t> ids;
  int64_t shape[2];
  lathe_tensor tensor;
};

lathe_status run(lathe_kernel* kernel, Operands& o, bool packed, int threads, lathe_error* e) {
  lathe_arg args[] = {o.a.arg(), o.b.arg(), {&o.tensor, o.ids.size() * 4, 0, 0, 0}, o.y.arg()};
  return run_with_weight(kernel, args, packed, threads, e);
}

TEST(Experts, AreThoseThatIdsName) {
  for (const char* level : {"portable", "avx2", "avx512"}) {
    const auto ctx = make_context(level, 2);
    for (const Case& c : {Case{1, 2, 64, 96, true}, Case{7, 3, 33, 70, true}, Case{3, 2, 40, 17, false},
                          Case{64, 1, 1, 1, true}, Case{0, 2, 8, 8, true}, Case{2, 2, 0, 5, false}}) {
      SCOPED_TRACE(fmt::format("{} T {} J {} K {} N {}", level, c.rows, c.chosen, c.k, c.n));
      Owned<lathe_kernel> kernel;
      lathe_error e;
      ASSERT_EQ(make_kernel(ctx.get(), c, &kernel, &e), LATHE_STATUS_OK) << e.message;
      for (const bool packed : {false, true}) {
        Operands o(c);
        // What nobody chooses may hold anything.
        for (int64_t expert = 0; expert < kExperts; ++expert) {
          if (std::find(o.ids.begin(), o.ids.end(), expert) != o.ids.end()) continue;
          std::fill_n(o.b.data.begin() + expert * c.n * c.k, c.n * c.k, NAN);
        }
        ASSERT_EQ(run(kernel.get(), o, packed, packed ? 2 : 1, &e), LATHE_STATUS_OK) << e.message;
        for (int64_t t = 0; t < c.rows * c.chosen; ++t) {
          const float* row = o.a.data.data() + (c.spread ? t / c.chosen : t) * c.k;
          for (int64_t n = 0; n < c.n; ++n) {
            const float* weight = o.b.data.data() + (o.ids[static_cast<size_t>(t)] * c.n + n) * c.k;
            float sum = 0;
            for (int64_t k = 0; k < c.k; ++k) sum += row[k] * weight[k];
            ASSERT_EQ(o.y.data[static_cast<size_t>(t * c.n + n)], sum) << "row " << t << " column " << n;
          }
        }
      }
    }
  }
}

TEST(Experts, IdsThatAreNoExpertsAreRefused) {
  const auto ctx = make_context();
  const Case c = {4, 2, 16, 16, true};
  Owned<lathe_kernel> kernel;
  lathe_error e;
  ASSERT_EQ(make_kernel(ctx.get(), c, &kernel, &e), LATHE_STATUS_OK) << e.message;
  for (const int32_t bad : {-1, static_cast<int32_t>(kExperts), INT32_MAX}) {
    Operands o(c);
    o.ids[5] = bad;
    EXPECT_EQ(run(kernel.get(), o, false, 1, &e), LATHE_STATUS_INVALID);
    EXPECT_THAT(e.message, HasSubstr(fmt::format("ids[2, 1]: {}, expected 0..4", bad)));
    EXPECT_EQ(e.arg_index, 2);
    for (const float v : o.y.data) ASSERT_EQ(v, 77);
  }
}

TEST(Experts, ShapesThatDoNotFitAreNamed) {
  const auto ctx = make_context();
  const std::vector<lathe_dim> b = {fixed(4), fixed(8), fixed(6)}, none = {fixed(0), fixed(8), fixed(6)},
                               ids = {fixed(3), fixed(2)};
  const auto refused = [&](const std::vector<lathe_dim>& a, const std::vector<lathe_dim>& weights) {
    const lathe_tensor_desc inputs[] = {desc("a", a), desc("b", weights), desc("ids", ids, 0, LATHE_DTYPE_I32)};
    lathe_graph* graph = nullptr;
    lathe_error e;
    EXPECT_EQ(lathe_graph_single(ctx.get(), "expert_matmul", inputs, 3, nullptr, 0, &graph, &e), LATHE_STATUS_INVALID);
    return std::string(e.message);
  };
  EXPECT_THAT(refused({fixed(3), fixed(2), fixed(7)}, b), HasSubstr("a.shape[2]: 7, expected 8 (K of b)"));
  EXPECT_THAT(refused({fixed(3), fixed(4), fixed(8)}, b), HasSubstr("a.shape[1]: 4, expected 2 (of ids) or 1"));
  EXPECT_THAT(refused({fixed(3), fixed(8)}, b), HasSubstr("a"));
  EXPECT_THAT(refused({fixed(3), fixed(2), fixed(8)}, none), HasSubstr("at least one weight to choose"));
}

}  // namespace
}  // namespace lathe::test
