// cut(): the worked examples of docs/ir.md fall into the documented nests and leaves.
#include "search/cut/cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/core/text_form.h"

namespace lathe::search {
namespace {

using ir::NestNode;
using testing::HasSubstr;

ir::CutKernel cut_text(const std::string& text) {
  ir::Result<ir::Kernel> kernel = ir::parse_kernel(text);
  EXPECT_TRUE(kernel.ok()) << kernel.status().to_string();
  if (!kernel.ok()) return {};
  ir::Result<ir::CutKernel> result = cut(*kernel);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.ok() ? std::move(result).value() : ir::CutKernel{};
}

constexpr const char* kGate = R"(
kernel gate(x: f32[M, 896] in, w: f32[4864, 896] const layout [0/32, 1, 0%32], b: f32[4864] const, y: f32[M, 4864] out) family matmul where M in 1..4096 numeric contract
  c: f32[8, 32] reg
  for n0 < 152 [n] @parallel:
    for m0 < ceildiv(M, 8) [m]:
      for m1 < min(8, M - 8*m0) [m] @unroll:
        for n1 < 2 [n] @unroll:
          for n2 < 16 [n] @vector:
            c[m1, 16*n1 + n2] = 0.0
      for k < 896 [k] @tensor(mma):
        prefetch w next m0 lines 4
        for m1b < min(8, M - 8*m0) [m] @unroll:
          for n1b < 2 [n] @unroll:
            for n2b < 16 [n] @vector:
              c[m1b, 16*n1b + n2b] += x[8*m0 + m1b, k] * w[32*n0 + 16*n1b + n2b, k]
      for m1c < min(8, M - 8*m0) [m] @unroll:
        for n1c < 2 [n] @unroll:
          for n2c < 16 [n] @vector:
            y[8*m0 + m1c, 32*n0 + 16*n1c + n2c] = c[m1c, 16*n1c + n2c] + b[32*n0 + 16*n1c + n2c]
)";

TEST(Cut, MatmulTileHasOneVariantPerRowCount) {
  const ir::CutKernel k = cut_text(kGate);
  ASSERT_EQ(k.leaves.size(), 8u);
  ASSERT_EQ(k.nest.phases.size(), 1u);
  const NestNode& panels = k.nest.phases[0];
  EXPECT_TRUE(panels.parallel);
  ASSERT_EQ(panels.body.size(), 1u);
  const NestNode& tiles = panels.body[0];
  ASSERT_EQ(tiles.body.size(), 1u);
  const ir::NestCall& call = tiles.body[0].call;
  ASSERT_EQ(call.variants.size(), 1u);
  EXPECT_EQ(call.variants[0].count, 8);
  ASSERT_EQ(call.operands.size(), 4u);
  EXPECT_EQ(ir::print(call.segments.at(0).len), "896");
  ASSERT_EQ(call.streams.size(), 1u);
  EXPECT_EQ(call.streams[0].operand, 1);
  EXPECT_EQ(ir::print(call.streams[0].block_bytes), "114688");
  EXPECT_EQ(call.streams[0].lines, 4);
  EXPECT_EQ(ir::print(call.operands[1].offset), "28672*n0");
  const std::string text = k.leaves[1].text;
  EXPECT_THAT(text, HasSubstr("p0: f32[_, _] in strides [?, 1], p1: f32[_, _] in strides [32, 1]"));
  EXPECT_THAT(text, HasSubstr("r0: f32[2, 32] reg"));
  EXPECT_THAT(text, HasSubstr("for i3 < seglen @tensor(mma):"));
  EXPECT_THAT(text, HasSubstr("r0[i4, 16*i5 + i6] += p0[i4, i3] * p1[i3, 16*i5 + i6]"));
}

// Whole tiles under whole panels: a loop of the leaf, unless a call's prefetch follows the calls.
constexpr const char* kWholeTiles = R"(
kernel scores(x: f32[64, 96] in, w: f32[96, 64] in, y: f32[64, 64] out) family matmul numeric contract
  c: f32[8, 32] reg
  for n0 < 2 [n] @parallel:
    for m0 < 8 [m]:
      for m1 < 8 [m] @unroll:
        for n1 < 2 [n] @unroll:
          for n2 < 16 [n] @vector:
            c[m1, 16*n1 + n2] = 0.0
      for k < 96 [k] @tensor(mma):
        for m1b < 8 [m] @unroll:
          for n1b < 2 [n] @unroll:
            for n2b < 16 [n] @vector:
              c[m1b, 16*n1b + n2b] += x[8*m0 + m1b, k] * w[k, 32*n0 + 16*n1b + n2b]
      for m1c < 8 [m] @unroll:
        for n1c < 2 [n] @unroll:
          for n2c < 16 [n] @vector:
            y[8*m0 + m1c, 32*n0 + 16*n1c + n2c] = c[m1c, 16*n1c + n2c]
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(Cut, WholeTilesAreALoopOfTheLeaf) {
  const ir::CutKernel k = cut_text(kWholeTiles);
  ASSERT_EQ(k.nest.phases.size(), 1u);
  ASSERT_EQ(k.nest.phases[0].body.size(), 1u);
  ASSERT_EQ(k.nest.phases[0].body[0].kind, NestNode::Kind::call);
  const ir::NestCall& call = k.nest.phases[0].body[0].call;
  ASSERT_EQ(call.extents.size(), 1u);
  EXPECT_EQ(ir::print(call.extents[0]), "8");
  EXPECT_EQ(ir::print(call.segments.at(0).len), "96");
  ASSERT_EQ(k.leaves.size(), 1u);
  EXPECT_THAT(k.leaves[0].text, HasSubstr("  for i0 < e0:\n    for i1 < 8 @unroll:"));
  EXPECT_THAT(k.leaves[0].text, HasSubstr("p0[8*i0 + i5, i4]"));
  // Without threads the panels are a loop as well.
  const ir::CutKernel all = cut_text(replaced(kWholeTiles, " @parallel", ""));
  EXPECT_EQ(all.nest.phases.at(0).kind, NestNode::Kind::call);
}

TEST(Cut, TilesThatFollowTheirCallAreACallEach) {
  const std::string text = kWholeTiles;
  const auto is_loop = [](const ir::CutKernel& k) {
    const NestNode& last = k.nest.phases.at(0).body.back();
    return last.kind == NestNode::Kind::loop && last.body.at(0).kind == NestNode::Kind::call;
  };
  EXPECT_TRUE(
      is_loop(cut_text(replaced(text, "@tensor(mma):\n", "@tensor(mma):\n        prefetch w next m0 lines 4\n"))));
  // Sums in memory.
  EXPECT_TRUE(is_loop(cut_text(replaced(text, "c: f32[8, 32] reg", "c: f32[8, 32] stack"))));
  // Another depth in each tile.
  EXPECT_TRUE(is_loop(cut_text(replaced(text, "for k < 96", "for k < min(96, 12*m0 + 12)"))));
  // Rows that no tile fills.
  std::string rest = text;
  for (const char* m : {"m1 < 8", "m1b < 8", "m1c < 8"})
    rest = replaced(rest, m, std::string(m).substr(0, std::string(m).size() - 1) + "min(8, 61 - 8*m0)");
  EXPECT_TRUE(is_loop(cut_text(rest)));
}

// Rows of w lie a page apart: each step prefetches of its own row, and no stream follows the call. Of rows that lie
// closer a stream does.
TEST(Cut, RowsThatLieApartArePrefetchedByTheirSteps) {
  const auto ahead = [](const char* columns) {
    std::string text = replaced(kWholeTiles, "w: f32[96, 64]", fmt::format("w: f32[96, {}]", columns));
    return cut_text(replaced(text, "@tensor(mma):\n", "@tensor(mma):\n        prefetch w ahead 256 lines 2\n"));
  };
  const ir::CutKernel apart = ahead("1024");
  const NestNode& only = apart.nest.phases.at(0).body.at(0);
  ASSERT_EQ(only.kind, NestNode::Kind::call);
  EXPECT_TRUE(only.call.streams.empty());
  EXPECT_THAT(apart.leaves.at(0).text, HasSubstr("prefetch p1 ahead 256 lines 2"));
  const ir::CutKernel near = ahead("1023");
  const NestNode& loop = near.nest.phases.at(0).body.at(0);
  ASSERT_EQ(loop.kind, NestNode::Kind::loop);
  ASSERT_EQ(loop.body.at(0).call.streams.size(), 1u);
  EXPECT_EQ(loop.body.at(0).call.streams[0].distance, 256);
  EXPECT_THAT(near.leaves.at(0).text, HasSubstr("prefetch p1 lines 2"));
}

// What stands beside the tiles under a panel is a leaf of its own, and so are they.
TEST(Cut, TilesBesideACopyAreALeafOfTheirOwn) {
  const ir::CutKernel k =
      cut_text(replaced(replaced(kWholeTiles, "  c: f32[8, 32] reg\n", "  c: f32[8, 32] reg\n  p: f32[96, 32] stack\n"),
                        "    for m0 < 8 [m]:\n",
                        "    for a < 96:\n      for b < 2 @unroll:\n        for l < 16 @vector:\n"
                        "          p[a, 16*b + l] = w[a, 32*n0 + 16*b + l]\n    for m0 < 8 [m]:\n"));
  ASSERT_EQ(k.nest.phases.at(0).body.size(), 2u);
  EXPECT_EQ(k.nest.phases[0].body[0].kind, NestNode::Kind::call);
  EXPECT_EQ(k.nest.phases[0].body[1].kind, NestNode::Kind::call);
}

TEST(Cut, MaskedColumnsBecomeAnExtent) {
  const ir::CutKernel k = cut_text(R"(
kernel scores(q: f32[7, 64] in, t: f32[64, L] in, y: f32[7, L] out) family matmul where L in 1..4096
  c: f32[7, 32] reg
  for n0 < ceildiv(L, 32):
    for m1 < 7 @unroll:
      for n1 < ceildiv(min(32, L - 32*n0), 16) @unroll:
        for n2 < min(16, min(32, L - 32*n0) - 16*n1) @vector:
          c[m1, 16*n1 + n2] = 0.0
    for k < 64 @tensor(mma):
      for m1b < 7 @unroll:
        for n1b < ceildiv(min(32, L - 32*n0), 16) @unroll:
          for n2b < min(16, min(32, L - 32*n0) - 16*n1b) @vector:
            c[m1b, 16*n1b + n2b] += q[m1b, k] * t[k, 32*n0 + 16*n1b + n2b]
    for m1c < 7 @unroll:
      for n1c < ceildiv(min(32, L - 32*n0), 16) @unroll:
        for n2c < min(16, min(32, L - 32*n0) - 16*n1c) @vector:
          y[m1c, 32*n0 + 16*n1c + n2c] = c[m1c, 16*n1c + n2c]
)");
  // Up to half of a tile, more than that, and a whole one.
  ASSERT_EQ(k.leaves.size(), 3u);
  const ir::NestCall& call = k.nest.phases[0].body[0].call;
  ASSERT_EQ(call.variants.size(), 1u);
  EXPECT_EQ(ir::print(call.variants[0].extent), "min(32, L - 32*n0)");
  ASSERT_EQ(call.leaves.size(), 32u);
  for (int columns = 1; columns <= 32; ++columns)
    EXPECT_EQ(call.leaves[static_cast<size_t>(columns - 1)], columns <= 16 ? 0 : columns < 32 ? 1 : 2) << columns;
  for (const int leaf : {0, 1}) {
    const std::string text = k.leaves[static_cast<size_t>(leaf)].text;
    EXPECT_THAT(text, HasSubstr(leaf == 0 ? "for i1 < 1 @unroll:" : "for i1 < 2 @unroll:")) << text;
    EXPECT_THAT(text, HasSubstr("for i2 < min(16, e0 - 16*i1) @vector:")) << text;
    EXPECT_THAT(text, HasSubstr(leaf == 0 ? "e0 in 1.." : "e0 in 17..")) << text;
    EXPECT_THAT(text, HasSubstr(leaf == 0 ? "r0: f32[7, 16] reg" : "r0: f32[7, 32] reg")) << text;
  }
  EXPECT_THAT(k.leaves[2].text, HasSubstr("for i2 < 16 @vector:")) << k.leaves[2].text;
}

// Constant columns: whole tiles without masks, and one tile of the vectors that hold what is left.
TEST(Cut, TheLastTileIsItsLiveVectors) {
  struct Case {
    int columns;
    size_t leaves;
    const char *vectors, *lanes, *reg;
  };
  for (const Case& c :
       {Case{33, 2, "for i1 < 1 @unroll:", "for i2 < min(16, 1 - 16*i1) @vector:", "r0: f32[3, 16] reg"},
        Case{48, 2, "for i1 < 1 @unroll:", "for i2 < 16 @vector:", "r0: f32[3, 32] reg"},
        Case{63, 2, "for i1 < 2 @unroll:", "for i2 < min(16, 31 - 16*i1) @vector:", "r0: f32[3, 32] reg"},
        Case{64, 1, "for i1 < 2 @unroll:", "for i2 < 16 @vector:", "r0: f32[3, 32] reg"}}) {
    const ir::CutKernel k = cut_text(fmt::format(R"(
kernel product(q: f32[3, 64] in, t: f32[64, {0}] in, y: f32[3, {0}] out) family matmul
  c: f32[3, 32] reg
  for n0 < ceildiv({0}, 32):
    for m1 < 3 @unroll:
      for n1 < ceildiv(min(32, {0} - 32*n0), 16) @unroll:
        for n2 < min(16, min(32, {0} - 32*n0) - 16*n1) @vector:
          c[m1, 16*n1 + n2] = 0.0
    for k < 64 @tensor(mma):
      for m1b < 3 @unroll:
        for n1b < ceildiv(min(32, {0} - 32*n0), 16) @unroll:
          for n2b < min(16, min(32, {0} - 32*n0) - 16*n1b) @vector:
            c[m1b, 16*n1b + n2b] += q[m1b, k] * t[k, 32*n0 + 16*n1b + n2b]
    for m1c < 3 @unroll:
      for n1c < ceildiv(min(32, {0} - 32*n0), 16) @unroll:
        for n2c < min(16, min(32, {0} - 32*n0) - 16*n1c) @vector:
          y[m1c, 32*n0 + 16*n1c + n2c] = c[m1c, 16*n1c + n2c]
)",
                                                 c.columns));
    ASSERT_EQ(k.leaves.size(), c.leaves) << c.columns;
    const std::string rest = k.leaves[0].text, whole = k.leaves.back().text;
    for (const char* part : {c.vectors, c.lanes, c.reg}) EXPECT_THAT(rest, HasSubstr(part)) << c.columns;
    EXPECT_THAT(whole, HasSubstr("for i2 < 16 @vector:"));
    EXPECT_THAT(whole, testing::Not(HasSubstr("e0"))) << whole;
  }
}

// More leaves than a group may have: one for all columns, which masks every vector.
TEST(Cut, ManyRowCountsShareTheLeavesOfColumns) {
  const ir::CutKernel k = cut_text(R"(
kernel scores(q: f32[M, 64] in, t: f32[64, L] in, y: f32[M, L] out) family matmul where M in 1..100, L in 1..4096
  c: f32[14, 32] reg
  for n0 < ceildiv(L, 32):
    for m0 < ceildiv(M, 14):
      for m1 < min(14, M - 14*m0) @unroll:
        for n1 < ceildiv(min(32, L - 32*n0), 16) @unroll:
          for n2 < min(16, min(32, L - 32*n0) - 16*n1) @vector:
            c[m1, 16*n1 + n2] = 0.0
      for m1c < min(14, M - 14*m0) @unroll:
        for n1c < ceildiv(min(32, L - 32*n0), 16) @unroll:
          for n2c < min(16, min(32, L - 32*n0) - 16*n1c) @vector:
            y[14*m0 + m1c, 32*n0 + 16*n1c + n2c] = c[m1c, 16*n1c + n2c]
)");
  EXPECT_EQ(k.leaves.size(), 14u);
  EXPECT_THAT(k.leaves[0].text, HasSubstr("for i1 < 2 @unroll:"));
}

// A packed panel is there whole where columns end inside it; one that always ends with its columns need not say so.
TEST(Cut, PaddedTilesStateTheirWidth) {
  const std::pair<int, const char*> cases[] = {{40, "p1: f32[_, 32] in strides [32, 1]"},
                                               {64, "p1: f32[_, _] in strides [32, 1]"}};
  for (const auto& [n, stated] : cases) {
    const ir::CutKernel k = cut_text(fmt::format(R"(
kernel product(q: f32[64] in, t: f32[64, {0}] const layout [1/32, 0, 1%32], y: f32[{0}] out) family matmul
  c: f32[32] reg
  for n0 < ceildiv({0}, 32):
    for n1 < ceildiv(min(32, {0} - 32*n0), 16) @unroll:
      for n2 < min(16, min(32, {0} - 32*n0) - 16*n1) @vector:
        c[16*n1 + n2] = 0.0
    for k < 64 @tensor(mma):
      for n1b < ceildiv(min(32, {0} - 32*n0), 16) @unroll:
        for n2b < min(16, min(32, {0} - 32*n0) - 16*n1b) @vector:
          c[16*n1b + n2b] += q[k] * t[k, 32*n0 + 16*n1b + n2b]
    for n1c < ceildiv(min(32, {0} - 32*n0), 16) @unroll:
      for n2c < min(16, min(32, {0} - 32*n0) - 16*n1c) @vector:
        y[32*n0 + 16*n1c + n2c] = c[16*n1c + n2c]
)",
                                                 n));
    for (const ir::Leaf& leaf : k.leaves) EXPECT_THAT(leaf.text, HasSubstr(stated)) << leaf.text;
  }
}

// A panel of a stack buffer that one statement fills has room for whole vectors past its last column; one that two fill
// has not.
TEST(Cut, OwnTilesStateTheirRoom) {
  for (const bool two : {false, true}) {
    const ir::CutKernel k = cut_text(fmt::format(R"(
kernel turn(s: f32[40, 24] in, d: f32[24, 40] out) family transpose
  t: f32[24, 16] stack
  for n0 < 3:
    for i < min(16, 40 - 16*n0) @tensor(transpose):
      for j < 24:
        t[j, i] = s[16*n0 + i, j]
{0}    for j2 < 24:
      for i2 < min(16, 40 - 16*n0) @vector:
        d[j2, 16*n0 + i2] = t[j2, i2]
)",
                                                 two ? "    for j1 < 24:\n      t[j1, 0] = 0.0\n" : ""));
    ASSERT_FALSE(k.leaves.empty());
    EXPECT_THAT(k.leaves[0].text,
                HasSubstr(two ? "p1: f32[_, _] out strides [16, 1]" : "p1: f32[_, 16] out strides [16, 1]"));
  }
}

// Edges of a transpose are code; a side known to be whole squares says so.
TEST(Cut, SidesOfWholeSquares) {
  const ir::CutKernel k = cut_text(R"(
kernel turn(s: f32[L, M] in, d: f32[M, L] out) family transpose where L in 1..4096, M in 0..4096 multiple 48
  for i < L @tensor(transpose):
    for j < M:
      d[j, i] = s[i, j]
)");
  ASSERT_EQ(k.leaves.size(), 1u);
  EXPECT_THAT(k.leaves[0].text, HasSubstr("e0 in 0..9223372036854775807, e1 in 0..9223372036854775807 multiple 16\n"))
      << k.leaves[0].text;
}

TEST(Cut, SoftmaxRowsAreOneLeaf) {
  const ir::CutKernel k = cut_text(R"(
kernel softmax(s: f32[B, N] in, d: f32[B, N] out) family row where B in 0..65536, N in 1..32768
  m: f32[] reg
  a: f32[] reg
  for b0 < ceildiv(B, 4) [row] @parallel:
    for b1 < min(4, B - 4*b0) [row]:
      m[] = -inf
      for n0 < ceildiv(N, 16) [col]:
        for n1 < min(16, N - 16*n0) [col] @vector:
          m[] fmax= s[4*b0 + b1, 16*n0 + n1]
      a[] = 0.0
      for n2 < ceildiv(N, 16) [col]:
        for n3 < min(16, N - 16*n2) [col] @vector:
          d[4*b0 + b1, 16*n2 + n3] = exp(s[4*b0 + b1, 16*n2 + n3] - m[])
          a[] += d[4*b0 + b1, 16*n2 + n3]
      for n4 < ceildiv(N, 16) [col]:
        for n5 < min(16, N - 16*n4) [col] @vector:
          d[4*b0 + b1, 16*n4 + n5] = d[4*b0 + b1, 16*n4 + n5] / a[]
)");
  ASSERT_EQ(k.leaves.size(), 1u);
  EXPECT_THAT(k.leaves[0].text, HasSubstr("for i0 < e0:"));
  EXPECT_THAT(k.leaves[0].text, HasSubstr("for i1 < ceildiv(e1, 16):"));
  EXPECT_THAT(k.leaves[0].text, HasSubstr("for i2 < min(16, e1 - 16*i1) @vector:"));
  EXPECT_THAT(k.leaves[0].text, HasSubstr("p1: f32[_, _] out strides [?, 1]"));
  const ir::NestCall& call = k.nest.phases[0].body[0].call;
  EXPECT_EQ(ir::print(call.operands[0].offset), "4*N*b0");
  EXPECT_EQ(ir::print(call.operands[0].strides[0]), "N");
}

TEST(Cut, RegistersThatCrossALeafAreRefused) {
  ir::Result<ir::Kernel> kernel = ir::parse_kernel(R"(
kernel bad(s: f32[64] in, d: f32[64] out) family row
  m: f32[] reg
  m[] = 0.0
  for i < 4 @parallel:
    for j < 16 @vector:
      d[16*i + j] = s[16*i + j] + m[]
)");
  ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
  // The phases share a register: each becomes a leaf of its own, which would read an undefined value.
  EXPECT_FALSE(cut(*kernel).ok());
}

// A leaf is not called where an unrolled extent is 0: its other statements would be lost.
TEST(Cut, AnUnrolledRestThatMayBeEmptyIsNoPartOfALargerLeaf) {
  const std::string rest = R"(
kernel sums(x: f32[N] in, y: f32[] out) where N in 1..64
  s: f32[] PLACE
  s[] = 0.0
  for i0 < N // 8:
    for i1 < 8 @vector:
      s[] += x[8*i0 + i1]
  for i2 < N % 8 @unroll:
    s[] += x[i2 + 8*(N // 8)]
  y[] = s[]
)";
  const auto at = [&](const char* place) { return std::string(rest).replace(rest.find("PLACE"), 5, place); };
  ir::Result<ir::Kernel> shared = ir::parse_kernel(at("reg"));
  ASSERT_TRUE(shared.ok()) << shared.status().to_string();
  EXPECT_THAT(cut(*shared).status().to_string(), HasSubstr("may be 0"));
  EXPECT_EQ(cut_text(at("stack")).nest.phases.size(), 4u);  // the rest alone may be skipped
}

TEST(Cut, ConstantRowsMakeOnlyTheTilesThatHappen) {
  std::string text = kGate;
  const std::string symbolic = "[M, ", fixed = "[20, ";
  for (size_t at; (at = text.find(symbolic)) != std::string::npos;) text.replace(at, symbolic.size(), fixed);
  text.replace(text.find(" where M in 1..4096"), 19, "");
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{"ceildiv(M, 8)", "3"}, {"M - 8*m0", "20 - 8*m0"}}) {
    for (size_t at; (at = text.find(from)) != std::string::npos;) text.replace(at, from.size(), to);
  }
  const ir::CutKernel k = cut_text(text);
  ASSERT_EQ(k.leaves.size(), 2u);  // 8 rows and the last 4
  EXPECT_THAT(k.leaves[0].text, HasSubstr("r0: f32[4, 32] reg"));
  EXPECT_THAT(k.leaves[1].text, HasSubstr("r0: f32[8, 32] reg"));
}

// The extents of rows that end one after another are no vectors of a longer row, even if each is one vector.
TEST(Cut, RowsThatEndOneAfterAnotherAreNoVectorsOfOne) {
  const ir::CutKernel k = cut_text(R"(
kernel fill(t: f32[8, 8] out) family row
  for i < 8 @unroll:
    for z < 7 - i @vector:
      t[i, i + z + 1] = 0.0
)");
  ASSERT_EQ(k.leaves.size(), 1u);
  EXPECT_THAT(ir::print(k.leaves[0].kernel), HasSubstr("for i1 < min(8, e0 - 1*i0) @vector:"));
}

// A loop of vectors that runs at most once: nothing of the tile's size is left in its extent.
TEST(Cut, ALoopOfOneVectorIsMasked) {
  const ir::CutKernel k = cut_text(R"(
kernel clear(t: f32[M, 13] out) family row where M in 1..7
  for i < M:
    for v < ceildiv(i - M + 14, 16):
      for l < i - M + 14 - 16*v @vector:
        t[i, 16*v + l] = 0.0
)");
  ASSERT_EQ(k.leaves.size(), 1u);
  EXPECT_THAT(ir::print(k.leaves[0].kernel), HasSubstr("for i1 < min(16, e0 - 16*i0) @vector:"));
}

TEST(Pack, PanelsAreCopiedAndPadded) {
  ir::Result<ir::Kernel> kernel = ir::parse_kernel(R"(
kernel k(w: f32[40, 8] const layout [0/32, 1, 0%32], y: f32[40] out) family matmul
  for n < 40:
    y[n] = w[n, 0]
)");
  ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
  ir::Result<ir::Kernel> pack = pack_kernel(*kernel, "w");
  ASSERT_TRUE(pack.ok()) << pack.status().to_string();
  const std::string text = ir::print(*pack);
  EXPECT_THAT(text, HasSubstr("dst: f32[2, 8, 32] out"));
  EXPECT_THAT(text, HasSubstr("dst[z0, z1, z2] = 0.0"));
  EXPECT_THAT(text, HasSubstr("dst[d0, d1, d2] = src[32*d0 + d2, d1]"));
}

// Rows that integers choose: the loop over them is the nest's, which reads each, and a row is a leaf.
constexpr const char* kChosenRows = R"(
kernel rows(t: bf16[P, N] in, ids: i32[A, T] in values 0..P - 1 strides [100, 1], y: bf16[A, T, N] out) where P in 1..50000, N in 1..1024, T in 1..64, A in 1..8
  for a < A [row]:
    for i < T [row]:
      for j < ceildiv(N, 16) [col]:
        for l < min(16, N - 16*j) [col] @vector:
          y[a, i, 16*j + l] = t[i64(ids[a, i]), 16*j + l]
)";

TEST(Cut, ALoadedIndexIsAnIntegerOfTheNest) {
  const ir::CutKernel k = cut_text(kChosenRows);
  ASSERT_EQ(k.leaves.size(), 1u);
  EXPECT_EQ(k.leaves[0].text.substr(0, k.leaves[0].text.find(" family")),
            "kernel leaf(p0: bf16[_] in strides [1], p1: bf16[_] out strides [1])");
  const NestNode& rows = k.nest.phases.at(0).body.at(0);
  EXPECT_EQ(rows.iter, "i");
  const ir::NestCall& call = rows.body.at(0).call;
  ASSERT_EQ(call.operands.size(), 2u);
  EXPECT_EQ(ir::print(call.operands[0].offset), "N*i64(ids[100*a + i])");
}

// What never runs reads nothing, and what runs once at most reads in its loop.
TEST(Cut, IntegersOfFewRowsAreReadInTheirLoop) {
  for (const char* const rows : {"0", "T", "min(T, 1)"}) {
    const std::string extent = rows, size = extent == "0" ? "0" : "T";
    const ir::CutKernel k = cut_text("kernel rows(t: f32[3, 8] in, ids: i32[" + size + "] in values 0..2, y: f32[" +
                                     size + ", 8] out) where T in 0.." + (extent == "T" ? "1" : "9") + "\n  for i < " +
                                     extent + ":\n    for j < 8:\n      y[i, j] = t[i64(ids[i]), j]\n");
    ASSERT_EQ(k.nest.phases.size(), 1u) << rows;
    EXPECT_EQ(k.nest.phases[0].iter, "i") << rows;
    EXPECT_EQ(ir::print(k.nest.phases[0].body.at(0).call.operands.at(0).offset), "8*i64(ids[0])") << rows;
  }
}

TEST(Cut, IntegersOfTheNestAreReadWhereTheyAreProvenToLie) {
  const auto refusal = [](const std::string& from, const std::string& to) {
    std::string text = kChosenRows;
    text.replace(text.find(from), from.size(), to);
    ir::Result<ir::Kernel> kernel = ir::parse_kernel(text);
    EXPECT_TRUE(kernel.ok()) << kernel.status().to_string();
    return cut(*kernel).status().to_string();
  };
  EXPECT_THAT(refusal("ids[a, i]", "ids[a, i + 1]"), HasSubstr("the nest reads ids: dimension 1: index i + 1"));
  EXPECT_THAT(refusal("i64(ids[a, i])", "i64(ids[a, i] + 1:i32)"), HasSubstr("the nest computes i64"));
  // The scope inside the leaf says that i + 3 < T where it runs; the walk reads where it does not, too.
  EXPECT_THAT(refusal("for j < ceildiv(N, 16) [col]:", "for j < min(ceildiv(N, 16), i64(ids[a, i + 3])) [col]:"),
              HasSubstr("the nest reads ids: dimension 1: index i + 3"));
  // Of several inputs with and without a range it reads those with one.
  std::string two = kChosenRows;
  two.replace(two.find("y: bf16"), 0, "more: i32[A, T] in, ");
  two.replace(two.find("ids[a, i])"), 10, "more[a, i])");
  EXPECT_THAT(cut(*ir::parse_kernel(two)).status().to_string(),
              HasSubstr("the nest reads more: expected an input with a range of values"));
}

}  // namespace
}  // namespace lathe::search
