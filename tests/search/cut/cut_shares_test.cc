// Loops that prefetch the next block in shares: each call of their leaf has a stream.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lathe::search
