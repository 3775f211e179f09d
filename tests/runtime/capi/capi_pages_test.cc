// Attention over keys and values in pages through the C ABI, on every level and with two threads, against plain loops
// in double: pages in any order, shared by sequences, in both orders of page and head; what is not in a sequence is
// not read; bad tables and lengths are refused before anything is written.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/common/c_client.h"

namespace lathe::test {
namespace {

constexpr const char* kLevels[] = {"portable", "avx2", "avx512"};

struct Call {
  int64_t heads = 4, kept = 2, queries = 1, page = 16, depth = 32, columns = 32;
  std::vector<int64_t> lengths = {1, 1};
  bool causal = true, rows_first = false, symbols = false, sinks = false;  // rows_first: [pages, page, heads, depth]
  int64_t window = 0;
  int mask = 0;  // its dimensions: 2: [queries, keys], 5: [2, heads, queries, kTable, page]
};
constexpr int64_t kPages = 11, kTable = 4;

template <class T>
struct Integers {
  explicit Integers(std::vector<int64_t> dims, std::vector<T> values)
      : shape(std::move(dims)), data(std::move(values)) {
    tensor = {data.data(), {1, 0}, static_cast<int32_t>(shape.size()), {0, sizeof(T) * 8, 1}, shape.data(), nullptr, 0};
  }
  Integers(const Integers&) = delete;
  lathe_arg arg() const { return {&tensor, data.size() * sizeof(T), 0, 0, 0}; }
  std::vector<int64_t> shape;
  std::vector<T> data;
  lathe_tensor tensor;
};

struct Operands {
  explicit Operands(const Call& c)
      : q({2, c.heads, c.queries, c.depth}),
        k({kPages, c.kept, c.page, c.depth}),
        v({kPages, c.kept, c.page, c.columns}),
        sinks({c.heads}),
        mask(c.mask == 5 ? std::vector{int64_t{2}, c.heads, c.queries, kTable, c.page}
                         : std::vector{c.queries, kTable * c.page}),
        lengths({2}, {static_cast<int32_t>(c.lengths[0]), static_cast<int32_t>(c.lengths[1])}),
        pages({2, kTable}, {7, 2, 10, 0, 3, 2, 9, 4}),
        call(c) {
    uint32_t seed = 1;
    for (Floats* f : {&q, &k, &v, &sinks, &mask}) {
      for (float& x : f->data) {
        seed = seed * 1664525u + 1013904223u;
        x = static_cast<float>(static_cast<int32_t>(seed >> 8) % 1000) * 2e-3f;
      }
    }
    for (size_t at = 0; at < mask.data.size(); at += 5) mask.data[at] = -INFINITY;
    // What no sequence has is NaN.
    std::vector<bool> held(static_cast<size_t>(kPages * c.page), false);
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t j = 0; j < c.lengths[static_cast<size_t>(b)]; ++j) held[static_cast<size_t>(slot(b, j))] = true;
    }
    for (int64_t at = 0; at < kPages * c.page; ++at) {
      if (held[static_cast<size_t>(at)]) continue;
      for (int64_t h = 0; h < c.kept; ++h) {
        for (int64_t d = 0; d < c.depth; ++d) k.data[row(at, h) * static_cast<size_t>(c.depth) + d] = NAN;
        for (int64_t n = 0; n < c.columns; ++n) v.data[row(at, h) * static_cast<size_t>(c.columns) + n] = NAN;
      }
    }
  }
  // Of key j of sequence b: its page and its place there, as one number.
  int64_t slot(int64_t b, int64_t j) const {
    return pages.data[static_cast<size_t>(b * kTable + j / call.page)] * call.page + j % call.page;
  }
  size_t row(int64_t slot, int64_t head) const {
    const int64_t page = slot / call.page, at = slot % call.page;
    return static_cast<size_t>(call.rows_first ? (page * call.page + at) * call.kept + head
                                               : (page * call.kept + head) * call.page + at);
  }
  double masked(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (call.mask == 0) return 0;
    const int64_t row = call.mask == 5 ? (b * call.heads + h) * call.queries + i : i;
    return mask.data[static_cast<size_t>(row * kTable * call.page + j)];
  }
  Floats q, k, v, sinks, mask;
  Integers<int32_t> lengths;
  Integers<int64_t> pages;
  const Call call;
};

std::vector<double> reference(const Call& c, const Operands& in) {
  std::vector<double> out;
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t h = 0; h < c.heads; ++h) {
      for (int64_t i = 0; i < c.queries; ++i) {
        const int64_t held = c.lengths[static_cast<size_t>(b)], end = c.causal ? i + held - c.queries + 1 : held;
        const int64_t begin = c.window > 0 ? std::max<int64_t>(0, end - c.window) : 0, group = c.heads / c.kept;
        const float* query = &in.q.data[static_cast<size_t>(((b * c.heads + h) * c.queries + i) * c.depth)];
        std::vector<double> weights;
        double most = -std::numeric_limits<double>::infinity(), sum = 0;
        for (int64_t j = begin; j < end; ++j) {
          const float* key = &in.k.data[in.row(in.slot(b, j), h / group) * static_cast<size_t>(c.depth)];
          double s = 0;
          for (int64_t d = 0; d < c.depth; ++d) s += static_cast<double>(query[d]) * key[d];
          weights.push_back(s / std::sqrt(static_cast<double>(c.depth)) + in.masked(b, h, i, j));
          most = std::max(most, weights.back());
        }
        const double sink = c.sinks ? in.sinks.data[static_cast<size_t>(h)] : -std::numeric_limits<double>::infinity();
        most = std::max(most, sink);
        for (double& w : weights) sum += w = std::isinf(most) ? 0 : std::exp(w - most);
        if (c.sinks) sum += std::exp(sink - most);
        for (int64_t n = 0; n < c.columns; ++n) {
          double o = 0;
          for (int64_t j = begin; j < end; ++j)
            o += weights[static_cast<size_t>(j - begin)] *
                 in.v.data[in.row(in.slot(b, j), h / group) * static_cast<size_t>(c.columns) + static_cast<size_t>(n)];
          out.push_back(sum == 0 ? 0 : o / sum);
        }
      }
    }
  }
  return out;
}

// y, or nothing where the call is refused, whose message `refusal` takes.
std::vector<float> run(const char* level, int threads, const Call& c, Operands& in, std::string* refusal = nullptr) {
  const auto ctx = make_context(level, threads);
  const lathe_dim pages = c.symbols ? range("P", 1, 64) : fixed(kPages);
  const std::vector<lathe_dim> q = {fixed(2), fixed(c.heads), c.symbols ? range("S", 1, 64) : fixed(c.queries),
                                    fixed(c.depth)},
                               k = {pages, fixed(c.kept), fixed(c.page), fixed(c.depth)},
                               v = {pages, fixed(c.kept), fixed(c.page), fixed(c.columns)}, lengths = {fixed(2)},
                               table = {fixed(2), c.symbols ? range("N", 1, 64) : fixed(kTable)},
                               heads = {fixed(c.heads)};
  std::vector<lathe_dim> mask = {q[2], fixed(kTable * c.page)};
  if (c.mask == 5) mask = {q[0], q[1], q[2], table[1], fixed(c.page)};
  std::vector<lathe_tensor_desc> inputs = {desc("q", q), desc("k", k), desc("v", v),
                                           desc("lengths", lengths, 0, LATHE_DTYPE_I32),
                                           desc("pages", table, 0, LATHE_DTYPE_I64)};
  if (c.mask != 0) inputs.push_back(desc("mask", mask));
  if (c.sinks) inputs.push_back(desc("sinks", heads));
  std::vector<int64_t> strides[2];
  if (c.rows_first) {
    for (const size_t n : {0, 1}) {
      const int64_t width = n == 0 ? c.depth : c.columns;
      strides[n] = {c.page * c.kept * width, width, c.kept * width, 1};
      inputs[n + 1].strides = strides[n].data();
      (n == 0 ? in.k : in.v).tensor.strides = strides[n].data();
    }
  }
  std::vector<lathe_attr> attrs(2);
  attrs[0].name = "causal";
  attrs[1].name = "sinks";
  attrs[0].type = attrs[1].type = LATHE_ATTR_BOOL;
  attrs[0].i = c.causal;
  attrs[1].i = c.sinks;
  if (c.window > 0) {
    attrs.emplace_back();
    attrs.back().name = "window";
    attrs.back().type = LATHE_ATTR_INT;
    attrs.back().i = c.window;
  }
  lathe_graph* made = nullptr;
  lathe_error e;
  EXPECT_EQ(lathe_graph_single(ctx.get(), "paged_attention", inputs.data(), inputs.size(), attrs.data(), attrs.size(),
                               &made, &e),
            LATHE_STATUS_OK)
      << e.message;
  const Owned<lathe_graph> graph(made);
  if (graph == nullptr) return {};
  const Owned<lathe_kernel> kernel = resolve(ctx.get(), graph.get(), nullptr, threads);
  if (kernel == nullptr) return {};
  Floats y({2, c.heads, c.queries, c.columns}, NAN);
  std::vector<lathe_arg> args = {in.q.arg(), in.k.arg(), in.v.arg(), in.lengths.arg(), in.pages.arg()};
  if (c.mask != 0) args.push_back(in.mask.arg());
  if (c.sinks) args.push_back(in.sinks.arg());
  args.push_back(y.arg());
  const lathe_status status = execute(kernel.get(), args, &e, threads);
  if (refusal != nullptr) {
    EXPECT_NE(status, LATHE_STATUS_OK);
    EXPECT_TRUE(std::all_of(y.data.begin(), y.data.end(), [](float x) { return std::isnan(x); }));
    *refusal = e.message;
    return {};
  }
  EXPECT_EQ(status, LATHE_STATUS_OK) << e.message;
  return y.data;
}

void compare(const Call& c, int threads = 1) {
  Operands in(c);
  const std::vector<double> want = reference(c, in);
  for (const char* level : kLevels) {
    SCOPED_TRACE(
        fmt::format("{} queries, {} of {} heads, pages of {}, lengths {} and {}, depth {}, window {}, "
                    "rows first {}, symbols {}, {}",
                    c.queries, c.kept, c.heads, c.page, c.lengths[0], c.lengths[1], c.depth, c.window, c.rows_first,
                    c.symbols, level));
    const std::vector<float> got = run(level, threads, c, in);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5) << i;
  }
}

TEST(CapiPages, LengthsAroundEveryPage) {
  for (const int64_t page : {int64_t{1}, int64_t{2}, int64_t{7}, int64_t{16}, int64_t{33}}) {
    for (const int64_t queries : {1, 3, 5, 17}) {
      for (const int64_t less : {int64_t{0}, int64_t{1}, 2 * page - 1, 2 * page, 3 * page + page / 2}) {
        Call c{.queries = queries, .page = page};
        c.lengths = {kTable * page - less, less};
        c.symbols = less % 2 == 1;
        compare(c);
      }
    }
  }
}

TEST(CapiPages, HeadsOrdersWindowsAndThreads) {
  for (const int64_t kept : {4, 2, 1}) {
    for (const bool rows_first : {false, true}) {
      for (const auto& [queries, window] : {std::pair{1, 0}, {1, 20}, {2, 0}, {9, 0}, {9, 20}}) {
        Call c{.kept = kept, .queries = queries, .depth = 40, .columns = 24, .rows_first = rows_first};
        c.lengths = {64, 39};
        c.window = window;
        c.sinks = rows_first;
        compare(c, rows_first ? 2 : 1);
      }
    }
  }
}

TEST(CapiPages, Masks) {
  for (const int64_t page : {int64_t{1}, int64_t{7}, int64_t{16}}) {
    for (const auto& [queries, window] : {std::pair{1, 0}, {1, 20}, {3, 0}, {9, 0}, {9, 20}}) {
      for (const int mask : {2, 5}) {
        Call c{.queries = queries, .page = page, .symbols = mask == 5, .sinks = page == 7};
        c.lengths = {4 * page, 2 * page + page / 2};
        c.window = window;
        c.mask = mask;
        compare(c, mask == 5 ? 2 : 1);
      }
    }
  }
}

TEST(CapiPages, WhatIsOutOfRangeIsRefusedBeforeAnyWrite) {
  for (const int64_t page : {int64_t{-1}, kPages}) {
    Call c;
    Operands in(c);
    in.pages.data[6] = page;
    std::string refusal;
    run("avx2", 1, c, in, &refusal);
    EXPECT_EQ(refusal, fmt::format("pages[1, 2]: {}, expected 0..{}", page, kPages - 1));
  }
  for (const int32_t length : {-1, static_cast<int32_t>(kTable) * 16 + 1}) {
    Call c;
    Operands in(c);
    in.lengths.data[1] = length;
    std::string refusal;
    run("portable", 1, c, in, &refusal);
    EXPECT_EQ(refusal, fmt::format("lengths[1]: {}, expected 0..{}", length, kTable * 16));
  }
}

}  // namespace
}  // namespace lathe::test
