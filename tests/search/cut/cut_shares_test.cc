// Loops that prefetch the next block in shares: each call of their leaf has a stream.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"
#include "search/cut/cut.h"

namespace lathe::search {
namespace {

using ir::NestNode;
using testing::HasSubstr;

ir::CutKernel cut_text(const std::string& text) {
  const ir::Result<ir::Kernel> kernel = ir::parse_kernel(text);
  EXPECT_TRUE(kernel.ok()) << kernel.status().to_string();
  if (!kernel.ok()) return {};
  ir::Result<ir::CutKernel> result = cut(*kernel);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.ok() ? std::move(result).value() : ir::CutKernel{};
}

// Sums in a loop of their own. Each tile of rows fetches a share of the next panel.
constexpr const char* kShared = R"(
kernel shared(x: f32[64, 96] in, w: f32[128, 96] const layout [0/32, 1, 0%32], y: f32[64, 128] out) family matmul
  c: f32[32] reg
  for n0 < 4 [n]:
    for m0 < 64 [m]:
      for n1 < 2 [n] @unroll:
        for n2 < 16 [n] @vector:
          c[16*n1 + n2] = 0.0
      for k < 96 [k]:
        prefetch w next m0 lines 2
        for n1b < 2 [n] @unroll:
          for n2b < 16 [n] @vector:
            c[16*n1b + n2b] += x[m0, k] * w[32*n0 + 16*n1b + n2b, k]
      for n1c < 2 [n] @unroll:
        for n2c < 16 [n] @vector:
          y[m0, 32*n0 + 16*n1c + n2c] = c[16*n1c + n2c]
)";

TEST(CutShares, ALoopThatSharesOutTheNextBlockHasAStreamOfItsCall) {
  const ir::CutKernel k = cut_text(kShared);
  ASSERT_EQ(k.nest.phases.size(), 1u);
  const NestNode& panels = k.nest.phases[0];
  ASSERT_EQ(panels.kind, NestNode::Kind::loop);
  const NestNode& tiles = panels.body.at(0);
  ASSERT_EQ(tiles.kind, NestNode::Kind::loop);
  const ir::NestCall& call = tiles.body.at(0).call;
  ASSERT_EQ(call.streams.size(), 1u);
  const ir::NestStream& stream = call.streams[0];
  const std::string from = ir::print(call.operands.at(static_cast<size_t>(stream.operand)).offset);
  EXPECT_THAT(from, HasSubstr("n0"));
  EXPECT_EQ(stream.spread_iter, "m0");
  EXPECT_EQ(ir::print(stream.block_bytes), "12288");
  EXPECT_EQ(stream.lines, 2);
  EXPECT_THAT(k.leaves.at(0).text, HasSubstr(fmt::format("prefetch p{} lines 2", stream.operand)));
  // Without it all of the loops are one leaf.
  std::string without = kShared;
  const std::string line = "        prefetch w next m0 lines 2\n";
  without.erase(without.find(line), line.size());
  const ir::CutKernel all = cut_text(without);
  EXPECT_EQ(all.nest.phases.at(0).kind, NestNode::Kind::call);
  // No block follows the loop that is named.
  std::string outermost = kShared;
  outermost.replace(outermost.find("next m0"), 7, "next n0");
  const auto kernel = ir::parse_kernel(outermost);
  ASSERT_TRUE(kernel.ok());
  EXPECT_FALSE(cut(*kernel).ok());
}

// What calls of a nest prefetch of a buffer that they need not read: by iteration of `scope`, the elements' lines.
struct Fetched {
  const ir::CutKernel& cut;
  std::string scope;
  int64_t steps;  // of a call's tensor loop
  std::map<int64_t, std::set<int64_t>> lines;

  void visit(const std::vector<NestNode>& nodes, ir::SymbolValues& at) {
    for (const NestNode& n : nodes) {
      if (n.kind == NestNode::Kind::call) {
        for (const ir::NestStream& s : n.call.streams) note(s, at);
        continue;
      }
      const int64_t extent = ir::evaluate(n.extent, at).value_or(0);
      for (int64_t i = 0; i < extent; ++i) {
        at[n.iter] = i;
        visit(n.body, at);
      }
    }
  }
  void note(const ir::NestStream& s, const ir::SymbolValues& at) {
    ASSERT_TRUE(s.share.offset);
    const int64_t from = 4 * ir::evaluate(s.share.offset, at).value(), step = ir::evaluate(s.share_step, at).value();
    for (int64_t turn = 0; turn < (steps + 3) / 4; ++turn) {
      for (int64_t line = 0; line < s.lines; ++line) lines[at.at(scope)].insert((from + turn * step) / 64 + line);
    }
  }
};

// The lines of rows [row, row + rows) and columns [column, column + columns) of floats, so many in a row.
std::set<int64_t> lines_of(int64_t row, int64_t rows, int64_t column, int64_t columns, int64_t width) {
  std::set<int64_t> out;
  for (int64_t r = row; r < row + rows; ++r) {
    for (int64_t c = column; c < column + columns; ++c) out.insert((r * width + c) * 4 / 64);
  }
  return out;
}

// A block of rows of b, whose panels are copied and walked by tiles of four rows: each call has a share of the block
// after this one.
std::string blocks(int64_t depth, int64_t lines) {
  return fmt::format(R"(
kernel blocks(a: f32[8, 256] in, b: f32[256, 256] in, y: f32[8, 128] out) family matmul
  c: f32[8, 128] stack
  ct: f32[4, 32] reg
  bp: f32[{0}, 32] stack
  for z < 8:
    for z1 < 128:
      c[z, z1] = 0.0
  for k0 < {1} [k]:
    for n0 < 4 [n]:
      for p < {0}:
        for p1 < 32:
          bp[p, p1] = b[{0}*k0 + p, 32*n0 + p1]
      for m0 < 2 [m]:
        for m1 < 4 [m] @unroll:
          for n1 < 2 [n] @unroll:
            for n2 < 16 [n] @vector:
              ct[m1, 16*n1 + n2] = c[4*m0 + m1, 32*n0 + 16*n1 + n2]
        for k < {0} [k] @tensor(mma):
          prefetch b next k0 lines {2}
          for m1b < 4 [m] @unroll:
            for n1b < 2 [n] @unroll:
              for n2b < 16 [n] @vector:
                ct[m1b, 16*n1b + n2b] += a[4*m0 + m1b, {0}*k0 + k] * bp[k, 16*n1b + n2b]
        for m1c < 4 [m] @unroll:
          for n1c < 2 [n] @unroll:
            for n2c < 16 [n] @vector:
              c[4*m0 + m1c, 32*n0 + 16*n1c + n2c] = ct[m1c, 16*n1c + n2c]
  for e < 8:
    for e1 < 128:
      y[e, e1] = c[e, e1]
)",
                     depth, 256 / depth, lines);
}

TEST(CutShares, CallsShareOutTheBlockThatTheNextIterationReads) {
  // Pieces of rows, whole rows, lines of several rows; and more lines than there are.
  for (const auto& [depth, lines] : {std::pair<int64_t, int64_t>{4, 4}, {8, 4}, {16, 4}, {32, 4}, {64, 4}, {32, 5}}) {
    const ir::CutKernel k = cut_text(blocks(depth, lines));
    Fetched all{k, "k0", depth, {}};
    ir::SymbolValues at;
    all.visit(k.nest.phases, at);
    ASSERT_EQ(all.lines.size(), static_cast<size_t>(256 / depth));
    for (const auto& [block, fetched] : all.lines) {
      const std::set<int64_t> next = lines_of((block + 1) * depth, depth, 0, 128, 256);
      EXPECT_TRUE(std::includes(fetched.begin(), fetched.end(), next.begin(), next.end()))
          << "depth " << depth << " lines " << lines << " block " << block;
      EXPECT_TRUE(lines > 4 || fetched == next) << "depth " << depth << " lines " << lines << " block " << block;
    }
  }
}

// The first tile of each panel stands alone and copies what it reads: its calls have shares before those of the others.
std::string first_copies(int64_t depth, int64_t lines, int64_t tiles) {
  return fmt::format(R"(
kernel first(a: f32[{3}, 256] in, b: f32[256, 256] in, y: f32[{3}, 128] out) family matmul
  c: f32[{3}, 128] stack
  ct: f32[4, 32] reg
  cu: f32[4, 32] reg
  bp: f32[{0}, 32] stack
  for z < {3}:
    for z1 < 128:
      c[z, z1] = 0.0
  for k0 < {1} [k]:
    for n0 < 4 [n]:
      for m1 < 4 [m] @unroll:
        for n1 < 2 [n] @unroll:
          for n2 < 16 [n] @vector:
            ct[m1, 16*n1 + n2] = c[m1, 32*n0 + 16*n1 + n2]
      for p < {0} [k] @tensor(mma):
        prefetch b next k0 lines {2}
        for p1 < 2 @unroll:
          for p2 < 16 @vector:
            bp[p, 16*p1 + p2] = b[{0}*k0 + p, 32*n0 + 16*p1 + p2]
        for m1b < 4 [m] @unroll:
          for n1b < 2 [n] @unroll:
            for n2b < 16 [n] @vector:
              ct[m1b, 16*n1b + n2b] += a[m1b, {0}*k0 + p] * b[{0}*k0 + p, 32*n0 + 16*n1b + n2b]
      for m1c < 4 [m] @unroll:
        for n1c < 2 [n] @unroll:
          for n2c < 16 [n] @vector:
            c[m1c, 32*n0 + 16*n1c + n2c] = ct[m1c, 16*n1c + n2c]
      for m0 < {4} [m]:
        for l1 < 4 [m] @unroll:
          for o1 < 2 [n] @unroll:
            for o2 < 16 [n] @vector:
              cu[l1, 16*o1 + o2] = c[4*m0 + l1 + 4, 32*n0 + 16*o1 + o2]
        for k < {0} [k] @tensor(mma):
          prefetch b next k0 lines {2}
          for l1b < 4 [m] @unroll:
            for o1b < 2 [n] @unroll:
              for o2b < 16 [n] @vector:
                cu[l1b, 16*o1b + o2b] += a[4*m0 + l1b + 4, {0}*k0 + k] * bp[k, 16*o1b + o2b]
        for l1c < 4 [m] @unroll:
          for o1c < 2 [n] @unroll:
            for o2c < 16 [n] @vector:
              c[4*m0 + l1c + 4, 32*n0 + 16*o1c + o2c] = cu[l1c, 16*o1c + o2c]
  for e < {3}:
    for e1 < 128:
      y[e, e1] = c[e, e1]
)",
                     depth, 256 / depth, lines, 4 * tiles, tiles - 1);
}

TEST(CutShares, TensorScopesThatStandApartShareOutTheSameBlock) {
  for (const int64_t tiles : {2, 4}) {
    const ir::CutKernel k = cut_text(first_copies(16, 16 / (2 * tiles), tiles));
    Fetched all{k, "k0", 16, {}};
    ir::SymbolValues at;
    all.visit(k.nest.phases, at);
    ASSERT_EQ(all.lines.size(), 16u);
    for (const auto& [block, fetched] : all.lines)
      EXPECT_EQ(fetched, lines_of((block + 1) * 16, 16, 0, 128, 256)) << tiles << " tiles, block " << block;
    // A step of the first tile reads b, which it also copies; nobody else reads it.
    int readers = 0;
    for (const ir::Leaf& leaf : k.leaves) readers += leaf.text.find("@tensor(mma)") != std::string::npos;
    EXPECT_EQ(readers, 2) << "the first tile and the others";
  }
}

TEST(CutShares, ABlockOfRowsLiesTogether) {
  // Panels of whole rows of b, transposed.
  const ir::CutKernel k = cut_text(R"(
kernel rows(a: f32[4, 64] in, b: f32[128, 64] in, y: f32[4, 128] out) family matmul
  ct: f32[4, 16] reg
  bt: f32[16, 64] stack layout [1, 0]
  for n0 < 8 [n]:
    for p < 16 @tensor(transpose):
      for p1 < 64:
        bt[p, p1] = b[16*n0 + p, p1]
    for m1 < 4 [m] @unroll:
      for n2 < 16 [n] @vector:
        ct[m1, n2] = 0.0
    for k < 64 [k] @tensor(mma):
      prefetch b next n0 lines 4
      for m1b < 4 [m] @unroll:
        for n2b < 16 [n] @vector:
          ct[m1b, n2b] += a[m1b, k] * bt[n2b, k]
    for m1c < 4 [m] @unroll:
      for n2c < 16 [n] @vector:
        y[m1c, 16*n0 + n2c] = ct[m1c, n2c]
)");
  Fetched all{k, "n0", 64, {}};
  ir::SymbolValues at;
  all.visit(k.nest.phases, at);
  ASSERT_EQ(all.lines.size(), 8u);
  for (const auto& [panel, fetched] : all.lines)
    EXPECT_EQ(fetched, lines_of(16 * (panel + 1), 16, 0, 64, 64)) << "panel " << panel;
}

// A copy of what the next iteration of h0 needs has its share in a loop that reads something else: the lines of each of
// its iterations.
std::string heads(const char* outer, const char* inner) {
  return fmt::format(R"(
kernel heads(k: f32[4, 64, 16] in, x: f32[4, 8, 4, 16] in, y: f32[4, 8, 4, 16] out) family row
  kp: f32[64, 16] stack
  for h0 < 4:
    for p < 64:
      for p1 < 16:
        kp[p, p1] = k[h0, p, p1]
    for b < 8:
      for r < 4:
{}        for c < 16:
{}          y[h0, b, r, c] = x[h0, b, r, c] * kp[r, c]
)",
                     outer, inner);
}

TEST(CutShares, ALoopSharesOutWhatItDoesNotRead) {
  const ir::CutKernel k = cut_text(heads("        prefetch k next h0 lines 2\n", ""));
  Fetched all{k, "h0", 4 * 8 * 4, {}};  // 32 turns a call
  ir::SymbolValues at;
  all.visit(k.nest.phases, at);
  ASSERT_EQ(all.lines.size(), 4u);
  for (const auto& [head, fetched] : all.lines) EXPECT_EQ(fetched, lines_of(64 * (head + 1), 64, 0, 16, 16)) << head;
  // One line a turn: half of it.
  const ir::CutKernel half = cut_text(heads("        prefetch k next h0 lines 1\n", ""));
  Fetched some{half, "h0", 4 * 8 * 4, {}};
  some.visit(half.nest.phases, at);
  EXPECT_EQ(some.lines.at(1), lines_of(64 * 2, 32, 0, 16, 16));
  // In the loop inside of it, 16 times as many.
  const ir::CutKernel inner = cut_text(heads("", "          prefetch k next h0 lines 1\n"));
  Fetched more{inner, "h0", 4 * 8 * 4 * 16, {}};
  more.visit(inner.nest.phases, at);
  EXPECT_TRUE(
      std::includes(more.lines.at(1).begin(), more.lines.at(1).end(), all.lines.at(1).begin(), all.lines.at(1).end()));
}

}  // namespace
}  // namespace lathe::search
