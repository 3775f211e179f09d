// prefix_add and last_lane in the portable executor, against sums lane by lane; the generators are compared with that.
#include "tests/jit/x64/x64_test_util.h"

namespace lathe::jit {
namespace {
using namespace x64_test;

// One vector of operand 0 to operand 1.
std::vector<float> lanes_after(LeafOp op, int lanes, std::vector<float> in) {
  Shape shape;
  shape.level = ir::IsaLevel::portable;
  shape.lanes = lanes;
  LeafProgram p = empty_program(shape, leaf_op_name(op), 2);
  p.body = {inst(load(0, 0, -1)), inst(arith(op, 1, 0)), inst(store(1, 1, -1))};
  EXPECT_TRUE(verify_program(p).ok()) << verify_program(p).to_string();
  std::vector<float> out(in.size(), -7.0f);
  ir::LeafArgs args{};
  args.op[0].ptr = reinterpret_cast<char*>(in.data());
  args.op[1].ptr = reinterpret_cast<char*>(out.data());
  execute_portable(p, args);
  return out;
}

TEST(Prefix, SumsOfIntegersAreExact) {
  for (const int lanes : {8, 16}) {
    std::vector<float> in, sums;
    float sum = 0;
    for (int l = 0; l < lanes; ++l) {
      in.push_back(static_cast<float>((l * 7) % 11 - 4));
      sums.push_back(sum += in.back());
    }
    EXPECT_EQ(lanes_after(LeafOp::k_prefix_add, lanes, in), sums);
    EXPECT_EQ(lanes_after(LeafOp::k_last_lane, lanes, in), std::vector<float>(static_cast<size_t>(lanes), in.back()));
  }
}

// The order that the table states: lane 3 is (x3 + x2) + (x1 + x0).
TEST(Prefix, SumsRoundInTheOrderOfTheTable) {
  std::vector<float> in(8, 0.0f);
  in[0] = 1.0f;
  in[1] = 1e8f;
  in[2] = -1e8f;
  in[3] = 3.0f;
  const std::vector<float> out = lanes_after(LeafOp::k_prefix_add, 8, in);
  EXPECT_EQ(out[2], (in[2] + in[1]) + in[0]);
  EXPECT_EQ(out[3], (in[3] + in[2]) + (in[1] + in[0]));
  EXPECT_EQ(out[7], out[3]);
}

}  // namespace
}  // namespace lathe::jit
