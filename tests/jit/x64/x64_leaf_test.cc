// Leaves as lowering makes them, through the x64 generator, bit for bit against the portable executor: every matmul
// tile with its tails, starts and epilogues at every level. Which tiles are refused follows from the register file
// alone.
#include "tests/jit/lower/leaf_case.h"

namespace lathe::jit {
namespace {

struct Tile {
  int m = 1, vectors = 1, lanes = 16;
  bool masked = false;
  const char* start = "0.0";
  const char* epilogue = "r0[#]";
};

// '#' stands for the accumulator's index, '$' for the column, '@' for the row.
std::string expanded(const std::string& text, const std::string& both, const std::string& column,
                     const std::string& row) {
  std::string out;
  for (const char c : text) out += c == '#' ? both : c == '$' ? column : c == '@' ? row : std::string(1, c);
  return out;
}

std::string tile_text(const Tile& t) {
  const int width = t.vectors * t.lanes;
  const auto scopes = [&](int first, const std::string& indent, const std::string& statement) {
    const std::string row = fmt::format("i{}", first),
                      column = fmt::format("{}*i{} + i{}", t.lanes, first + 1, first + 2);
    const std::string extent =
        t.masked ? fmt::format("min({0}, e0 - {0}*i{1})", t.lanes, first + 1) : fmt::to_string(t.lanes);
    return fmt::format(
        "{0}for i{1} < {2} @unroll:\n{0}  for i{3} < {4} @unroll:\n{0}    for i{5} < {6} @vector:\n{0}      {7}\n",
        indent, first, t.m, first + 1, t.vectors, first + 2, extent,
        expanded(statement, row + ", " + column, column, row));
  };
  return fmt::format(
             "kernel leaf(p0: f32[_, _] in strides [?, 1], p1: f32[_, _] in strides [{}, 1], p2: f32[_] in strides "
             "[1], "
             "p3: f32[_, _] out strides [?, 1]) family leaf where e0 in 0..9223372036854775807, seglen in "
             "0..9223372036854775807\n  r0: f32[{}, {}] reg\n",
             width, t.m, width) +
         scopes(0, "  ", std::string("r0[#] = ") + t.start) +
         "  for i3 < seglen @tensor(mma):\n    prefetch p1 lines 4\n" +
         scopes(4, "    ", "r0[#] += p0[@, i3] * p1[i3, $]") + scopes(7, "  ", std::string("p3[#] = ") + t.epilogue);
}

LeafCase tile_case(const Tile& t, int64_t k, int64_t n) {
  return LeafCase(tile_text(t),
                  {{{t.m, k}, {k + 3, 1}}, {{k, n}, {t.vectors * t.lanes, 1}}, {{n}, {1}}, {{t.m, n}, {n + 7, 1}}},
                  {{"e0", n}, {"seglen", k}}, Data::normal);
}

void expect_same_bits(const Tile& t, int64_t k, int64_t n, const ir::Target& target, int* refused = nullptr,
                      int* not_lowered = nullptr) {
  LeafCase c = tile_case(t, k, n);
  const auto p = c.lower(target);
  if (not_lowered && p.status().code() == ir::Code::kUNSUPPORTED) {
    ++*not_lowered;
    return;
  }
  ASSERT_TRUE(p.ok()) << p.status().to_string() << tile_text(t);
  c.run(*p);
  ASSERT_EQ(x64_difference(c, *p, refused), "") << ir::isa_name(target.level) << " " << t.m << "x"
                                                << t.vectors * t.lanes << " k " << k << " n " << n << " " << t.epilogue;
}

class X64Leaf : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!x64_test::can_run(shape())) GTEST_SKIP() << "the machine lacks " << ir::isa_name(shape().level);
  }
  x64_test::Shape shape() const { return x64_test::all_shapes()[static_cast<size_t>(GetParam())]; }
  ir::Target target() const {
    ir::Target t = test_target(shape().level);
    t.lanes = shape().lanes;
    return t;
  }
  // Accumulators, the vectors of one row of B, and one broadcast.
  bool fits(const Tile& t) const { return t.m * t.vectors + t.vectors + 1 <= target().vector_registers; }
};

TEST_P(X64Leaf, EveryTileThatFitsTheRegisters) {
  int compiled = 0;
  for (int vectors = 1; vectors <= 4; ++vectors) {
    for (int m = 1; m <= 14; ++m) {
      const Tile t{m, vectors, shape().lanes};
      int refused = 0;
      for (const int64_t k : {0, 1, 4, 11}) {
        expect_same_bits(t, k, t.vectors * t.lanes, target(), &refused);
        if (HasFatalFailure()) return;
      }
      if (fits(t)) {
        EXPECT_EQ(refused, 0) << m << "x" << vectors;
      }
      compiled += refused == 0;
    }
  }
  EXPECT_GE(compiled, target().vector_registers == 32 ? 30 : 18);
}

TEST_P(X64Leaf, MaskedColumns) {
  for (const int vectors : {1, 2, 3}) {
    for (const int m : {1, 2, 4}) {
      Tile t{m, vectors, shape().lanes, true};
      if (!fits(t)) continue;
      if (shape().level == ir::IsaLevel::avx2 && m * vectors + 2 * vectors + 1 > 16)
        continue;  // masks live in vector registers
      for (int64_t n = 1; n <= vectors * t.lanes; ++n) {
        expect_same_bits(t, 5, n, target());
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(X64Leaf, StartsAndEpilogues) {
  int refused = 0, not_lowered = 0;
  for (const char* start : {"0.0", "p3[#]", "p2[$]"}) {
    for (const char* epilogue :
         {"r0[#]", "r0[#] + p2[$]", "max(r0[#] + p2[$], 0.0)", "r0[#] * 0.125", "p3[#] + r0[#]",
          "(r0[#] + p2[$]) / (1.0 + exp(-(r0[#] + p2[$])))", "0.5 * r0[#] * (1.0 + erf(r0[#] * 0.70710677))",
          "0.5 * r0[#] * (1.0 + tanh(0.79788456 * (r0[#] + 0.044715 * r0[#] * r0[#] * r0[#])))"}) {
      for (const bool masked : {false, true}) {
        Tile t{4, 2, shape().lanes, masked, start, epilogue};
        expect_same_bits(t, 7, masked ? t.lanes + 3 : 2 * t.lanes, target(), &refused, &not_lowered);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_LE(not_lowered, 18);  // of 48: the three with functions
  EXPECT_LE(refused, target().vector_registers == 32 ? 0 : 12);
}

TEST_P(X64Leaf, SegmentsAndStreams) {
  const Tile t{3, 2, shape().lanes};
  LeafCase c = tile_case(t, 13, t.vectors * t.lanes);
  const auto p = c.lower(target());
  ASSERT_TRUE(p.ok()) << p.status().to_string();
  const auto image = compile_xbyak(*p);
  ASSERT_TRUE(image.ok()) << image.status().to_string();
  const auto code = x64_test::loader().load(*image);
  ASSERT_TRUE(code.ok());
  const int64_t row = int64_t{4} * t.vectors * t.lanes;
  const std::vector<std::vector<ir::LeafSeg>> lists = {
      {{0, 0, 13, 0, 0}},
      {{0, 0, 6, 0, 0}, {6 * 4, 6 * row, 0, 0, 0}, {6 * 4, 6 * row, 7, 0, 0}},
      {{4, row, 2, 0, 0}, {0, 0, 5, 0, 0}}};
  for (const auto& list : lists) {
    const auto want = c.run(*p, list);
    std::vector<ir::LeafSeg> segs = list;
    ir::LeafArgs args = c.args(&segs);
    args.stream[0].ptr = reinterpret_cast<const char*>(uintptr_t{64});  // a hint never faults
    x64_test::call(code->entry, args);
    for (size_t b = 0; b < want.size(); ++b)
      EXPECT_EQ(x64_test::difference(want[b], c.buffers()[b]), -1) << list.size();
  }
  // No segment: the start alone.
  std::vector<ir::LeafSeg> segs = lists[0];
  ir::LeafArgs args = c.args(&segs);
  args.nseg = 0;
  x64_test::call(code->entry, args);
  EXPECT_EQ(c.buffers()[3][LeafCase::kBorder], 0.0f);
}

INSTANTIATE_TEST_SUITE_P(Shapes, X64Leaf, testing::Range(0, 3), [](const auto& info) {
  return x64_test::all_shapes()[static_cast<size_t>(info.param)].name();
});

}  // namespace
}  // namespace lathe::jit
