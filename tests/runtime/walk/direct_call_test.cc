// A nest that is one call: which nests are, what of the arguments is written, and that a leaf gets what a walk would
// give it.
#include "runtime/walk/direct_call.h"

#include <gtest/gtest.h>

#include "ir/core/text_form.h"
#include "runtime/walk/nest_bind.h"
#include "runtime/walk/nest_walk.h"

namespace lathe::runtime {
namespace {

using ir::Expr;
using ir::NestCall;
using ir::NestNode;
using ir::symbol;

const Expr M = symbol("M"), K = symbol("K");

// A tile of `M` rows in a loop of one trip if M is at most 8; the leaf knows the unit strides and that of p1.
ir::CutKernel tile() {
  const Expr m0 = ir::iter("m0");
  NestCall c;
  c.leaves = {1};
  c.operands = {{0, ir::DType::f32, Expr(8) * m0 * K + 3, {K, 1}},
                {1, ir::DType::f32, Expr(0), {32, 1}},
                {2, ir::DType::f32, Expr(256) * m0, {M * 5, 1}}};
  c.extents = {ir::min(8, M - Expr(8) * m0)};
  c.segments = {{K, {}, {}}, {K, Expr(64), Expr(128)}};
  c.streams = {{1, 4096, {}, K * 128, 8}};
  NestNode call, loop;
  call.call = c;
  loop.kind = NestNode::Kind::loop;
  loop.iter = "m0";
  loop.extent = ir::ceildiv(M, 8);
  loop.parallel = true;
  loop.body = {call};
  ir::CutKernel cut;
  cut.nest.num_params = 3;
  cut.nest.phases = {loop};
  cut.leaves.resize(2);
  cut.leaves[1].kernel.buffers.resize(3);
  const std::vector<std::vector<Expr>> strides = {{Expr(), 1}, {32, 1}, {Expr(), 1}};
  for (size_t i = 0; i < 3; ++i) cut.leaves[1].kernel.buffers[i].strides = strides[i];
  cut.kernel.symbols = {{"M", 0, 4096}, {"K", 0, 4096}};
  return cut;
}

BoundNest bound(const ir::CutKernel& cut, int64_t m, int64_t k) {
  auto out = bind_nest(cut, {{"M", m}, {"K", k}}, {}, 2);
  EXPECT_TRUE(out.ok()) << out.status().to_string();
  return out.ok() ? std::move(out).value() : BoundNest{};
}

ir::LeafArgs seen;
ir::LeafSeg seen_segments[2];
void look(const ir::LeafArgs* args) {
  seen = *args;
  for (int64_t i = 0; i < args->nseg; ++i) seen_segments[i] = args->seg[i];
}

TEST(DirectCall, IsANestOfOneCallWhoseNumbersAreConstant) {
  EXPECT_TRUE(bound(tile(), 8, 64).direct.has_value());
  EXPECT_TRUE(bound(tile(), 1, 0).direct.has_value());
  EXPECT_FALSE(bound(tile(), 9, 64).direct.has_value());
  EXPECT_FALSE(bound(tile(), 0, 64).direct.has_value());
  ir::CutKernel scratch = tile();
  scratch.nest.scratch = {{"s", Expr(64), false}};
  EXPECT_FALSE(bound(scratch, 8, 64).direct.has_value());
  ir::CutKernel two = tile();
  two.nest.phases.push_back(two.nest.phases[0]);
  EXPECT_FALSE(bound(two, 8, 64).direct.has_value());
}

TEST(DirectCall, WritesWhatTheLeafReads) {
  const BoundNest nest = bound(tile(), 7, 64);
  ASSERT_TRUE(nest.direct.has_value());
  const DirectCall& call = *nest.direct;
  // Two strides, an extent and the step of a stream; three operands and the two ends of the stream.
  EXPECT_EQ(call.words.size(), 4u);
  EXPECT_EQ(call.addresses.size(), 5u);
  EXPECT_EQ(call.leaf, 1u);
  char x[64], w[64], y[64];
  void* const args[] = {x, w, y};
  call.run({look, nullptr, nullptr}, args);
  EXPECT_EQ(seen.op[0].ptr, x + 12);
  EXPECT_EQ(seen.op[0].stride[0], 256);
  EXPECT_EQ(seen.op[1].ptr, w);
  EXPECT_EQ(seen.op[2].ptr, y);
  EXPECT_EQ(seen.op[2].stride[0], 140);
  EXPECT_EQ(seen.extent[0], 7);
  EXPECT_EQ(seen.stream[0].ptr, w + 4096);
  EXPECT_EQ(seen.stream[0].step, 4 * 64 * 128 / 128);
  EXPECT_GT(seen.stream[0].end, seen.stream[0].ptr);
  ASSERT_EQ(seen.nseg, 2);
  EXPECT_EQ(seen_segments[0].len, 64);
  EXPECT_EQ(seen_segments[1].a_off, 64);
  EXPECT_EQ(seen_segments[1].b_off, 128);
}

// A copy, and a nest that moved, keep their segments.
TEST(DirectCall, OutlivesTheNestItWasCopiedFrom) {
  std::optional<DirectCall> copy;
  {
    BoundNest nest = bound(tile(), 8, 16);
    const BoundNest moved = std::move(nest);
    copy = moved.direct;
  }
  ASSERT_TRUE(copy.has_value());
  char memory[64];
  void* const args[] = {memory, memory, memory};
  copy->run({look, nullptr, nullptr}, args);
  ASSERT_EQ(seen.nseg, 2);
  EXPECT_EQ(seen_segments[1].len, 16);
}

// The walk's own way, which calls the leaf of that number.
TEST(DirectCall, IsWhatWalkDoes) {
  const BoundNest nest = bound(tile(), 8, 16);
  const LeafRef leaves[] = {{[](const ir::LeafArgs*) { FAIL() << "leaf 0 is called"; }, nullptr, nullptr},
                            {look, nullptr, nullptr}};
  char memory[64];
  void* const args[] = {memory, memory, memory};
  seen = {};
  walk(nest, leaves, args, nullptr, nullptr);
  EXPECT_EQ(seen.op[0].ptr, memory + 12);
  EXPECT_EQ(seen.extent[0], 8);
}

}  // namespace
}  // namespace lathe::runtime
