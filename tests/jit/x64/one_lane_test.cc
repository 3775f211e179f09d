// What is needed in one lane only is done in one, and slow operations on what all lanes share are: to the same bits.
#include "jit/x64/one_lane.h"

#include "tests/jit/x64/x64_test_util.h"

namespace lathe::jit {
namespace {
using namespace x64_test;
using x64::Lanes;

constexpr Shape kWide{ir::IsaLevel::avx512, 16};
constexpr int kVectors = 24, kMost = 1, kOne = 2, kShare = 3, kScaled = 4, kBack = 5, kPicked = 6;

Inst lane0(int src, int ptr) {
  Inst i = store(src, ptr, 0);
  i.op = LeafOp::k_store_lane0;
  return i;
}

// most = reduce_max(a); share = 1 / most; b[..] = a * share; c[0] = most is NaN ? 1 : most / share
LeafProgram rows(const Shape& shape) {
  LeafProgram p = empty_program(shape, "one_lane", 3);
  Node loop;
  loop.kind = Node::Kind::loop;
  loop.var = 0;
  loop.step = shape.lanes;
  loop.extent.arg = 0;
  Inst pick = arith(LeafOp::k_blend, kPicked, kBack, kOne);
  pick.mask = 0;
  loop.body = {inst(load(0, 0, 0)),
               inst(arith(LeafOp::k_reduce_max, kMost, 0)),
               inst(arith(LeafOp::k_constant, kOne, -1, -1, -1, 0x3f800000)),
               inst(arith(LeafOp::k_div, kShare, kOne, kMost)),
               inst(arith(LeafOp::k_mul, kScaled, 0, kShare)),
               inst(store(kScaled, 1, 0)),
               inst(arith(LeafOp::k_div, kBack, kMost, kShare)),
               inst(arith(LeafOp::k_cmp_unord, 0, kMost, kMost)),
               inst(pick),
               inst(lane0(kPicked, 2))};
  p.body = {loop};
  return p;
}

Operands operands(const Shape& shape) {
  Operands in;
  std::mt19937 random(3);
  const auto n = static_cast<size_t>(kVectors * shape.lanes);
  in.data = {test_values(random, n), std::vector<float>(n, -7.0f), std::vector<float>(n, -7.0f)};
  in.args.extent[0] = static_cast<int64_t>(n);
  return in;
}

std::string listing(const LeafProgram& p) {
  const auto image = compile_xbyak(p);
  EXPECT_TRUE(image.ok()) << image.status().to_string();
  return image.ok() ? disassemble({image->code.begin(), image->code.begin() + image->text_bytes}) : "";
}

TEST(OneLane, WhatIsReadInOneLaneIsMadeInOne) {
  const x64::OneLane lanes = x64::one_lane(rows(kWide));
  EXPECT_EQ(lanes.vectors[0], Lanes::all);
  EXPECT_EQ(lanes.vectors[kMost], Lanes::first);
  EXPECT_EQ(lanes.vectors[kShare], Lanes::repeated);
  EXPECT_EQ(lanes.vectors[kScaled], Lanes::all);
  EXPECT_EQ(lanes.vectors[kBack], Lanes::first);
  EXPECT_EQ(lanes.vectors[kPicked], Lanes::first);
  EXPECT_EQ(lanes.masks[0], 1);
  EXPECT_TRUE(x64::one_lane(rows({ir::IsaLevel::avx512, 8})).vectors.empty()) << "half the width";
}

TEST(OneLane, WhatSomeLaneReadsIsMadeInAll) {
  LeafProgram p = rows(kWide);
  Nodes& body = p.body[0].body;
  body[6].inst.src[1] = kScaled;  // differs by lane, but one is read
  EXPECT_EQ(x64::one_lane(p).vectors[kBack], Lanes::first);
  body[9] = inst(store(kPicked, 2, 0));
  EXPECT_EQ(x64::one_lane(p).vectors[kBack], Lanes::all) << "its lanes differ";
  EXPECT_EQ(x64::one_lane(p).vectors[kMost], Lanes::all);
  EXPECT_EQ(x64::one_lane(p).masks[0], 0);
  p = rows(kWide);
  p.body[0].body[9].inst.type = MemType::bf16;
  EXPECT_EQ(x64::one_lane(p).vectors[kPicked], Lanes::all) << "rounding looks at all of them";
  p = rows(kWide);
  p.body[0].body[1].inst.op = LeafOp::k_move;
  EXPECT_EQ(x64::one_lane(p).vectors[kShare], Lanes::all);
}

TEST(OneLane, EqualsThePortableExecutor) {
  int compared = 0;
  for (const Shape& shape : all_shapes()) {
    if (!can_run(shape)) continue;
    expect_equal(rows(shape), operands(shape), shape.name());
    ++compared;
  }
  if (compared == 0) GTEST_SKIP() << "the machine has neither AVX2 nor AVX-512";
}

TEST(OneLane, DividesOneLane) {
  const std::string text = listing(rows(kWide));
  if (text.empty()) GTEST_SKIP() << "objdump is not installed";
  for (size_t at = text.find("vdivps"); at != std::string::npos; at = text.find("vdivps", at + 1))
    EXPECT_EQ(text.substr(at, text.find('\n', at) - at).find("zmm"), std::string::npos) << text;
}

}  // namespace
}  // namespace lathe::jit
