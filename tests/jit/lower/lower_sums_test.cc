// Sums across lanes that are stored side by side: one tree of them, with the bits of one sum after another; left alone
// where somebody else reads a sum, or what is stored.
#include "tests/jit/lower/leaf_case.h"

namespace lathe::jit {
namespace {

// Products of `rows` rows of p0 with `columns` rows of p1, of which what `stored` says becomes of each; p3 has a number
// a column.
LeafCase products(int64_t rows, int64_t columns, int64_t depth, const std::string& stored, Data data = Data::integers) {
  const std::string text = fmt::format(
      R"(kernel leaf(p0: f32[_, _] in strides [?, 1], p1: f32[_, _] in strides [?, 1], p2: f32[_, _] out strides [?, 1], p3: f32[_] in strides [1]) family leaf where e0 in 0..9223372036854775807
  r0: f32[{0}, {1}] reg
  for i0 < 1:
    for i1 < {0} @unroll:
      for i2 < {1} @unroll:
        r0[i1, i2] = 0.0
    for i3 < ceildiv(e0, 16):
      for i4 < {0} @unroll:
        for i5 < {1} @unroll:
          for i6 < min(16, e0 - 16*i3) @vector:
            r0[i4, i5] += p0[i4, 16*i3 + i6] * p1[i5, 16*i3 + i6]
    for i7 < {0} @unroll:
      for i8 < {1} @unroll:
        {2}
)",
      rows, columns, stored);
  return LeafCase(text,
                  {{{rows, depth}, {depth + 1, 1}},
                   {{columns, depth}, {depth + 3, 1}},
                   {{rows, columns}, {columns + 2, 1}},
                   {{columns}, {1}}},
                  {{"e0", depth}}, data);
}

bool sums_apart(LeafCase& c) {
  const auto program = lower_leaf(c.leaf(), test_target(ir::IsaLevel::avx512));
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return program.ok() && contains(program->body, LeafOp::k_reduce_add);
}

TEST(LowerSums, RowsOfEverySize) {
  for (int64_t rows = 1; rows <= 6; ++rows) {
    for (const int64_t columns : {1, 2, 3, 4, 5, 7, 8, 11, 16, 17}) {
      if (rows * columns > 20) continue;
      for (const char* stored : {"p2[i7, i8] = r0[i7, i8] * 0.5", "p2[i7, i8] = r0[i7, i8] * p3[i8] * 0.5",
                                 "p2[i7, i8] = (r0[i7, i8] + p3[0]) * p3[i8]"}) {
        SCOPED_TRACE(fmt::format("{} x {}: {}", rows, columns, stored));
        LeafCase c = products(rows, columns, 37, stored);
        expect_leaf(c);
        const bool whole = rows * columns == 8 || rows * columns == 16;
        EXPECT_TRUE(!whole || !sums_apart(c));
      }
    }
  }
}

TEST(LowerSums, EveryDepth) {
  for (int64_t depth = 0; depth <= 40; ++depth) {
    LeafCase c = products(4, 4, depth, "p2[i7, i8] = r0[i7, i8] * p3[i8]");
    expect_leaf(c);
  }
}

// Each has its own number, or one that is not behind the one before.
TEST(LowerSums, NumbersThatDiffer) {
  for (const char* stored : {"p2[i7, i8] = r0[i7, i8] * p3[3 - i8]", "p2[i7, i8] = r0[i7, i8] * p3[i7]",
                             "p2[i7, 3 - i8] = r0[i7, i8] * p3[i8]", "p2[i7, i8] = r0[i7, i8] - p3[i7] * p3[i8]"}) {
    SCOPED_TRACE(stored);
    LeafCase c = products(4, 4, 37, stored);
    expect_leaf(c);
  }
}

int64_t count_of(const Nodes& body, LeafOp op) {
  int64_t out = 0;
  for (const Node& n : body) out += count_of(n.body, op) + (n.kind == Node::Kind::inst && n.inst.op == op);
  return out;
}

// What is the same in all rows happens once, up to the first step that differs.
TEST(LowerSums, RowsTakeTheSameNumbersAtOnce) {
  const auto products_of = [](int64_t rows, int64_t columns, const char* stored) {
    LeafCase c = products(rows, columns, 37, stored);
    const auto program = lower_leaf(c.leaf(), test_target(ir::IsaLevel::avx512));
    EXPECT_TRUE(program.ok());
    return program.ok() ? count_of(program->body, LeafOp::k_mul) : -1;
  };
  EXPECT_EQ(products_of(4, 4, "p2[i7, i8] = r0[i7, i8] * p3[i8] * 0.5"), 2);
  EXPECT_EQ(products_of(2, 8, "p2[i7, i8] = r0[i7, i8] * p3[i8] * 0.5"), 2);
  EXPECT_EQ(products_of(4, 4, "p2[i7, i8] = r0[i7, i8] * 0.5 * p3[i7]"), 1 + 4);
  EXPECT_EQ(products_of(4, 4, "p2[i7, i8] = r0[i7, i8] * p3[i7] * 0.5"), 4 + 4);
}

TEST(LowerSums, WhatIsStoredIsRead) {
  LeafCase c = products(4, 4, 37, "p2[i7, i8] += r0[i7, i8]");
  expect_leaf(c);
  EXPECT_TRUE(sums_apart(c));
}

TEST(LowerSums, SumsThatAreReadTwice) {
  LeafCase c = products(4, 4, 37, "p2[i7, i8] = r0[i7, i8] * r0[i7, i8]");
  expect_leaf(c);
  LeafCase other = products(4, 2, 37, "p2[i7, i8] = r0[i7, i8] * r0[i7, 0]");
  expect_leaf(other);
}

// One after another: the tree adds the same pairs.
TEST(LowerSums, TheSameBits) {
  LeafCase together = products(4, 4, 53, "p2[i7, i8] = r0[i7, i8] * 0.3", Data::normal);
  LeafCase apart = products(4, 4, 53, "p2[i7, i8] = r0[i7, i8] * 0.3", Data::normal);
  ir::Target wide = test_target(ir::IsaLevel::avx512);
  wide.level = ir::IsaLevel::portable;
  wide.mask_registers = 0;
  const auto a = lower_leaf(together.leaf(), test_target(ir::IsaLevel::avx512)), b = lower_leaf(apart.leaf(), wide);
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_TRUE(contains(b->body, LeafOp::k_reduce_add) && !contains(a->body, LeafOp::k_reduce_add));
  std::vector<ir::LeafSeg> segments;
  const ir::LeafArgs first = together.args(&segments), second = apart.args(&segments);
  execute_portable(*a, first);
  execute_portable(*b, second);
  EXPECT_EQ(std::memcmp(first.op[2].ptr, second.op[2].ptr, 4 * (3 * 6 + 4)), 0);
}

}  // namespace
}  // namespace lathe::jit
