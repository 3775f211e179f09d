// The C ABI from graph to numbers: resolve, prepack, execute, pin; what is defined at the edges (empty, K = 0, NaN);
// threads.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <thread>

#include "tests/common/c_client.h"
#include "tests/common/large_pages.h"

namespace lathe::test {
namespace {

std::vector<float> product(const Floats& x, const Floats& w) {
  const auto m = static_cast<size_t>(x.shape[0]), k = static_cast<size_t>(x.shape[1]),
             n = static_cast<size_t>(w.shape[1]);
  std::vector<float> y(m * n, 0.f);
  for (size_t i = 0; i < m; ++i) {
    for (size_t l = 0; l < k; ++l) {
      for (size_t j = 0; j < n; ++j) y[i * n + j] += x.data[i * k + l] * w.data[l * n + j];
    }
  }
  return y;
}

lathe_status run(lathe_kernel* kernel, std::vector<lathe_arg> args, int threads = 1) {
  lathe_error e{};
  const lathe_status status = execute(kernel, args, &e, threads);
  EXPECT_EQ(status, LATHE_STATUS_OK) << e.message;
  return status;
}

TEST(CapiCall, AMatmulPlainPackedAndPinned) {
  for (const char* isa : {"portable", "avx2", "avx512"}) {
    SCOPED_TRACE(isa);
    const auto ctx = make_context(isa);
    const auto graph = matmul_graph(ctx.get(), range("M", 1, 64), 70, 100);
    lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
    const auto kernel = resolve(ctx.get(), graph.get(), &info);
    ASSERT_NE(kernel, nullptr);
    EXPECT_EQ(info.num_args, 3);
    EXPECT_STREQ(info.name, "matmul");
    EXPECT_STREQ(info.miss_reason, "off");
    Floats w({70, 100});
    w.numbers(3);
    lathe_pack_info pack{};
    lathe_error e{};
    ASSERT_EQ(lathe_prepack_query(kernel.get(), 1, &pack, &e), LATHE_STATUS_OK) << e.message;
    Aligned packed(pack.bytes);
    if (pack.bytes > 0) {
      ASSERT_EQ(lathe_prepack(kernel.get(), 1, &w.tensor, packed.memory, pack.bytes, &e), LATHE_STATUS_OK) << e.message;
    }
    for (const int64_t m : {1, 5, 64}) {
      SCOPED_TRACE(m);
      Floats x({m, 70});
      x.numbers(1);
      const std::vector<float> want = product(x, w);
      Floats y({m, 100}, NAN);
      run(kernel.get(), {x.arg(), w.arg(), y.arg()});
      EXPECT_EQ(y.data, want);
      lathe_arg args[] = {x.arg(), w.arg(), y.arg()};
      lathe_tensor t = w.tensor;
      t.data = packed.memory;
      if (pack.bytes > 0) {
        args[1] = {&t, pack.bytes, 0, 0, pack.layout_id};
        std::fill(y.data.begin(), y.data.end(), NAN);
        run(kernel.get(), {args[0], args[1], args[2]});
        EXPECT_EQ(y.data, want);
      }
      lathe_pinned* pinned = nullptr;
      ASSERT_EQ(lathe_pin(kernel.get(), args, 3, 1, &pinned, &e), LATHE_STATUS_OK) << e.message;
      const Owned<lathe_pinned> own(pinned);
      std::fill(y.data.begin(), y.data.end(), NAN);
      Aligned workspace(lathe_pinned_workspace_bytes(pinned));
      lathe_exec exec = LATHE_EXEC_INIT;
      exec.workspace = workspace.memory;
      exec.workspace_bytes = lathe_pinned_workspace_bytes(pinned);
      void* data[] = {x.data.data(), args[1].tensor->data, y.data.data()};
      ASSERT_EQ(lathe_pinned_run(pinned, data, &exec), LATHE_STATUS_OK);
      EXPECT_EQ(y.data, want);
    }
  }
}

using CapiLargePages = LargePages;

// What is packed into fresh memory lies on large pages, and nothing beside it.
TEST_F(CapiLargePages, AreAskedForByPrepack) {
  const auto ctx = make_context();
  const auto graph = matmul_graph(ctx.get(), range("M", 1, 4), 1024, 768);
  const auto kernel = resolve(ctx.get(), graph.get());
  ASSERT_NE(kernel, nullptr);
  lathe_pack_info pack{};
  lathe_error e{};
  ASSERT_EQ(lathe_prepack_query(kernel.get(), 1, &pack, &e), LATHE_STATUS_OK) << e.message;
  if (pack.layout_id == 0) GTEST_SKIP() << "the portable level packs nothing";
  ASSERT_GE(pack.bytes, kLargePage);
  ASSERT_LT(pack.bytes, 2 * kLargePage);
  Floats w({1024, 768});
  w.numbers(3);
  ASSERT_EQ(lathe_prepack(kernel.get(), 1, &w.tensor, data_, pack.bytes, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_TRUE(is_advised(data_));
  EXPECT_FALSE(is_advised(data_ + kLargePage)) << "the packed form fills a part of it";
}

TEST(CapiCall, KernelsOutliveTheirContextAndGraph) {
  auto ctx = make_context();
  auto graph = unary_graph(ctx.get(), "relu", {range("N", 1, 100)});
  auto kernel = resolve(ctx.get(), graph.get());
  graph.reset();
  ctx.reset();
  Floats x({9}), y({9}, NAN);
  x.numbers(2);
  run(kernel.get(), {x.arg(), y.arg()});
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(y.data[i], std::max(0.f, x.data[i]));
}

TEST(CapiCall, EmptyTensorsRunNothingAndMayBeNull) {
  const auto ctx = make_context();
  const auto graph = matmul_graph(ctx.get(), range("M", 1, 64), 70, 100);
  const auto kernel = resolve(ctx.get(), graph.get());
  Floats x({0, 70}), w({70, 100}), y({0, 100});
  x.tensor.data = y.tensor.data = nullptr;
  run(kernel.get(), {x.arg(), w.arg(), y.arg()});
}

TEST(CapiCall, AnEmptySumIsZero) {
  const auto ctx = make_context();
  const std::vector<lathe_dim> a = {fixed(3), range("K", 1, 64)}, b = {range("K", 1, 64), fixed(5)};
  const lathe_tensor_desc inputs[] = {desc("x", a), desc("w", b)};
  lathe_graph* made = nullptr;
  lathe_error e{};
  ASSERT_EQ(lathe_graph_single(ctx.get(), "matmul", inputs, 2, nullptr, 0, &made, &e), LATHE_STATUS_OK) << e.message;
  const Owned<lathe_graph> graph(made);
  const auto kernel = resolve(ctx.get(), graph.get());
  Floats x({3, 0}), w({0, 5}), y({3, 5}, NAN);
  run(kernel.get(), {x.arg(), w.arg(), y.arg()});
  for (const float v : y.data) EXPECT_EQ(v, 0.f);
}

TEST(CapiCall, NotANumberAndInfinityAreValues) {
  const auto ctx = make_context();
  const auto graph = unary_graph(ctx.get(), "exp", {fixed(4)});
  const auto kernel = resolve(ctx.get(), graph.get());
  Floats x({4}), y({4});
  const float inf = std::numeric_limits<float>::infinity();
  x.data = {NAN, inf, -inf, 0};
  run(kernel.get(), {x.arg(), y.arg()});
  EXPECT_TRUE(std::isnan(y.data[0]));
  EXPECT_EQ(y.data[1], inf);
  EXPECT_EQ(y.data[2], 0.f);
  EXPECT_EQ(y.data[3], 1.f);
}

TEST(CapiCall, InPlaceWhereEveryCellIsReadBeforeItIsWritten) {
  const auto ctx = make_context();
  for (const char* op : {"silu", "softmax", "layernorm", "rmsnorm"}) {
    SCOPED_TRACE(op);
    const auto graph = unary_graph(ctx.get(), op, {range("M", 1, 9), range("N", 1, 400)});
    const auto kernel = resolve(ctx.get(), graph.get());
    for (const int64_t n : {1, 15, 130, 400}) {
      Floats x({9, n}), y({9, n}, NAN);
      x.numbers(static_cast<int>(n));
      run(kernel.get(), {x.arg(), y.arg()});
      run(kernel.get(), {x.arg(), x.arg()});
      EXPECT_EQ(x.data, y.data) << n;
    }
  }
}

// A dimension of 1 has one place, and sums of a long row in parts read all of it before the result is written.
TEST(CapiCall, InPlaceWhereThereIsOneRowAndWhereRowsAreLong) {
  const auto ctx = make_context();
  for (const char* op : {"silu", "softmax", "layernorm", "rmsnorm", "cumsum"}) {
    for (const int64_t n : {1, 15, 3000}) {
      for (const bool symbols : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", op, n, symbols));
        const lathe_dim row = symbols ? range("N", 1, 200'000) : fixed(n);
        const auto graph = unary_graph(ctx.get(), op, {symbols ? range("M", 1, 9) : fixed(1), row});
        const auto kernel = resolve(ctx.get(), graph.get());
        Floats x({1, n}), y({1, n}, NAN);
        x.numbers(static_cast<int>(n));
        run(kernel.get(), {x.arg(), y.arg()});
        run(kernel.get(), {x.arg(), x.arg()});
        EXPECT_EQ(x.data, y.data);
      }
    }
  }
}

TEST(CapiCall, StridesOneAndTensorsOfOneElementAreFree) {
  const auto ctx = make_context();
  const auto graph = unary_graph(ctx.get(), "neg", {range("M", 1, 9), fixed(8)});
  const auto kernel = resolve(ctx.get(), graph.get());
  Floats x({1, 8}), y({1, 8});
  x.numbers(1);
  int64_t strides[] = {12345, 1};
  x.tensor.strides = strides;
  run(kernel.get(), {x.arg(), y.arg()});
  EXPECT_EQ(y.data[3], -x.data[3]);
}

TEST(CapiCall, MoreShapesThanAreKeptStillRun) {
  const auto ctx = make_context("portable");
  const auto graph = unary_graph(ctx.get(), "neg", {range("N", 1, 4000)});
  const auto kernel = resolve(ctx.get(), graph.get());
  Floats x({2000}), y({2000});
  x.numbers(1);
  for (int64_t n = 1; n <= 1100; ++n) {
    x.shape[0] = y.shape[0] = n;
    run(kernel.get(), {x.arg(), y.arg()});
    ASSERT_EQ(y.data[static_cast<size_t>(n) - 1], -x.data[static_cast<size_t>(n) - 1]);
  }
}

TEST(CapiCall, FourThreadsResolveAndExecuteOneOperator) {
  const auto ctx = make_context("portable");
  const auto graph = matmul_graph(ctx.get(), range("M", 1, 64), 16, 24);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const auto kernel = resolve(ctx.get(), graph.get());
      Floats w({16, 24});
      w.numbers(3);
      for (int64_t m = 1; m <= 24; ++m) {
        Floats x({m, 16}), y({m, 24}, NAN);
        x.numbers(t);
        run(kernel.get(), {x.arg(), w.arg(), y.arg()});
        EXPECT_EQ(y.data, product(x, w));
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST(CapiCall, OneKernelSharedByThreadsAndAHostPool) {
  const auto ctx = make_context("portable");
  const auto graph = matmul_graph(ctx.get(), range("M", 1, 64), 16, 24);
  const auto kernel = resolve(ctx.get(), graph.get());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      int loops = 0;
      lathe_pool pool = LATHE_POOL_INIT;
      pool.self = &loops;
      pool.num_threads = [](void*) { return int32_t{2}; };
      pool.parallel_for = [](void* self, int32_t n, void (*body)(void*, int32_t), void* c) {
        ++*static_cast<int*>(self);
        for (int32_t i = n; i-- > 0;) body(c, i);
      };
      Floats w({16, 24}), x({33, 16}), y({33, 24}, NAN);
      w.numbers(3);
      x.numbers(1);
      Aligned workspace(1 << 20);
      lathe_exec exec = LATHE_EXEC_INIT;
      exec.pool = &pool;
      exec.threads = 2;
      exec.workspace = workspace.memory;
      exec.workspace_bytes = 1 << 20;
      const lathe_arg args[] = {x.arg(), w.arg(), y.arg()};
      lathe_error e{};
      EXPECT_EQ(lathe_execute(kernel.get(), args, 3, &exec, &e), LATHE_STATUS_OK) << e.message;
      EXPECT_EQ(y.data, product(x, w));
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST(CapiCall, EqualGraphsShareTheirOperatorUnderAnyNames) {
  const auto ctx = make_context();
  const std::vector<lathe_dim> dims = {range("M", 1, 8), fixed(8)};
  lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
  const auto first = unary_graph(ctx.get(), "neg", dims);
  const auto kernel = resolve(ctx.get(), first.get(), &info);
  EXPECT_NE(info.origin, static_cast<uint32_t>(LATHE_ORIGIN_MEMORY));
  const lathe_tensor_desc other = desc("another", dims);
  lathe_graph* made = nullptr;
  ASSERT_EQ(lathe_graph_single(ctx.get(), "neg", &other, 1, nullptr, 0, &made, nullptr), LATHE_STATUS_OK);
  const Owned<lathe_graph> second(made);
  const auto again = resolve(ctx.get(), second.get(), &info);
  EXPECT_EQ(info.origin, static_cast<uint32_t>(LATHE_ORIGIN_MEMORY));
}

}  // namespace
}  // namespace lathe::test
