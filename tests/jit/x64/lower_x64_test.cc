// Lowered leaves through the x64 generator: the same bits as the portable executor, at every level
// the host has; and the leaves of the blueprints compile (registers suffice).
#include "tests/jit/lower/leaf_case.h"
#include "tests/jit/lower/tile_loop.h"
#include "tests/jit/x64/x64_test_util.h"

namespace lathe::jit {
namespace {

// Bit-equal, NaN for NaN.
std::string bits_differ(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) {
      if (std::memcmp(&a[i][j], &b[i][j], 4) == 0 || (std::isnan(a[i][j]) && std::isnan(b[i][j]))) continue;
      return fmt::format("operand {} element {}: {} and {}", i, j, a[i][j], b[i][j]);
    }
  }
  return {};
}

void expect_x64(LeafCase& c) {
  for (ir::IsaLevel level : {ir::IsaLevel::avx512, ir::IsaLevel::avx2}) {
    auto p = c.lower(test_target(level));
    ASSERT_TRUE(p.ok()) << p.status().to_string();
    auto image = compile_xbyak(*p);
    ASSERT_TRUE(image.ok()) << ir::isa_name(level) << " " << image.status().to_string() << "\n" << to_text(*p);
    if ((ir::isa_features(level) & ~host_features()) != 0) continue;  // compiled, not run
    auto code = x64_test::loader().load(*image);
    ASSERT_TRUE(code.ok()) << code.status().to_string();
    const auto want = c.run(*p);
    std::vector<ir::LeafSeg> segs;
    const ir::LeafArgs args = c.args(&segs);
    x64_test::call(code->entry, args);
    ASSERT_EQ(bits_differ(c.buffers(), want), "") << ir::isa_name(level) << "\n" << to_text(*p);
  }
}

const std::string kHeader =
    "kernel leaf(p0: f32[_, _] in strides [?, 1], p1: f32[_, _] out strides [?, 1], p2: f32[_] in "
    "strides [1]) family leaf where "
    "e0 in 0..9223372036854775807, e1 in 0..9223372036854775807\n";

LeafCase rows(const std::string& body, int64_t r, int64_t n, const std::string& registers = {}) {
  return LeafCase(kHeader + registers + body, {{{r, n}, {n + 3, 1}}, {{r, n}, {n + 1, 1}}, {{n}, {1}}},
                  {{"e0", r}, {"e1", n}}, Data::normal);
}

const std::string kSoftmax = R"(  for i0 < e0:
    r0[] = -inf
    for i1 < ceildiv(e1, 16):
      for i2 < min(16, e1 - 16*i1) @vector:
        r0[] fmax= p0[i0, 16*i1 + i2]
    r1[] = 0.0
    for i3 < ceildiv(e1, 16):
      for i4 < min(16, e1 - 16*i3) @vector:
        p1[i0, 16*i3 + i4] = exp(p0[i0, 16*i3 + i4] - r0[])
        r1[] += p1[i0, 16*i3 + i4]
    for i5 < ceildiv(e1, 16):
      for i6 < min(16, e1 - 16*i5) @vector:
        p1[i0, 16*i5 + i6] = p1[i0, 16*i5 + i6] / r1[]
)";

TEST(LowerX64, Softmax) {
  for (int64_t n : {1, 7, 8, 16, 17, 40, 64, 70}) {
    LeafCase c = rows(kSoftmax, 3, n, "  r0: f32[] reg\n  r1: f32[] reg\n");
    expect_leaf(c, 1e-5, 1e-7);
    expect_x64(c);
  }
}

TEST(LowerX64, LoopsOverTilesAndPanels) {
  for (const int64_t k : {0, 1, 7, 64}) {
    for (const bool accumulate : {false, true}) {
      LeafCase c = tile_loop(3, 4, k, accumulate, Data::normal);
      expect_x64(c);
    }
  }
}

TEST(LowerX64, EveryFunctionAlone) {
  for (const char* f :
       {"exp", "log", "tanh", "erf", "sigmoid", "normal_cdf", "sin", "cos", "sqrt", "rsqrt", "floor", "round"}) {
    LeafCase c = rows(fmt::format("  for i0 < e0:\n    for i1 < ceildiv(e1, 16):\n      for i2 < "
                                  "min(16, e1 - 16*i1) @vector:\n"
                                  "        p1[i0, 16*i1 + i2] = {}(3.0 * p0[i0, 16*i1 + i2])\n",
                                  f),
                      3, 45);
    expect_x64(c);
  }
}

TEST(LowerX64, LayerNormChain) {
  const std::string body = R"(  for i0 < e0:
    r0[] = 0.0
    for i1 < ceildiv(e1, 16):
      for i2 < min(16, e1 - 16*i1) @vector:
        r0[] += p0[i0, 16*i1 + i2]
    r0[] = r0[] / f32(e1)
    r1[] = 0.0
    for i3 < ceildiv(e1, 16):
      for i4 < min(16, e1 - 16*i3) @vector:
        r1[] += (p0[i0, 16*i3 + i4] - r0[]) * (p0[i0, 16*i3 + i4] - r0[])
    r1[] = rsqrt(r1[] / f32(e1) + 1e-05)
    for i5 < ceildiv(e1, 16):
      for i6 < min(16, e1 - 16*i5) @vector:
        p1[i0, 16*i5 + i6] = (p0[i0, 16*i5 + i6] - r0[]) * r1[] * p2[16*i5 + i6]
)";
  for (int64_t n : {5, 16, 33, 70}) {
    LeafCase c = rows(body, 2, n, "  r0: f32[] reg\n  r1: f32[] reg\n");
    expect_leaf(c, 1e-4, 1e-5);
    expect_x64(c);
  }
}

std::string tile(int m, int vectors, const std::string& value) {
  const auto scopes = [&](int i, const std::string& indent, const std::string& statement) {
    return fmt::format(
        "{0}for i{1} < {4} @unroll:\n{0}  for i{2} < {5} @unroll:\n{0}    for i{3} < min(16, e0 - "
        "16*i{2}) @vector:\n{0}      {6}\n",
        indent, i, i + 1, i + 2, m, vectors,
        fmt::format(fmt::runtime(statement), fmt::format("i{}", i), fmt::format("16*i{} + i{}", i + 1, i + 2)));
  };
  return fmt::format(
             "kernel leaf(p0: f32[_, _] in strides [?, 1], p1: f32[_, _] in strides [{0}, 1], p2: "
             "f32[_] in strides [1], p3: f32[_, _] out "
             "strides [?, 1]) family leaf where e0 in 0..9223372036854775807, seglen in "
             "0..9223372036854775807\n  r0: f32[{1}, {0}] reg\n",
             16 * vectors, m) +
         scopes(0, "  ", "r0[{0}, {1}] = 0.0") + "  for i3 < seglen @tensor(mma):\n    prefetch p1 lines 8\n" +
         scopes(4, "    ", "r0[{0}, {1}] += p0[{0}, i3] * p1[i3, {1}]") + scopes(7, "  ", "p3[{0}, {1}] = " + value);
}

TEST(LowerX64, MatmulTilesWithEpilogues) {
  for (const char* value : {"r0[{0}, {1}]", "p3[{0}, {1}] + r0[{0}, {1}]", "max(r0[{0}, {1}] + p2[{1}], 0.0)",
                            "0.5 * (r0[{0}, {1}] + p2[{1}]) * (1.0 + erf((r0[{0}, {1}] + p2[{1}]) * 0.70710677))",
                            "(r0[{0}, {1}] + p2[{1}]) * sigmoid(r0[{0}, {1}] + p2[{1}])",
                            "(r0[{0}, {1}] + p2[{1}]) * normal_cdf(r0[{0}, {1}] + p2[{1}])",
                            "0.5 * r0[{0}, {1}] * (1.0 + tanh(0.7978846 * (r0[{0}, {1}] + 0.044715 * r0[{0}, {1}] * "
                            "r0[{0}, {1}] * r0[{0}, {1}])))"}) {
    for (const auto& [m, vectors] :
         std::vector<std::pair<int, int>>{{1, 4}, {4, 1}, {2, 1}, {8, 2}, {8, 3}, {6, 4}, {12, 2}}) {
      for (int64_t k : {3, 8}) {
        const int64_t n = 16 * vectors - (k == 3 ? 5 : 0);
        LeafCase c(tile(m, vectors, value),
                   {{{m, k}, {k + 1, 1}}, {{k, n}, {16 * vectors, 1}}, {{n}, {1}}, {{m, n}, {n + 2, 1}}},
                   {{"e0", n}, {"seglen", k}}, Data::normal);
        auto p = c.lower(test_target(ir::IsaLevel::avx2));
        ASSERT_TRUE(p.ok()) << p.status().to_string();
        // 8-lane machines take tiles of their own; these have too many accumulators for 16
        // registers.
        const bool fits_avx2 = compile_xbyak(*p).ok();
        if (m * vectors <= 3) {
          EXPECT_TRUE(fits_avx2) << compile_xbyak(*p).status().to_string() << to_text(*p);
        }
        auto wide = c.lower(test_target(ir::IsaLevel::avx512));
        ASSERT_TRUE(wide.ok()) << wide.status().to_string();
        auto image = compile_xbyak(*wide);
        ASSERT_TRUE(image.ok()) << m << "x" << vectors << " " << value << ": " << image.status().to_string() << "\n"
                                << to_text(*wide);
        if (fits_avx2) expect_x64(c);
        if (fits_avx2 || (ir::isa_features(ir::IsaLevel::avx512) & ~host_features()) != 0) continue;
        auto code = x64_test::loader().load(*image);
        ASSERT_TRUE(code.ok()) << code.status().to_string();
        const auto want = c.run(*wide);
        std::vector<ir::LeafSeg> segs;
        const ir::LeafArgs args = c.args(&segs);
        x64_test::call(code->entry, args);
        ASSERT_EQ(bits_differ(c.buffers(), want), "") << to_text(*wide);
      }
    }
  }
}

TEST(LowerX64, Transpose) {
  for (int64_t rows_ : {3, 16, 21}) {
    for (int64_t cols : {5, 16, 37}) {
      LeafCase c(
          "kernel leaf(p0: f32[_, _] in strides [?, 1], p1: f32[_, _] out strides [?, 1]) family "
          "leaf where "
          "e0 in 0..9223372036854775807, e1 in 0..9223372036854775807\n"
          "  for i0 < ceildiv(e0, 16):\n    for i1 < ceildiv(e1, 16):\n      for i2 < min(16, e0 - "
          "16*i0) @tensor(transpose):\n"
          "        for i3 < min(16, e1 - 16*i1):\n          p1[16*i1 + i3, 16*i0 + i2] = p0[16*i0 "
          "+ i2, 16*i1 + i3]\n",
          {{{rows_, cols}, {cols + 2, 1}}, {{cols, rows_}, {rows_ + 5, 1}}}, {{"e0", rows_}, {"e1", cols}},
          Data::normal);
      expect_x64(c);
    }
  }
}

}  // namespace
}  // namespace lathe::jit
