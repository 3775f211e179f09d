// Attention of queries of several sequences one after another through the C ABI, on every level and with two threads,
// against plain loops in double: prompts beside sequences that decode, sequences without queries, rows of none; offsets
// that fall or leave their range are refused before anything is written.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/common/c_client.h"

namespace lathe::test {
namespace {

constexpr const char* kLevels[] = {"portable", "avx2", "avx512"};
constexpr int64_t kHeads = 4, kKept = 2, kDepth = 24, kColumns = 16, kPage = 16, kPages = 12, kTable = 3, kBatch = 4;

template <class T>
struct Integers {
  explicit Integers(std::vector<int64_t> dims, std::vector<T> values, std::vector<int64_t> steps = {})
      : shape(std::move(dims)), strides(std::move(steps)), data(std::move(values)) {
    tensor = {data.data(), {1, 0}, static_cast<int32_t>(shape.size()), {0, sizeof(T) * 8, 1}, shape.data(), nullptr, 0};
    if (!strides.empty()) tensor.strides = strides.data();
  }
  Integers(const Integers&) = delete;
  lathe_arg arg() const { return {&tensor, data.size() * sizeof(T), 0, 0, 0}; }
  std::vector<int64_t> shape, strides;
  std::vector<T> data;
  lathe_tensor tensor;
};

struct Call {
  std::vector<int32_t> offsets = {0, 1, 2, 3, 4}, lengths = {48, 17, 3, 1};
  int64_t rows = 4, window = 0;
  bool causal = true, symbols = false;
  int mask = 0;  // its dimensions: 3: [1, rows, keys], 4: [heads, rows, kTable, page]
};

struct Operands {
  explicit Operands(const Call& c)
      : q({c.rows, kHeads, kDepth}),
        k({kPages, kKept, kPage, kDepth}),
        v({kPages, kKept, kPage, kColumns}),
        lengths({kBatch}, c.lengths),
        pages({kBatch, kTable}, {7, 2, 10, 0, 3, 11, 9, 4, 1, 5, 6, 8}),
        mask(c.mask == 4 ? std::vector{kHeads, c.rows, kTable, kPage}
                         : std::vector{int64_t{1}, c.rows, kTable * kPage}),
        offsets(c.symbols ? std::vector<int64_t>{kBatch, 2} : std::vector<int64_t>{kBatch + 1}, c.offsets,
                c.symbols ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{}) {
    uint32_t seed = 1;
    for (Floats* f : {&q, &k, &v, &mask}) {
      for (float& x : f->data) {
        seed = seed * 1664525u + 1013904223u;
        x = static_cast<float>(static_cast<int32_t>(seed >> 8) % 1000) * 2e-3f;
      }
    }
  }
  Floats q, k, v;
  Integers<int32_t> lengths, pages;
  Floats mask;
  Integers<int32_t> offsets;
};

std::vector<double> reference(const Call& c, const Operands& in) {
  std::vector<double> out(static_cast<size_t>(c.rows * kHeads * kColumns));
  for (size_t b = 0; b < kBatch; ++b) {
    const int64_t first = c.offsets[b], queries = c.offsets[b + 1] - first, held = c.lengths[b];
    for (int64_t i = 0; i < queries; ++i) {
      for (int64_t h = 0; h < kHeads; ++h) {
        const int64_t end = c.causal ? i + held - queries + 1 : held, row = (first + i) * kHeads + h;
        const int64_t begin = c.window > 0 ? std::max<int64_t>(0, end - c.window) : 0;
        std::vector<double> weights;
        double most = -std::numeric_limits<double>::infinity(), sum = 0;
        const auto kept = [&](int64_t j) {
          const int64_t page = in.pages.data[b * kTable + static_cast<size_t>(j / kPage)];
          return (page * kKept + h / (kHeads / kKept)) * kPage + j % kPage;
        };
        for (int64_t j = begin; j < end; ++j) {
          double s = 0;
          for (int64_t d = 0; d < kDepth; ++d)
            s += static_cast<double>(in.q.data[static_cast<size_t>(row * kDepth + d)]) *
                 in.k.data[static_cast<size_t>(kept(j) * kDepth + d)];
          s /= std::sqrt(static_cast<double>(kDepth));
          const int64_t mask_row = c.mask == 4 ? h * c.rows + first + i : first + i;
          if (c.mask != 0) s += in.mask.data[static_cast<size_t>(mask_row * kTable * kPage + j)];
          weights.push_back(s);
          most = std::max(most, weights.back());
        }
        for (double& w : weights) sum += w = std::exp(w - most);
        for (int64_t n = 0; n < kColumns; ++n) {
          double o = 0;
          for (int64_t j = begin; j < end; ++j)
            o += weights[static_cast<size_t>(j - begin)] * in.v.data[static_cast<size_t>(kept(j) * kColumns + n)];
          out[static_cast<size_t>(row * kColumns + n)] = sum == 0 ? 0 : o / sum;
        }
      }
    }
  }
  return out;
}

// y, or nothing where the call is refused, whose message `refusal` takes.
std::vector<float> run(const char* level, int threads, const Call& c, const Operands& in,
                       std::string* refusal = nullptr) {
  const auto ctx = make_context(level, threads);
  const lathe_dim batch = c.symbols ? range("B", 1, 16) : fixed(kBatch);
  const std::vector<lathe_dim> q = {c.symbols ? range("R", 0, 256) : fixed(c.rows), fixed(kHeads), fixed(kDepth)},
                               k = {fixed(kPages), fixed(kKept), fixed(kPage), fixed(kDepth)},
                               v = {fixed(kPages), fixed(kKept), fixed(kPage), fixed(kColumns)}, lengths = {batch},
                               pages = {batch, fixed(kTable)}, pairs = {batch, fixed(2)}, ends = {fixed(kBatch + 1)};
  std::vector<lathe_tensor_desc> inputs = {desc("q", q),
                                           desc("k", k),
                                           desc("v", v),
                                           desc("lengths", lengths, 0, LATHE_DTYPE_I32),
                                           desc("pages", pages, 0, LATHE_DTYPE_I32),
                                           desc("offsets", c.symbols ? pairs : ends, 0, LATHE_DTYPE_I32)};
  if (c.symbols) inputs.back().strides = in.offsets.strides.data();
  std::vector<lathe_dim> mask = {fixed(1), q[0], fixed(kTable * kPage)};
  if (c.mask == 4) mask = {q[1], q[0], fixed(kTable), fixed(kPage)};
  if (c.mask != 0) inputs.push_back(desc("mask", mask));
  std::vector<lathe_attr> attrs(1);
  attrs[0].name = "causal";
  attrs[0].type = LATHE_ATTR_BOOL;
  attrs[0].i = c.causal;
  if (c.window > 0) {
    attrs.emplace_back();
    attrs.back().name = "window";
    attrs.back().type = LATHE_ATTR_INT;
    attrs.back().i = c.window;
  }
  lathe_graph* made = nullptr;
  lathe_error e;
  EXPECT_EQ(lathe_graph_single(ctx.get(), "ragged_attention", inputs.data(), inputs.size(), attrs.data(), attrs.size(),
                               &made, &e),
            LATHE_STATUS_OK)
      << e.message;
  const Owned<lathe_graph> graph(made);
  if (graph == nullptr) return {};
  const Owned<lathe_kernel> kernel = resolve(ctx.get(), graph.get(), nullptr, threads);
  if (kernel == nullptr) return {};
  Floats y({c.rows, kHeads, kColumns}, NAN);
  std::vector<lathe_arg> args = {in.q.arg(),       in.k.arg(),     in.v.arg(),
                                 in.lengths.arg(), in.pages.arg(), in.offsets.arg()};
  if (c.mask != 0) args.push_back(in.mask.arg());
  args.push_back(y.arg());
  const lathe_status status = execute(kernel.get(), args, &e, threads);
  if (refusal != nullptr) {
    EXPECT_EQ(status, LATHE_STATUS_INVALID);
    EXPECT_TRUE(std::all_of(y.data.begin(), y.data.end(), [](float x) { return std::isnan(x); }));
    *refusal = e.message;
    return {};
  }
  EXPECT_EQ(status, LATHE_STATUS_OK) << e.message;
  return y.data;
}

TEST(CapiRagged, PromptsBesideSequencesThatDecode) {
  const std::vector<std::vector<int32_t>> offsets = {
      {0, 1, 2, 3, 4}, {0, 17, 18, 18, 19}, {0, 0, 0, 0, 0}, {0, 33, 36, 41, 42}, {2, 3, 11, 12, 13}};
  for (const std::vector<int32_t>& o : offsets) {
    for (const bool symbols : {false, true}) {
      for (const int64_t window : {0, 7}) {
        for (const int threads : {1, 2}) {
          Call c{.offsets = o, .window = window, .symbols = symbols};
          c.rows = o.back() + (symbols ? 2 : 0);  // two of no sequence
          c.causal = window > 0 || threads == 1;
          const Operands in(c);
          const std::vector<double> want = reference(c, in);
          for (const char* level : kLevels) {
            SCOPED_TRACE(fmt::format("offsets {}, symbols {}, window {}, {} threads, {}", fmt::join(o, " "), symbols,
                                     window, threads, level));
            const std::vector<float> got = run(level, threads, c, in);
            ASSERT_EQ(got.size(), want.size());
            for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5) << i;
          }
        }
      }
    }
  }
}

TEST(CapiRagged, Masks) {
  for (const std::vector<int32_t>& o : std::vector<std::vector<int32_t>>{{0, 1, 2, 3, 4}, {1, 18, 19, 19, 22}}) {
    for (const int mask : {3, 4}) {
      for (const int64_t window : {0, 7}) {
        Call c{.offsets = o, .window = window, .symbols = mask == 4};
        c.rows = o.back() + 1;
        c.mask = mask;
        const Operands in(c);
        const std::vector<double> want = reference(c, in);
        for (const char* level : kLevels) {
          SCOPED_TRACE(fmt::format("offsets {}, window {}, a mask of {} dimensions, {}", fmt::join(o, " "), window,
                                   mask, level));
          const std::vector<float> got = run(level, window == 0 ? 2 : 0, c, in);
          ASSERT_EQ(got.size(), want.size());
          for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5) << i;
        }
      }
    }
  }
}

TEST(CapiRagged, OffsetsThatFallOrLeaveTheirRangeAreRefusedBeforeAnyWrite) {
  const auto refusal = [](std::vector<int32_t> offsets, bool symbols) {
    Call c{.offsets = std::move(offsets), .rows = 9, .symbols = symbols};
    std::string out;
    run("avx2", 0, c, Operands(c), &out);
    return out;
  };
  EXPECT_EQ(refusal({0, 4, 2, 5, 9}, false), "offsets[2]: 2, expected 4..9");
  EXPECT_EQ(refusal({0, 4, 2, 5, 9}, true), "offsets[1, 1]: 2, expected 4..9");
  EXPECT_EQ(refusal({0, 4, 5, 6, 10}, false), "offsets[4]: 10, expected 0..9");
  EXPECT_EQ(refusal({-1, 4, 5, 6, 9}, true), "offsets[0, 0]: -1, expected 0..9");
}

}  // namespace
}  // namespace lathe::test
