// Attention over keys and values of bytes through the C ABI, on every level, in one piece and in pages, against plain
// loops in double: all bytes, NaN in the scales of what lies beyond a length.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/common/c_client.h"

namespace lathe::test {
namespace {

constexpr const char* kLevels[] = {"portable", "avx2", "avx512"};
constexpr int64_t kHeads = 4, kDepth = 40, kColumns = 24, kPages = 5;

struct Call {
  int64_t kept = 2, queries = 1, rows = 16, length = 1, window = 0;  // rows: of a page, or of the cache
  bool paged = false;
};

template <class T>
struct Tensor {
  Tensor(std::vector<int64_t> dims, uint8_t code) : shape(std::move(dims)) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    data.resize(static_cast<size_t>(n));
    tensor = {data.data(), {1, 0}, static_cast<int32_t>(shape.size()), {code, sizeof(T) * 8, 1}, shape.data(),
              nullptr,     0};
  }
  Tensor(const Tensor&) = delete;
  lathe_arg arg() const { return {&tensor, data.size() * sizeof(T), 0, 0, 0}; }
  std::vector<int64_t> shape;
  std::vector<T> data;
  lathe_tensor tensor;
};

struct Operands {
  explicit Operands(const Call& c)
      : call(c),
        q({1, kHeads, c.queries, kDepth}),
        k({c.paged ? kPages : 1, c.kept, c.rows, kDepth}, 0),
        v({c.paged ? kPages : 1, c.kept, c.rows, kColumns}, 0),
        lengths({1}, 0),
        pages({1, 3}, 0),
        key_scales({k.shape[0], c.kept, c.rows}),
        value_scales({k.shape[0], c.kept, c.rows}) {
    uint32_t seed = 7;
    const auto next = [&] { return (seed = seed * 1664525u + 1013904223u) >> 8; };
    for (float& x : q.data) x = static_cast<float>(static_cast<int32_t>(next()) % 1000) * 1e-3f;
    for (int8_t& x : k.data) x = static_cast<int8_t>(next());
    for (int8_t& x : v.data) x = static_cast<int8_t>(next());
    lengths.data = {static_cast<int32_t>(c.length)};
    pages.data = {3, 0, 4};
    std::fill(key_scales.data.begin(), key_scales.data.end(), NAN);
    std::fill(value_scales.data.begin(), value_scales.data.end(), NAN);
    for (int64_t h = 0; h < c.kept; ++h) {
      for (int64_t j = 0; j < c.length; ++j) {
        key_scales.data[row(h, j)] = static_cast<float>(next() % 64 + 1) * 2e-4f;
        value_scales.data[row(h, j)] = static_cast<float>(next() % 64 + 1) * 2e-4f;
      }
    }
  }
  size_t row(int64_t head, int64_t j) const {
    const int64_t page = call.paged ? pages.data[static_cast<size_t>(j / call.rows)] : 0;
    return static_cast<size_t>((page * call.kept + head) * call.rows + (call.paged ? j % call.rows : j));
  }
  const Call call;
  Floats q;
  Tensor<int8_t> k, v;
  Tensor<int32_t> lengths, pages;
  Floats key_scales, value_scales;
};

std::vector<double> reference(const Call& c, const Operands& in) {
  std::vector<double> out;
  for (int64_t h = 0; h < kHeads; ++h) {
    for (int64_t i = 0; i < c.queries; ++i) {
      const int64_t kept = h / (kHeads / c.kept), end = i + c.length - c.queries + 1;
      const int64_t begin = c.window > 0 ? std::max<int64_t>(0, end - c.window) : 0;
      std::vector<double> weights;
      double most = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t j = begin; j < end; ++j) {
        double s = 0;
        for (int64_t d = 0; d < kDepth; ++d)
          s += static_cast<double>(in.q.data[static_cast<size_t>((h * c.queries + i) * kDepth + d)]) *
               in.k.data[in.row(kept, j) * kDepth + static_cast<size_t>(d)];
        weights.push_back(s * in.key_scales.data[in.row(kept, j)] / std::sqrt(static_cast<double>(kDepth)));
        most = std::max(most, weights.back());
      }
      for (double& w : weights) sum += w = std::exp(w - most);
      for (int64_t n = 0; n < kColumns; ++n) {
        double o = 0;
        for (int64_t j = begin; j < end; ++j)
          o += weights[static_cast<size_t>(j - begin)] * in.value_scales.data[in.row(kept, j)] *
               in.v.data[in.row(kept, j) * kColumns + static_cast<size_t>(n)];
        out.push_back(sum == 0 ? 0 : o / sum);
      }
    }
  }
  return out;
}

std::vector<float> run(const char* level, const Call& c, Operands& in) {
  const auto ctx = make_context(level, 0);
  const lathe_dim first = fixed(c.paged ? kPages : 1), rows = c.paged ? fixed(c.rows) : range("T", 1, 256);
  const std::vector<lathe_dim> q = {fixed(1), fixed(kHeads), fixed(c.queries), fixed(kDepth)},
                               k = {first, fixed(c.kept), rows, fixed(kDepth)},
                               v = {first, fixed(c.kept), rows, fixed(kColumns)}, one = {fixed(1)},
                               pages = {fixed(1), fixed(3)}, scales = {first, fixed(c.kept), rows};
  std::vector<lathe_tensor_desc> inputs = {desc("q", q), desc("k", k, 0, LATHE_DTYPE_I8),
                                           desc("v", v, 0, LATHE_DTYPE_I8), desc("lengths", one, 0, LATHE_DTYPE_I32)};
  if (c.paged) inputs.push_back(desc("pages", pages, 0, LATHE_DTYPE_I32));
  inputs.push_back(desc("k_scales", scales));
  inputs.push_back(desc("v_scales", scales));
  std::vector<lathe_attr> attrs(2 + (c.window > 0 ? 1 : 0));
  attrs[0].name = "causal";
  attrs[1].name = "scales";
  for (size_t i = 0; i < 2; ++i) attrs[i].type = LATHE_ATTR_BOOL, attrs[i].i = 1;
  if (c.window > 0) attrs[2].name = "window", attrs[2].type = LATHE_ATTR_INT, attrs[2].i = c.window;
  lathe_graph* made = nullptr;
  lathe_error e;
  EXPECT_EQ(lathe_graph_single(ctx.get(), c.paged ? "paged_attention" : "cached_attention", inputs.data(),
                               inputs.size(), attrs.data(), attrs.size(), &made, &e),
            LATHE_STATUS_OK)
      << e.message;
  const Owned<lathe_graph> graph(made);
  if (graph == nullptr) return {};
  const Owned<lathe_kernel> kernel = resolve(ctx.get(), graph.get());
  if (kernel == nullptr) return {};
  Floats y({1, kHeads, c.queries, kColumns}, NAN);
  std::vector<lathe_arg> args = {in.q.arg(), in.k.arg(), in.v.arg(), in.lengths.arg()};
  if (c.paged) args.push_back(in.pages.arg());
  args.insert(args.end(), {in.key_scales.arg(), in.value_scales.arg(), y.arg()});
  EXPECT_EQ(execute(kernel.get(), args, &e), LATHE_STATUS_OK) << e.message;
  return y.data;
}

TEST(CapiKvBytes, InOnePieceAndInPages) {
  for (const bool paged : {false, true}) {
    for (const int64_t kept : {4, 2, 1}) {
      for (const auto& [queries, length, window] :
           {std::tuple{1, 1, 0}, {1, 37, 0}, {1, 48, 0}, {2, 33, 9}, {5, 47, 0}, {19, 40, 0}, {19, 40, 7}}) {
        Call c{.kept = kept, .queries = queries, .rows = paged ? 16 : 48, .length = length, .window = window};
        c.paged = paged;
        Operands in(c);
        const std::vector<double> want = reference(c, in);
        for (const char* level : kLevels) {
          SCOPED_TRACE(fmt::format("{} of {} heads, {} queries, length {}, window {}, paged {}, {}", kept, kHeads,
                                   queries, length, window, paged, level));
          const std::vector<float> got = run(level, c, in);
          ASSERT_EQ(got.size(), want.size());
          for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lathe::test
