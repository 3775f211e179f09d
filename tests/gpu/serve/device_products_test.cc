// Products of f32 matrices on a device, through the C ABI and the fakes, against sums in f64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/served_op.h"

namespace lathe::test {
namespace {

struct Sizes {
  int64_t m, n, k;
};
struct Form {
  bool turn_a = false, turn_b = false;
  int64_t batch = 0;   // 0: none
  bool one_b = false;  // of all batches
};

std::vector<lathe_attr> attrs_of(const Form& f) {
  std::vector<lathe_attr> out(2);
  out[0].name = "transpose_a";
  out[0].i = f.turn_a;
  out[1].name = "transpose_b";
  out[1].i = f.turn_b;
  for (lathe_attr& a : out) a.type = LATHE_ATTR_BOOL;
  return out;
}

std::vector<int64_t> shape_of(const Form& f, int64_t rows, int64_t columns, bool turned, bool batched) {
  std::vector<int64_t> out = {turned ? columns : rows, turned ? rows : columns};
  if (f.batch != 0 && batched) out.insert(out.begin(), f.batch);
  return out;
}

// The largest difference of a result from its sum in f64, over what its rounding errors may add up to.
void expect_product(lathe_kernel* kernel, const Form& f, const Sizes& s) {
  const ArgOf a{shape_of(f, s.m, s.k, f.turn_a, true)}, b{shape_of(f, s.k, s.n, f.turn_b, !f.one_b)},
      y{shape_of(f, s.m, s.n, false, true)};
  TensorOf ta(a, true), tb(b, true), ty(y, true);
  ta.fill(a, 1);
  tb.fill(b, 2);
  const lathe_arg args[] = {ta.arg(), tb.arg(), ty.arg()};
  const lathe_exec exec = on_stream();
  lathe_error e;
  ASSERT_EQ(lathe_execute(kernel, args, 3, &exec, &e), LATHE_STATUS_OK) << e.message;
  for (int64_t t = 0; t < std::max<int64_t>(f.batch, 1); ++t) {
    const float* pa = ta.floats() + t * s.m * s.k;
    const float* pb = tb.floats() + (f.one_b ? 0 : t * s.k * s.n);
    for (int64_t m = 0; m < s.m; ++m) {
      for (int64_t n = 0; n < s.n; ++n) {
        double want = 0, size = 0;
        for (int64_t k = 0; k < s.k; ++k) {
          const double term = static_cast<double>(pa[f.turn_a ? k * s.m + m : m * s.k + k]) *
                              static_cast<double>(pb[f.turn_b ? n * s.k + k : k * s.n + n]);
          want += term;
          size += std::fabs(term);
        }
        const float got = ty.floats()[(t * s.m + m) * s.n + n];
        ASSERT_LE(std::fabs(got - want), static_cast<double>(s.k + 1) * 6e-8 * size)
            << t << ", " << m << ", " << n << " of " << s.m << "x" << s.n << "x" << s.k;
      }
    }
  }
}

// most: of rows and columns; what calls mostly have is guessed from it.
Owned<lathe_graph> product_graph(lathe_context* ctx, const Form& f, const Sizes& most = {20000, 20000, 20000}) {
  const lathe_dim m = range("M", 0, most.m), n = range("N", 0, most.n), k = range("K", 0, most.k);
  std::vector<lathe_dim> a = {f.turn_a ? k : m, f.turn_a ? m : k}, b = {f.turn_b ? n : k, f.turn_b ? k : n};
  if (f.batch != 0) a.insert(a.begin(), fixed(f.batch));
  if (f.batch != 0 && !f.one_b) b.insert(b.begin(), fixed(f.batch));
  return single_graph(ctx, "matmul", {{a}, {b}}, attrs_of(f));
}

TEST(DeviceProducts, AtEverySize) {
  const auto ctx = gpu_context();
  const Form plain;
  const auto graph = product_graph(ctx.get(), plain);
  const auto kernel = served_on_device(ctx.get(), graph.get());
  ASSERT_NE(kernel, nullptr);
  for (const int64_t m : {0, 1, 7, 127, 129}) {
    for (const int64_t n : {1, 5, 131}) {
      for (const int64_t k : {0, 1, 15, 16, 17, 37}) expect_product(kernel.get(), plain, {m, n, k});
    }
  }
  expect_product(kernel.get(), plain, {64, 64, 64});
  expect_product(kernel.get(), plain, {5, 0, 3});
}

TEST(DeviceProducts, EveryLayoutAndBatches) {
  const auto ctx = gpu_context();
  for (const Form& f :
       {Form{true, false}, Form{false, true}, Form{true, true}, Form{false, false, 3}, Form{false, true, 2, true}}) {
    const auto graph = product_graph(ctx.get(), f);
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr);
    for (const Sizes& s : {Sizes{33, 70, 19}, {64, 64, 32}, {1, 3, 5}}) expect_product(kernel.get(), f, s);
  }
}

// Code for few rows, or for few columns, serves all.
TEST(DeviceProducts, FewRowsOrColumns) {
  const auto ctx = gpu_context();
  for (const Sizes& most : {Sizes{1, 20000, 20000}, {6, 20000, 20000}, {20000, 3, 20000}}) {
    for (const Form& f : {Form{}, Form{false, true}, Form{true, false, 2}}) {
      const auto graph = product_graph(ctx.get(), f, most);
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr);
      for (const Sizes& s : {Sizes{1, 1, 1}, {1, 130, 261}, {5, 9, 128}, {131, 2, 33}, {2, 3, 0}}) {
        if (s.m <= most.m && s.n <= most.n) expect_product(kernel.get(), f, s);
      }
    }
  }
}

// What is made before a product and after it is part of the launch; narrow operands are widened.
TEST(DeviceProducts, WithWhatIsFused) {
  const auto ctx = gpu_context();
  const lathe_dim m = range("M", 1, 500);
  const auto graph = fused_product(ctx.get(), LATHE_DTYPE_F32, "gelu", {text_attr("approximate", "tanh")});
  ASSERT_NE(graph, nullptr);
  const auto kernel = served_on_device(ctx.get(), graph.get());
  ASSERT_NE(kernel, nullptr);
  for (const int64_t rows : {1, 31, 65}) {
    const int before = fake_gpu().state.launches;
    expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(),
                     {{{rows, 40}}, {{rows, 40}}, {{40, 70}}, {{70}}, {{rows, 70}}}, {{rows, 70}}, 0, 4e-5f);
    EXPECT_EQ(fake_gpu().state.launches, before + 1);
  }
  for (const uint32_t type : {LATHE_DTYPE_BF16, LATHE_DTYPE_F16}) {
    const float ulp = type == LATHE_DTYPE_BF16 ? 0.0079f : 0.00098f;
    const auto narrow = single_graph(ctx.get(), "matmul", {{{m, fixed(40)}, type}, {{fixed(40), fixed(70)}, type}});
    const auto product = served_on_device(ctx.get(), narrow.get());
    ASSERT_NE(product, nullptr);
    for (const int64_t rows : {1, 33})
      expect_as_on_cpu(ctx.get(), narrow.get(), product.get(), {{{rows, 40}, type}, {{40, 70}, type}},
                       {{rows, 70}, type}, 0, ulp);
  }
}

}  // namespace
}  // namespace lathe::test
