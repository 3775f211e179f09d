// Strides that are so many times a size: heads of attention within rows of all heads, as engines keep them, give what
// compact operands give; strides that do not fit are refused by name.
#include <fmt/format.h>

#include <cmath>
#include <cstddef>

#include "tests/common/c_client.h"

namespace lathe::test {
namespace {

constexpr int64_t kHeads = 4, kDepth = 16;

// [B, H, S, D], or the same dims within [B, S, H, D].
struct Heads {
  Heads(int64_t batch, int64_t rows, bool within, int64_t stride, int seed)
      : tensor({batch, kHeads, rows, kDepth}), strides{stride, kDepth, kHeads * kDepth, 1} {
    tensor.numbers(seed);
    if (!within) return;
    const std::vector<float> compact = tensor.data;
    tensor.data.assign(static_cast<size_t>(batch * stride + 1), NAN);
    const auto n = [](int64_t i) { return static_cast<size_t>(i); };
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < kHeads; ++h)
        for (int64_t s = 0; s < rows; ++s)
          for (int64_t d = 0; d < kDepth; ++d)
            tensor.data[n(b * stride + h * kDepth + s * kHeads * kDepth + d)] =
                compact[n(((b * kHeads + h) * rows + s) * kDepth + d)];
    tensor.tensor.data = tensor.data.data();
    tensor.tensor.strides = strides;
  }
  Floats tensor;
  int64_t strides[4];
};

struct Described {
  // The first stride of `of` is H * D times the size of this symbol.
  explicit Described(const char* of = nullptr, const char* symbol = nullptr)
      : symbols{symbol, nullptr, nullptr, nullptr} {
    for (lathe_tensor_desc& d : inputs) {
      if (of == nullptr) continue;
      d.strides = std::string(d.name) == of || std::string(of) == "all" ? strides : nullptr;
      d.stride_symbols = d.strides != nullptr ? symbols : nullptr;
    }
  }
  Described(const Described&) = delete;
  Owned<lathe_graph> graph(lathe_context* ctx, lathe_error* e) const {
    lathe_graph* out = nullptr;
    lathe_graph_single(ctx, "attention", inputs, 3, nullptr, 0, &out, e);
    return Owned<lathe_graph>(out);
  }
  std::vector<lathe_dim> q = {range("B", 1, 8), fixed(kHeads), range("S", 1, 64), fixed(kDepth)};
  std::vector<lathe_dim> k = {range("B", 1, 8), fixed(kHeads), range("L", 1, 64), fixed(kDepth)};
  lathe_tensor_desc inputs[3] = {desc("q", q), desc("k", k), desc("v", k)};
  int64_t strides[4] = {kHeads * kDepth, kDepth, kHeads* kDepth, 1};
  const char* symbols[4];
};

std::vector<float> attend(const char* isa, const Described& d, Heads& q, Heads& k, Heads& v, int threads) {
  const auto ctx = make_context(isa, threads);
  lathe_error e{};
  const auto graph = d.graph(ctx.get(), &e);
  EXPECT_NE(graph, nullptr) << e.message;
  if (graph == nullptr) return {};
  const auto kernel = resolve(ctx.get(), graph.get(), nullptr, threads);
  if (kernel == nullptr) return {};
  Floats y(q.tensor.shape, NAN);
  const lathe_arg args[] = {q.tensor.arg(), k.tensor.arg(), v.tensor.arg(), y.arg()};
  EXPECT_EQ(execute(kernel.get(), args, &e, threads), LATHE_STATUS_OK) << e.message;
  return y.data;
}

void expect_close(const std::vector<float>& have, const std::vector<float>& want) {
  ASSERT_EQ(have.size(), want.size());
  for (size_t i = 0; i < have.size(); ++i) ASSERT_NEAR(have[i], want[i], 1e-4) << i;
}

TEST(CapiStrides, HeadsWithinRowsGiveWhatCompactOnesGive) {
  for (const char* isa : {"portable", "avx2", "avx512"}) {
    for (const int64_t batch : {1, 2, 5}) {
      for (const int64_t rows : {1, 2, 17, 64}) {
        SCOPED_TRACE(fmt::format("{} B={} S={}", isa, batch, rows));
        const int threads = rows > 2 ? 2 : 1;
        std::vector<float> results[2];
        for (const bool within : {false, true}) {
          const Described q(within ? "q" : nullptr, "S");
          Described d;
          for (int i = 0; i < 3 && within; ++i) {
            static const char* const kOfKeys[4] = {"L", nullptr, nullptr, nullptr};
            d.inputs[i].strides = d.strides;
            d.inputs[i].stride_symbols = i == 0 ? q.symbols : kOfKeys;
          }
          const int64_t row = kHeads * kDepth;
          Heads a(batch, rows, within, row * rows, 1), k(batch, 33, within, row * 33, 2),
              v(batch, 33, within, row * 33, 3);
          results[within ? 1 : 0] = attend(isa, d, a, k, v, threads);
        }
        expect_close(results[1], results[0]);
      }
    }
  }
}

TEST(CapiStrides, MayDependOnASizeOfALaterArgument) {
  const int64_t row = kHeads * kDepth;
  Heads compact(3, 5, false, 0, 1), within(3, 5, true, row * 33, 1), k(3, 33, false, 0, 2), v(3, 33, false, 0, 3);
  expect_close(attend("avx2", Described("q", "L"), within, k, v, 1), attend("avx2", Described(), compact, k, v, 1));
}

TEST(CapiStrides, AnotherStrideIsRefusedByName) {
  const auto ctx = make_context("portable");
  const Described d("q", "S");
  lathe_error e{};
  const auto graph = d.graph(ctx.get(), &e);
  ASSERT_NE(graph, nullptr) << e.message;
  const auto kernel = resolve(ctx.get(), graph.get());
  const int64_t row = kHeads * kDepth;
  Heads q(3, 5, true, row * 6, 1), k(3, 33, false, 0, 2), v(3, 33, false, 0, 3);
  Floats y(q.tensor.shape, NAN);
  const lathe_arg args[] = {q.tensor.arg(), k.tensor.arg(), v.tensor.arg(), y.arg()};
  EXPECT_EQ(lathe_execute(kernel.get(), args, 4, nullptr, &e), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "q.strides[0]");
  EXPECT_STREQ(e.message, "q.strides[0]: 384, expected 320");
  EXPECT_TRUE(std::isnan(y.data[0])) << "it was written";
}

TEST(CapiStrides, WhatIsNoSymbolIsRefusedByName) {
  const auto ctx = make_context("portable");
  lathe_error e{};
  EXPECT_EQ(Described("q", "T").graph(ctx.get(), &e), nullptr);
  EXPECT_STREQ(e.arg_name, "q.strides[0]");
  Described alone;
  alone.inputs[1].stride_symbols = alone.symbols;
  EXPECT_EQ(alone.graph(ctx.get(), &e), nullptr);
  EXPECT_STREQ(e.arg_name, "k.stride_symbols");
  EXPECT_EQ(Described("q", "").graph(ctx.get(), &e), nullptr);
  EXPECT_STREQ(e.arg_name, "q.stride_symbols[0]");
}

TEST(CapiStrides, ADescriptionWithoutSymbolsIsReadToItsEnd) {
  const auto ctx = make_context("portable");
  lathe_error e{};
  Described d;
  d.inputs[0].struct_size = offsetof(lathe_tensor_desc, stride_symbols);
  d.inputs[0].stride_symbols = reinterpret_cast<const char* const*>(alignof(const char*));
  lathe_graph* out = nullptr;
  EXPECT_EQ(lathe_graph_single(ctx.get(), "neg", d.inputs, 1, nullptr, 0, &out, &e), LATHE_STATUS_OK) << e.message;
  lathe_graph_destroy(out);
}

}  // namespace
}  // namespace lathe::test
