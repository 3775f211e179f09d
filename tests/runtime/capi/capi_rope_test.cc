// rope at given positions through the C ABI, on every level: the rows of cos and sin that tokens take, the numbers
// beyond the pairs, and positions that are no rows refused before anything is written.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/common/c_client.h"

namespace lathe::test {
namespace {

using testing::HasSubstr;

constexpr int64_t kBatch = 2, kTokens = 5, kRows = 9;

// x[2, T, H, D], cos[9, R/2], sin[9, R/2], positions -> y. Whole numbers: results are exact.
struct Rope {
  Rope(lathe_context* ctx, bool interleaved, bool own, int64_t heads, int64_t d, int64_t half)
      : heads(heads),
        d(d),
        half(half),
        own(own),
        interleaved(interleaved),
        x({kBatch, kTokens, heads, d}),
        co({kRows, half}),
        si({kRows, half}),
        y({kBatch, kTokens, heads, d}, 7) {
    const lathe_dim t = range("T", 0, 64);
    const std::vector<lathe_dim> xs = {fixed(kBatch), t, fixed(heads), fixed(d)},
                                 table = {range("P", 1, 99), fixed(half)},
                                 tokens = own ? std::vector{fixed(kBatch), t} : std::vector{t};
    const lathe_tensor_desc inputs[] = {desc("x", xs), desc("cos", table), desc("sin", table),
                                        desc("positions", tokens, 0, LATHE_DTYPE_I64)};
    const lathe_attr attr = {"interleaved", LATHE_ATTR_BOOL, 0, interleaved, 0, nullptr, nullptr, 0};
    lathe_graph* graph = nullptr;
    lathe_error e;
    EXPECT_EQ(lathe_graph_single(ctx, "rope", inputs, 4, &attr, 1, &graph, &e), LATHE_STATUS_OK) << e.message;
    lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
    kernel = resolve(ctx, Owned<lathe_graph>(graph).get(), &info);
    tier = info.tier;
    x.numbers(1);
    co.numbers(2);
    si.numbers(5);
    for (int64_t i = 0; i < (own ? kBatch * kTokens : kTokens); ++i) positions.push_back(i * 5 % kRows);
  }

  lathe_status run(lathe_error* e, int threads = 1) {
    std::vector<int64_t> dims = own ? std::vector{kBatch, kTokens} : std::vector{kTokens};
    lathe_tensor at = {positions.data(), {1, 0}, static_cast<int32_t>(dims.size()), {0, 64, 1}, dims.data(),
                       nullptr,          0};
    const lathe_arg args[] = {x.arg(), co.arg(), si.arg(), {&at, positions.size() * sizeof(int64_t), 0, 0, 0}, y.arg()};
    lathe_exec exec = LATHE_EXEC_INIT;
    exec.threads = threads;
    return lathe_execute(kernel.get(), args, 5, &exec, e);
  }

  std::vector<float> expected() const {
    std::vector<float> out = x.data;
    for (int64_t row = 0; row < kBatch * kTokens * heads; ++row) {
      const int64_t token = row / heads, p = positions[static_cast<size_t>(own ? token : token % kTokens)];
      for (int64_t i = 0; i < half; ++i) {
        const auto a = static_cast<size_t>(row * d + (interleaved ? 2 * i : i));
        const size_t b = a + static_cast<size_t>(interleaved ? 1 : half), angle = static_cast<size_t>(p * half + i);
        out[a] = x.data[a] * co.data[angle] - x.data[b] * si.data[angle];
        out[b] = x.data[b] * co.data[angle] + x.data[a] * si.data[angle];
      }
    }
    return out;
  }

  int64_t heads, d, half;
  bool own, interleaved;
  int32_t tier = 0;
  Floats x, co, si, y;
  std::vector<int64_t> positions;
  Owned<lathe_kernel> kernel;
};

TEST(Rope, TurnsTokensByTheirPositions) {
  for (const char* level : {"portable", "avx2", "avx512"}) {
    const auto ctx = make_context(level, 2);
    for (const bool interleaved : {false, true}) {
      for (const bool own : {false, true}) {
        for (const auto& [d, half] : {std::pair{64, 32}, {64, 16}, {96, 20}, {6, 1}, {128, 64}}) {
          SCOPED_TRACE(fmt::format("{} interleaved {} own {} D {} R/2 {}", level, interleaved, own, d, half));
          Rope rope(ctx.get(), interleaved, own, 3, d, half);
          EXPECT_EQ(rope.tier, std::string(level) == "portable" ? 0 : 1);
          lathe_error e;
          ASSERT_EQ(rope.run(&e, own ? 2 : 1), LATHE_STATUS_OK) << e.message;
          ASSERT_EQ(rope.y.data, rope.expected());
        }
      }
    }
  }
}

TEST(Rope, RefusesPositionsThatAreNoRows) {
  const auto ctx = make_context();
  for (const bool own : {false, true}) {
    Rope rope(ctx.get(), false, own, 2, 8, 3);
    for (const int64_t bad : {int64_t{-1}, kRows, INT64_MIN, INT64_MAX}) {
      rope.positions[3] = bad;
      lathe_error e;
      EXPECT_EQ(rope.run(&e), LATHE_STATUS_INVALID);
      EXPECT_THAT(e.message, HasSubstr(fmt::format("positions[{}3]: {}, expected 0..8", own ? "0, " : "", bad)));
      EXPECT_EQ(e.arg_index, 3);
      EXPECT_EQ(rope.y.data, std::vector<float>(rope.y.data.size(), 7));
    }
    rope.positions[3] = 0;
    lathe_error e;
    EXPECT_EQ(rope.run(&e), LATHE_STATUS_OK) << e.message;
    EXPECT_EQ(rope.y.data, rope.expected());
  }
}

}  // namespace
}  // namespace lathe::test
