// Lowered leaves of every family through both generators: matmul tiles, rows, elementwise chains
// and transposes give the portable executor's bits at AVX2 and AVX-512, whatever the sizes. Whether
// that is the right answer is the tests of lowering's question.
#include <optional>
#include <tuple>

#include "tests/jit/llvm/llvm_test_util.h"
#include "tests/jit/lower/leaf_case.h"

namespace lathe::jit {
namespace {
using namespace llvm_test;

const std::string kRange = " in 0..9223372036854775807";

// A matmul tile of m rows x vectors * 16 columns, gelu(x + bias) at the end, columns masked by e0.
std::string tile_text(int m, int vectors) {
  const auto scopes = [m, vectors](int first, const std::string& indent, const std::string& statement) {
    const std::string row = fmt::format("i{}", first), n = fmt::format("i{}", first + 1),
                      l = fmt::format("i{}", first + 2);
    return fmt::format(
               "{0}for {1} < {2} @unroll:\n{0}  for {3} < {5} @unroll:\n{0}    for {4} < min(16, "
               "e0 - 16*{3}) @vector:\n",
               indent, row, m, n, l, vectors) +
           fmt::format("{}      {}\n", indent,
                       fmt::format(fmt::runtime(statement), row, fmt::format("16*{} + {}", n, l)));
  };
  return fmt::format(
             "kernel leaf(p0: f32[_, _] in strides [?, 1], p1: f32[_, _] in strides [{}, 1], p2: "
             "f32[_] in strides [1], "
             "p3: f32[_, _] out strides [?, 1]) family leaf where e0{}, seglen{}\n  r0: f32[{}, "
             "{}] reg\n",
             16 * vectors, kRange, kRange, m, 16 * vectors) +
         scopes(0, "  ", "r0[{0}, {1}] = 0.0") + "  for i3 < seglen @tensor(mma):\n    prefetch p1 lines 4\n" +
         scopes(4, "    ", "r0[{0}, {1}] += p0[{0}, i3] * p1[i3, {1}]") +
         scopes(7, "  ",
                "p3[{0}, {1}] = 0.5 * (r0[{0}, {1}] + p2[{1}]) * (1.0 + erf((r0[{0}, {1}] + "
                "p2[{1}]) * 0.70710677))");
}

const std::string kRowHeader =
    "kernel leaf(p0: f32[_, _] in strides [?, 1], p1: f32[_, _] out strides [?, 1]) family leaf "
    "where e0" +
    kRange + ", e1" + kRange + "\n";

const std::string kSoftmax = kRowHeader + R"(  r0: f32[] reg
  r1: f32[] reg
  for i0 < e0:
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

std::string elementwise(const std::string& f) {
  return kRowHeader +
         "  for i0 < e0:\n    for i1 < ceildiv(e1, 16):\n      for i2 < min(16, e1 - 16*i1) "
         "@vector:\n        p1[i0, 16*i1 + i2] = " +
         fmt::format(fmt::runtime(f), "p0[i0, 16*i1 + i2]") + "\n";
}

const std::string kTranspose = kRowHeader + R"(  for i0 < ceildiv(e0, 16):
    for i1 < ceildiv(e1, 16):
      for i2 < min(16, e0 - 16*i0) @tensor(transpose):
        for i3 < min(16, e1 - 16*i1):
          p1[16*i1 + i3, 16*i0 + i2] = p0[16*i0 + i2, 16*i1 + i3]
)";

LeafCase row_case(const std::string& text, int64_t rows, int64_t n, bool transposed = false) {
  return LeafCase(text,
                  {{{rows, n}, {n + 3, 1}},
                   {transposed ? std::vector{n, rows} : std::vector{rows, n}, {(transposed ? rows : n) + 1, 1}}},
                  {{"e0", rows}, {"e1", n}}, Data::normal);
}

struct Generated {
  LeafProgram program;
  CodeImage images[2];
  bool present[2] = {};
};
constexpr Backend kGenerators[] = {Backend::llvm, Backend::xbyak};

// Lowers and compiles the leaf once for a level; LLVM may refuse none, xbyak's refusals are
// counted.
std::optional<Generated> generate(const LeafCase& c, ir::IsaLevel level, int* refused) {
  auto program = c.lower(test_target(level));
  EXPECT_TRUE(program.ok()) << program.status().to_string() << "\n" << ir::print(c.leaf());
  if (!program.ok()) return std::nullopt;
  Generated g;
  g.program = *std::move(program);
  for (int b = 0; b < 2; ++b) {
    auto image = kGenerators[b] == Backend::llvm ? compile_llvm(g.program, "") : compile_xbyak(g.program);
    g.present[b] = image.ok();
    if (image.ok()) {
      g.images[b] = *std::move(image);
    } else {
      EXPECT_EQ(kGenerators[b], Backend::xbyak) << image.status().to_string() << "\n" << to_text(g.program);
      ++*refused;
    }
  }
  return g;
}

void expect_same(LeafCase& c, const Generated& g, const std::string& what) {
  const auto want = c.run(g.program);
  for (int b = 0; b < 2; ++b) {
    if (!g.present[b]) continue;
    std::vector<ir::LeafSeg> segments;
    const ir::LeafArgs args = c.args(&segments);
    const Loaded code(g.images[b]);
    code(args);
    for (size_t operand = 0; operand < want.size(); ++operand) {
      const int64_t at = difference(want[operand], c.buffers()[operand]);
      ASSERT_EQ(at, -1) << what << " " << backend_name(kGenerators[b]) << " " << ir::isa_name(g.program.level)
                        << " operand " << operand << " element " << at - static_cast<int64_t>(LeafCase::kBorder)
                        << ": portable " << want[operand][static_cast<size_t>(at)] << ", generated "
                        << c.buffers()[operand][static_cast<size_t>(at)];
    }
  }
}

// One leaf at both levels on several sizes. make(rows, n) gives the case.
template <class Make>
void expect_leaf_bits(const std::string& what, Make make, const std::vector<std::pair<int64_t, int64_t>>& sizes,
                      ir::IsaLevel least = ir::IsaLevel::avx2) {
  for (const Shape& shape : {Shape{ir::IsaLevel::avx2, 8}, Shape{ir::IsaLevel::avx512, 16}}) {
    if (!host_runs(shape) || !ir::bare_target(shape.level).has(least)) continue;
    int refused = 0;
    const auto g = generate(make(sizes[0].first, sizes[0].second), shape.level, &refused);
    ASSERT_TRUE(g.has_value()) << what;
    testing::Test::RecordProperty(what + "_xbyak_refused_" + shape.name(), refused);
    for (const auto& [rows, n] : sizes) {
      LeafCase c = make(rows, n);
      expect_same(c, *g, fmt::format("{} {}x{}", what, rows, n));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

const std::vector<std::pair<int64_t, int64_t>> kRowSizes = {{1, 1},  {2, 7},  {1, 8},  {3, 15},  {1, 16},
                                                            {2, 17}, {4, 31}, {3, 64}, {1, 150}, {0, 9}};

TEST(LlvmLeaves, MatmulTiles) {
  LATHE_NEEDS_LLVM();
  // Accumulators for the registers of the level named.
  const std::vector<std::tuple<int, int, ir::IsaLevel>> tiles = {
      {1, 1, ir::IsaLevel::avx2},   {3, 1, ir::IsaLevel::avx2},   {6, 1, ir::IsaLevel::avx2},
      {4, 2, ir::IsaLevel::avx512}, {6, 4, ir::IsaLevel::avx512}, {8, 3, ir::IsaLevel::avx512}};
  for (const auto& [m, vectors, level] : tiles) {
    const int64_t width = 16 * vectors;
    const auto make = [m = m, vectors = vectors, width](int64_t k, int64_t n) {
      return LeafCase(tile_text(m, vectors),
                      {{{m, k}, {k + 3, 1}}, {{k, n}, {width, 1}}, {{n}, {1}}, {{m, n}, {n + 7, 1}}},
                      {{"e0", n}, {"seglen", k}}, Data::normal);
    };
    expect_leaf_bits(fmt::format("tile{}x{}", m, width), make,
                     {{5, width}, {0, width}, {1, 1}, {2, 8}, {7, 15}, {8, 16}, {9, width - 1}, {64, width - 9}},
                     level);
    if (HasFatalFailure()) return;
  }
}

TEST(LlvmLeaves, Softmax) {
  LATHE_NEEDS_LLVM();
  expect_leaf_bits("softmax", [](int64_t rows, int64_t n) { return row_case(kSoftmax, rows, n); }, kRowSizes);
}

TEST(LlvmLeaves, ElementwiseChains) {
  LATHE_NEEDS_LLVM();
  for (const char* f : {"exp({0})", "log(abs({0}))", "tanh({0})", "erf({0})", "{0} / (1.0 + exp(-{0}))",
                        "{0} * sigmoid({0})", "{0} * normal_cdf({0})", "sin({0}) * cos({0})", "max({0}, 0.0)",
                        "sqrt(abs({0}))", "select({0} < 0.25, {0} * 2.0, floor({0}))"}) {
    expect_leaf_bits(f, [f](int64_t rows, int64_t n) { return row_case(elementwise(f), rows, n); }, kRowSizes);
    if (HasFatalFailure()) return;
  }
}

TEST(LlvmLeaves, Transpose) {
  LATHE_NEEDS_LLVM();
  expect_leaf_bits("transpose", [](int64_t rows, int64_t n) { return row_case(kTranspose, rows, n, true); }, kRowSizes);
}

}  // namespace
}  // namespace lathe::jit
