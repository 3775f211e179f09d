// Sums that the statements of a vector scope read while they run: all lengths, unrolled copies, in registers and in
// memory, what rides before and behind, two of them at once.
#include "tests/jit/lower/leaf_case.h"

namespace lathe::jit {
namespace {

const std::string kExtents = "e0 in 0..9223372036854775807, e1 in 0..9223372036854775807";

LeafCase rows(const std::string& body, int64_t r, int64_t n, const std::string& registers, Data data = Data::integers) {
  return LeafCase(
      "kernel leaf(p0: f32[_, _] in strides [?, 1], p1: f32[_, _] out strides [?, 1], p2: f32[_] out strides [1]) "
      "family leaf where " +
          kExtents + "\n" + registers + body,
      {{{r, n}, {n + 3, 1}}, {{r, n}, {n + 1, 1}}, {{r}, {1}}}, {{"e0", r}, {"e1", n}}, data);
}

const std::string kRegister = "  r0: f32[] reg\n";

// Whole steps of four vectors, a masked tail of single ones, and the sum itself behind them.
const std::string kPass = R"(  for i0 < e0:
    r0[] = 1.0
    for i1 < ceildiv(e1, 64):
      for i2 < 4 @unroll:
        for i3 < min(16, e1 - 64*i1 - 16*i2) @vector:
          r0[] += p0[i0, 64*i1 + 16*i2 + i3] * 2.0
          p1[i0, 64*i1 + 16*i2 + i3] = r0[] + p0[i0, 64*i1 + 16*i2 + i3]
    p2[i0] = r0[]
)";

TEST(LowerRunningSum, EveryLength) {
  for (int64_t n = 1; n <= 70; ++n) {
    LeafCase c = rows(kPass, 1 + n % 3, n, kRegister);
    expect_leaf(c);
  }
  for (const int64_t n : {127, 128, 129, 200, 263}) {
    LeafCase c = rows(kPass, 2, n, kRegister);
    expect_leaf(c);
  }
}

TEST(LowerRunningSum, NoRowsTouchNothing) {
  LeafCase c = rows(kPass, 0, 20, kRegister);
  expect_leaf(c);
}

TEST(LowerRunningSum, InMemory) {
  const std::string body = R"(  for i0 < e0:
    p2[i0] = 0.5
    for i1 < ceildiv(e1, 16):
      for i2 < min(16, e1 - 16*i1) @vector:
        p2[i0] += p0[i0, 16*i1 + i2]
        p1[i0, 16*i1 + i2] = p2[i0]
)";
  for (const int64_t n : {1, 7, 8, 9, 15, 16, 17, 40}) {
    LeafCase c = rows(body, 3, n, "");
    expect_leaf(c);
  }
}

// What stands before it is done already, lanes that are off add nothing, and another reduction goes on beside it.
TEST(LowerRunningSum, AmongOtherStatements) {
  const std::string body = R"(  for i0 < e0:
    r0[] = 0.0
    r1[] = -inf
    for i1 < ceildiv(e1, 16):
      for i2 < min(16, e1 - 16*i1) @vector:
        p1[i0, 16*i1 + i2] = p0[i0, 16*i1 + i2] + 1.0
        r0[] += p1[i0, 16*i1 + i2] + 3.0
        r1[] fmax= p0[i0, 16*i1 + i2]
        p1[i0, 16*i1 + i2] = r0[] * r0[]
    p2[i0] = r0[] + r1[]
)";
  for (const int64_t n : {1, 5, 8, 13, 16, 31, 33}) {
    LeafCase c = rows(body, 2, n, kRegister + "  r1: f32[] reg\n");
    expect_leaf(c);
  }
}

TEST(LowerRunningSum, TwoAtOnce) {
  const std::string body = R"(  for i0 < e0:
    r0[] = 0.0
    r1[] = 2.0
    for i1 < ceildiv(e1, 16):
      for i2 < min(16, e1 - 16*i1) @vector:
        r0[] += p0[i0, 16*i1 + i2]
        r1[] += r0[]
        p1[i0, 16*i1 + i2] = r1[] - r0[]
    p2[i0] = r1[]
)";
  for (const int64_t n : {1, 4, 8, 15, 16, 17, 29}) {
    LeafCase c = rows(body, 2, n, kRegister + "  r1: f32[] reg\n");
    expect_leaf(c);
  }
}

}  // namespace
}  // namespace lathe::jit
