// Attention through the C ABI, on every level and with two threads, against plain loops in double: blocks of queries
// and single ones, keys that queries see, masks; what does not fit is refused by name.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/common/c_client.h"

namespace lathe::test {
namespace {

constexpr const char* kLevels[] = {"portable", "avx2", "avx512"};
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Call {
  int64_t heads = 4, kept = 2, queries = 1, keys = 1, depth = 16, columns = 16;
  bool causal = false;
  int64_t window = 0;
  double cap = 0;
  bool masked = false, sinks = false, symbols = false;
  int32_t held = -1;  // keys that are there; -1: all, and the operator takes no lengths
};

lathe_attr attr(const char* name, uint32_t type) {
  lathe_attr a{};
  a.name = name;
  a.type = type;
  return a;
}

struct Operands {
  explicit Operands(const Call& c)
      : q({1, c.heads, c.queries, c.depth}),
        k({1, c.kept, c.keys, c.depth}),
        v({1, c.kept, c.keys, c.columns}),
        mask({c.queries, c.keys}),
        sinks({c.heads}) {
    fill(q, 1);
    fill(k, 2);
    fill(v, 3);
    fill(mask, 4);
    fill(sinks, 5);
  }
  static void fill(Floats& f, uint32_t seed) {
    for (float& x : f.data) {
      seed = seed * 1664525u + 1013904223u;
      x = static_cast<float>(static_cast<int32_t>(seed >> 8) % 1000) * 2e-3f;
    }
  }
  Floats q, k, v, mask, sinks;
};

std::vector<double> reference(const Call& c, const Operands& in) {
  std::vector<double> out;
  for (int64_t h = 0; h < c.heads; ++h) {
    const int64_t kept = h / (c.heads / c.kept);
    for (int64_t i = 0; i < c.queries; ++i) {
      const int64_t held = c.held < 0 ? c.keys : c.held, end = c.causal ? i + held - c.queries + 1 : held;
      const int64_t begin = c.window > 0 ? std::max<int64_t>(0, end - c.window) : 0;
      std::vector<double> weights;
      double most = -kInf, sum = 0;
      for (int64_t j = begin; j < end; ++j) {
        double s = 0;
        for (int64_t d = 0; d < c.depth; ++d)
          s += static_cast<double>(in.q.data[static_cast<size_t>((h * c.queries + i) * c.depth + d)]) *
               in.k.data[static_cast<size_t>((kept * c.keys + j) * c.depth + d)];
        s /= std::sqrt(static_cast<double>(c.depth));
        if (c.cap > 0) s = c.cap * std::tanh(s / c.cap);
        if (c.masked) s += in.mask.data[static_cast<size_t>(i * c.keys + j)];
        weights.push_back(s);
        most = std::max(most, s);
      }
      const double sink = c.sinks ? in.sinks.data[static_cast<size_t>(h)] : -INFINITY;
      most = std::max(most, sink);
      for (double& w : weights) sum += w = std::isinf(most) ? 0 : std::exp(w - most);
      if (!std::isinf(sink)) sum += std::exp(sink - most);
      for (int64_t n = 0; n < c.columns; ++n) {
        double o = 0;
        for (size_t j = 0; j < weights.size(); ++j) {
          const size_t row = static_cast<size_t>(kept * c.keys + begin) + j;
          o += weights[j] * in.v.data[row * static_cast<size_t>(c.columns) + static_cast<size_t>(n)];
        }
        out.push_back(sum == 0 ? 0 : o / sum);
      }
    }
  }
  return out;
}

// y, or nothing where the call is refused, whose message `refusal` takes.
std::vector<float> run(const char* level, int threads, const Call& c, const Operands& in,
                       std::string* refusal = nullptr) {
  const bool lengths = c.held >= 0 || refusal != nullptr;
  const auto ctx = make_context(level, threads);
  const lathe_dim queries = c.symbols ? range("S", 1, 256) : fixed(c.queries);
  const lathe_dim keys = !c.symbols ? fixed(c.keys) : c.queries == c.keys ? queries : range("T", 1, 256);
  const std::vector<lathe_dim> q = {fixed(1), fixed(c.heads), queries, fixed(c.depth)},
                               k = {fixed(1), fixed(c.kept), keys, fixed(c.depth)},
                               v = {fixed(1), fixed(c.kept), keys, fixed(c.columns)}, mask = {queries, keys};
  const std::vector<lathe_dim> one = {fixed(1)};
  std::vector<lathe_tensor_desc> inputs = {desc("q", q), desc("k", k), desc("v", v)};
  if (lengths) inputs.push_back(desc("lengths", one, 0, LATHE_DTYPE_I32));
  if (c.masked) inputs.push_back(desc("mask", mask));
  const std::vector<lathe_dim> heads = {fixed(c.heads)};
  if (c.sinks) inputs.push_back(desc("sinks", heads));
  std::vector<lathe_attr> attrs = {attr("causal", LATHE_ATTR_BOOL), attr("sinks", LATHE_ATTR_BOOL)};
  attrs[0].i = c.causal;
  attrs[1].i = c.sinks;
  if (c.window > 0) {
    attrs.push_back(attr("window", LATHE_ATTR_INT));
    attrs.back().i = c.window;
  }
  if (c.cap > 0) {
    attrs.push_back(attr("soft_cap", LATHE_ATTR_FLOAT));
    attrs.back().f = c.cap;
  }
  lathe_graph* made = nullptr;
  lathe_error e;
  EXPECT_EQ(lathe_graph_single(ctx.get(), lengths ? "cached_attention" : "attention", inputs.data(), inputs.size(),
                               attrs.data(), attrs.size(), &made, &e),
            LATHE_STATUS_OK)
      << e.message;
  const Owned<lathe_graph> graph(made);
  const Owned<lathe_kernel> kernel = resolve(ctx.get(), graph.get(), nullptr, threads);
  if (kernel == nullptr) return {};
  Floats y({1, c.heads, c.queries, c.columns}, NAN);
  std::vector<lathe_arg> args = {in.q.arg(), in.k.arg(), in.v.arg()};
  int32_t held = c.held;
  int64_t held_shape = 1;
  const lathe_tensor held_tensor = {&held, {1, 0}, 1, {0, 32, 1}, &held_shape, nullptr, 0};
  if (lengths) args.push_back({&held_tensor, sizeof held, 0, 0, 0});
  if (c.masked) args.push_back(in.mask.arg());
  if (c.sinks) args.push_back(in.sinks.arg());
  args.push_back(y.arg());
  const lathe_status status = execute(kernel.get(), args, &e, threads);
  if (refusal != nullptr && status != LATHE_STATUS_OK) {
    EXPECT_TRUE(std::all_of(y.data.begin(), y.data.end(), [](float x) { return std::isnan(x); }));
    *refusal = e.message;
    return {};
  }
  EXPECT_EQ(status, LATHE_STATUS_OK) << e.message;
  return y.data;
}

void compare(const Call& c, const Operands& in, int threads = 1) {
  const std::vector<double> want = reference(c, in);
  for (const char* level : kLevels) {
    SCOPED_TRACE(fmt::format("{} queries, {} keys, depth {}, window {}, causal {}, symbols {}, {}", c.queries, c.keys,
                             c.depth, c.window, c.causal, c.symbols, level));
    const std::vector<float> got = run(level, threads, c, in);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5) << i;
  }
}

TEST(CapiAttention, AroundEveryTile) {
  for (const bool causal : {false, true}) {
    for (const bool symbols : {false, true}) {
      for (const int64_t n : {1, 3, 4, 7, 9, 31, 33, 65}) {
        Call c{.queries = n, .keys = n, .causal = causal, .symbols = symbols};
        compare(c, Operands(c));
      }
    }
  }
}

TEST(CapiAttention, MoreKeysMoreQueriesAndWindows) {
  for (const bool symbols : {false, true}) {
    for (const int64_t window : {0, 1, 5, 40}) {
      for (const auto& [queries, keys] : {std::pair{10, 75}, {40, 41}, {50, 20}, {2, 60}}) {
        Call c{.kept = 1, .queries = queries, .keys = keys, .depth = 17, .columns = 9, .causal = true};
        c.window = window;
        c.symbols = symbols;
        compare(c, Operands(c));
      }
    }
  }
}

TEST(CapiAttention, MasksCapsAndThreads) {
  for (const int threads : {1, 2}) {
    Call c{.queries = 37, .keys = 50, .causal = true, .cap = 1.5, .masked = true};
    Operands in(c);
    for (int64_t j = 0; j < c.keys; ++j) in.mask.data[static_cast<size_t>(11 * c.keys + j)] = -kInf;
    for (int64_t j = 0; j < c.keys; j += 3) in.mask.data[static_cast<size_t>(20 * c.keys + j)] = -kInf;
    compare(c, in, threads);
  }
}

// Sinks take weight from the keys: large ones, small ones, none at all, and one above all scores.
TEST(CapiAttention, Sinks) {
  for (const bool symbols : {false, true}) {
    for (const auto& [queries, keys] : {std::pair{1, 1}, {1, 60}, {3, 17}, {4, 4}, {33, 40}, {20, 11}}) {
      for (const int32_t held : {-1, keys - 1}) {
        Call c{.queries = queries, .keys = keys, .causal = true, .sinks = true, .symbols = symbols, .held = held};
        c.window = held < 0 && queries > 3 ? 9 : 0;
        c.masked = symbols;
        Operands in(c);
        in.sinks.data = {0, -kInf, 30, -50};
        compare(c, in);
      }
    }
  }
}

// A query that sees no key gives 0; values of later keys do not reach queries a tile away.
TEST(CapiAttention, WhatAQueryDoesNotSee) {
  Call c{.queries = 64, .keys = 64, .causal = true};
  Operands in(c);
  const std::vector<double> want = reference(c, in);
  for (int64_t h = 0; h < c.kept; ++h) {
    for (int64_t n = 0; n < c.columns; ++n) in.v.data[static_cast<size_t>((h * c.keys + 60) * c.columns + n)] = NAN;
  }
  for (const char* level : kLevels) {
    const std::vector<float> got = run(level, 1, c, in);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const int64_t query = static_cast<int64_t>(i) / c.columns % c.queries;
      if (query < 60 - 31) {
        ASSERT_NEAR(got[i], want[i], 2e-5) << i << " at " << level;
      } else if (query >= 60) {
        ASSERT_TRUE(std::isnan(got[i])) << i << " at " << level;
      }
    }
  }
}

// Any number of queries of no keys at all.
TEST(CapiAttention, WithoutKeys) {
  const std::vector<lathe_dim> q = {fixed(2), range("S", 0, 200), fixed(4)}, k = {fixed(1), fixed(0), fixed(4)};
  const lathe_tensor_desc inputs[] = {desc("q", q), desc("k", k), desc("v", k)};
  std::vector<lathe_attr> attrs = {attr("causal", LATHE_ATTR_BOOL), attr("window", LATHE_ATTR_INT)};
  attrs[0].i = 1;
  attrs[1].i = 3;
  for (const char* level : kLevels) {
    SCOPED_TRACE(level);
    const auto ctx = make_context(level);
    for (const size_t count : {size_t{1}, size_t{2}}) {
      lathe_graph* made = nullptr;
      lathe_error e;
      ASSERT_EQ(lathe_graph_single(ctx.get(), "attention", inputs, 3, attrs.data(), count, &made, &e), LATHE_STATUS_OK);
      const Owned<lathe_kernel> kernel = resolve(ctx.get(), Owned<lathe_graph>(made).get());
      Floats rows({2, 7, 4}, 1), none({1, 0, 4}), y({2, 7, 4}, NAN);
      const std::vector<lathe_arg> args = {rows.arg(), none.arg(), none.arg(), y.arg()};
      ASSERT_EQ(execute(kernel.get(), args, &e), LATHE_STATUS_OK) << e.message;
      EXPECT_EQ(y.data, std::vector<float>(y.data.size(), 0));
    }
  }
}

// Caches with room for more keys: what lies beyond a length is not read, and lengths are checked before anything else.
TEST(CapiAttention, Lengths) {
  for (const bool symbols : {false, true}) {
    for (const auto& [queries, held] : {std::pair{1, 0}, {1, 1}, {1, 37}, {1, 60}, {2, 19}, {9, 33}, {33, 60}}) {
      for (const int64_t kept : {4, 2, 1}) {
        Call c{.kept = kept, .queries = queries, .keys = 60, .causal = true, .symbols = symbols, .held = held};
        Operands in(c);
        for (int64_t row = 0; row < kept * c.keys; ++row) {
          if (row % c.keys < held) continue;
          for (int64_t i = 0; i < c.columns; ++i) in.k.data[static_cast<size_t>(row * c.columns + i)] = NAN;
          for (int64_t i = 0; i < c.columns; ++i) in.v.data[static_cast<size_t>(row * c.columns + i)] = NAN;
        }
        compare(c, in);
      }
    }
  }
  for (const int32_t held : {-1, 61}) {
    Call c{.keys = 60, .held = held};
    std::string refusal;
    run("avx2", 1, c, Operands(c), &refusal);
    EXPECT_EQ(refusal, fmt::format("lengths[0]: {}, expected 0..60", held));
  }
}

TEST(CapiAttention, WhatDoesNotFitIsRefusedByName) {
  const auto ctx = make_context();
  const auto refusal = [&](int64_t heads, int64_t kept, int64_t depth, int64_t window, double cap = 1) {
    const std::vector<lathe_dim> q = {fixed(heads), fixed(4), fixed(8)}, k = {fixed(kept), fixed(6), fixed(depth)},
                                 v = {fixed(kept), fixed(6), fixed(8)};
    const lathe_tensor_desc inputs[] = {desc("q", q), desc("k", k), desc("v", v)};
    lathe_attr a[] = {attr("window", LATHE_ATTR_INT), attr("soft_cap", LATHE_ATTR_FLOAT)};
    a[0].i = window;
    a[1].f = cap;
    lathe_graph* made = nullptr;
    lathe_error e{};
    const lathe_status status = lathe_graph_single(ctx.get(), "attention", inputs, 3, a, 2, &made, &e);
    lathe_graph_destroy(made);
    return status == LATHE_STATUS_OK ? std::string() : std::string(e.arg_name) + ": " + e.message;
  };
  EXPECT_EQ(refusal(4, 2, 8, 1), "");
  EXPECT_NE(refusal(4, 3, 8, 1).find("k.shape[0]: 3, expected a divisor of 4"), std::string::npos);
  EXPECT_NE(refusal(4, 2, 7, 1).find("k.shape[2]: 7, expected 8"), std::string::npos);
  for (const int64_t window : {0, -1})
    EXPECT_NE(refusal(4, 2, 8, window).find(fmt::format("window {}, expected at least 1", window)), std::string::npos);
  for (const double cap : {0.0, -2.0})
    EXPECT_NE(refusal(4, 2, 8, 1, cap).find(fmt::format("soft_cap {}, expected a number above 0", cap)),
              std::string::npos);
}

}  // namespace
}  // namespace lathe::test
