// Rows whose terms are added one after another: right, however long they are. And what is wrong with a row still shows:
// a column that its sum lacks or has twice, another maximum.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "runtime/compile/compiler.h"
#include "runtime/compile/leaf_cache.h"
#include "runtime/oracle/oracle.h"
#include "runtime/oracle/oracle_reference.h"

namespace lathe::runtime {
namespace {

constexpr int64_t kColumns[] = {64, 127, 333, 1024, 4096, 16384};

// Rows of powers and their sum, and what is made of both.
std::string powers(const char* name, const char* result) {
  return fmt::format(R"(
kernel {}(x: f32[B, N] in, y: f32[B, N] out) family row where B in 1..64, N in 1..16384
  m: f32[B] heap
  s: f32[B] heap
  for b < B [row]:
    m[b] = -inf
    for n < N [col]:
      m[b] fmax= x[b, n]
    s[b] = 0.0
    for n1 < N [col]:
      s[b] += exp(x[b, n1] - m[b])
    for n2 < N [col]:
      y[b, n2] = {}
)",
                     name, result);
}
const std::string kSoftmax = powers("softmax", "exp(x[b, n2] - m[b]) / s[b]"),
                  kLogSoftmax = powers("log_softmax", "(x[b, n2] - m[b]) - log(s[b])");
const std::string kRmsNorm = R"(
kernel rms_norm(x: f32[B, N] in, g: f32[N] const, y: f32[B, N] out) family row where B in 1..64, N in 1..16384
  s: f32[B] heap
  for b < B [row]:
    s[b] = 0.0
    for n < N [col]:
      s[b] += x[b, n] * x[b, n]
    for n2 < N [col]:
      y[b, n2] = x[b, n2] * rsqrt(s[b] / f32(N) + 0.00001) * g[n2]
)";
const std::string kLayerNorm = R"(
kernel layer_norm(x: f32[B, N] in, g: f32[N] const, y: f32[B, N] out) family row where B in 1..64, N in 1..16384
  a: f32[B] heap
  m: f32[B] heap
  s: f32[B] heap
  for b < B [row]:
    a[b] = 0.0
    for n < N [col]:
      a[b] += x[b, n]
    m[b] = a[b] / f32(N)
    s[b] = 0.0
    for n1 < N [col]:
      s[b] += (x[b, n1] - m[b]) * (x[b, n1] - m[b])
    for n2 < N [col]:
      y[b, n2] = (x[b, n2] - m[b]) * rsqrt(s[b] / f32(N) + 0.00001) * g[n2]
)";

class RowSums {
 public:
  explicit RowSums(const std::string& text) : naive_(ir::parse_kernel(text).value()) {}

  // The loops as they are written, of a text in which `from` became `to`.
  Verdict verdict(int64_t rows, int64_t columns, uint64_t seed, const std::string& from = "",
                  const std::string& to = "") {
    std::string text = ir::print(naive_);
    if (!from.empty()) {
      EXPECT_NE(text.find(from), std::string::npos) << text;
      text.replace(text.find(from), from.size(), to);
    }
    ir::Result<ir::Kernel> kernel = ir::parse_kernel(text);
    EXPECT_TRUE(kernel.ok()) << kernel.status().to_string() << "\n" << text;
    search::Schedule in_sequence;
    in_sequence.family = naive_.family;
    ir::Result<Stage> stage = build_stage(*kernel, in_sequence, jit::host_target(), cache_, LeafPolicy{});
    EXPECT_TRUE(stage.ok()) << stage.status().to_string();
    auto oracle = Oracle::create({naive_, {{"B", rows}, {"N", columns}}, 1, seed}, nullptr);
    const ir::Result<Verdict> out = (*oracle)->verify(*stage);
    EXPECT_TRUE(out.ok()) << out.status().to_string();
    return out.ok() ? *out : Verdict{};
  }

 private:
  LeafCache cache_{{}, nullptr, nullptr};
  ir::Kernel naive_;
};

TEST(RowSums, OneTermAfterAnotherIsRight) {
  for (const std::string& text : {kSoftmax, kLogSoftmax, kRmsNorm, kLayerNorm}) {
    RowSums row(text);
    for (const int64_t columns : kColumns) {
      for (const uint64_t seed : {1, 2, 3}) {
        const Verdict v = row.verdict(columns > 1024 ? 5 : 14, columns, seed);
        EXPECT_TRUE(v.ok) << columns << " columns, seed " << seed << ": " << v.reason;
        EXPECT_EQ(v.gate, Gate::table);
      }
    }
  }
}

TEST(RowSums, AColumnThatIsMissingOrCountsTwiceShows) {
  const struct {
    std::string text, loop, term;
  } rows[] = {{kSoftmax, "for n1 < N", "s[b] += exp(x[b, n1] - m[b])"},
              {kLogSoftmax, "for n1 < N", "s[b] += exp(x[b, n1] - m[b])"},
              {kRmsNorm, "for n < N", "s[b] += x[b, n] * x[b, n]"},
              {kLayerNorm, "for n1 < N", "s[b] += (x[b, n1] - m[b]) * (x[b, n1] - m[b])"}};
  for (const auto& row : rows) {
    RowSums f(row.text);
    for (const int64_t columns : kColumns) {
      EXPECT_FALSE(f.verdict(5, columns, 1, row.loop, row.loop + " - 1").ok) << columns << " columns";
      const std::string iter = row.loop.substr(4, row.loop.find(" <") - 4);
      std::string first = row.term;
      for (size_t at = first.find(", " + iter + "]"); at != std::string::npos; at = first.find(", " + iter + "]"))
        first.replace(at, iter.size() + 3, ", 0]");
      EXPECT_FALSE(f.verdict(5, columns, 1, "s[b] = 0.0\n", "s[b] = 0.0\n    " + first + "\n").ok)
          << columns << " columns, the first one twice: " << first;
    }
  }
}

TEST(RowSums, AnotherMaximumShows) {
  for (const std::string& text : {kSoftmax, kLogSoftmax}) {
    RowSums f(text);
    for (const int64_t rows : {1, 5}) {
      for (const int64_t columns : kColumns) {
        EXPECT_FALSE(f.verdict(rows, columns, 1, "exp(x[b, n1] - m[b])", "exp(x[b, n1] - x[b, 0])").ok) << columns;
        // Of all columns but the last: right as long as that one is not much larger.
        EXPECT_FALSE(f.verdict(rows, columns, 1, "for n < N", "for n < N - 1").ok) << columns;
      }
    }
  }
}

TEST(RowSums, WhatASequenceMayLoseGrowsWithItsLength) {
  EXPECT_LT(sum_in_sequence(DataKind::normal, 16384), 1.0 / 16384 / 4) << "a column of the mean size would not show";
  EXPECT_DOUBLE_EQ(sum_in_sequence(DataKind::normal, 64), 12 * 0x1p-24);
  EXPECT_DOUBLE_EQ(sum_in_sequence(DataKind::integers, 64), 32 * 0x1p-24);
}

TEST(RowSums, TheLongestSumIsThatOfTheWholeRow) {
  const auto longest = [](const std::string& text, SymbolValues dims) {
    return SampledKernel::create(ir::parse_kernel(text).value(), dims)->longest_sum();
  };
  EXPECT_EQ(longest(kSoftmax, {{"B", 7}, {"N", 333}}), 333);
  EXPECT_EQ(longest(kLayerNorm, {{"B", 7}, {"N", 1}}), 1);
  EXPECT_EQ(longest("kernel k(x: f32[9, 4, 5] in, y: f32[9] out)\n  for a < 9:\n    y[a] = 0.0\n    for b < 4:\n"
                    "      for c < 5:\n        y[a] += x[a, b, c]\n",
                    {}),
            20);
  EXPECT_EQ(longest("kernel k(x: f32[9] in, y: f32[9] out)\n  for a < 9:\n    y[a] = exp(x[a])\n", {}), 1);
}

}  // namespace
}  // namespace lathe::runtime
