// A program of one operation on lanes of 32 bits, and its results, for comparisons bit for bit.
#pragma once
#include "tests/jit/x64/x64_test_util.h"

namespace lathe::jit::x64_test {

using Lanes = std::vector<uint32_t>;

enum class Second { in_register, folded, broadcast };

// The results of operand 3: operands 0 to 2 vector by vector; a broadcast repeats the first element of each vector.
inline LeafProgram program_of(const Shape& shape, LeafOp op, Second second, bool in_place) {
  LeafProgram p = empty_program(shape, leaf_op_name(op), 4);
  Node loop;
  loop.kind = Node::Kind::loop;
  loop.var = 0;
  loop.step = shape.lanes;
  loop.extent.arg = 0;
  loop.body = {inst(load(0, 0, 0)), inst(load(2, 2, 0)), inst(load(1, 1, 0))};
  if (second == Second::broadcast) loop.body.back().inst.op = LeafOp::k_load_bcast;
  const bool dot = leaf_op_sources(op) == 3;
  const int to = !in_place ? 3 : dot ? 2 : 0;
  loop.body.push_back(inst(arith(op, to, 0, 1, dot ? 2 : -1)));
  loop.body.push_back(inst(store(to, 3, 0)));
  if (second == Second::in_register) loop.body.push_back(inst(store(1, 1, 0)));  // a second use
  p.body = {loop};
  return p;
}

template <class Run>
Lanes results(const std::vector<Lanes>& in, Run&& run) {
  std::vector<Lanes> data = in;
  data.emplace_back(in[0].size());
  ir::LeafArgs args{};
  for (size_t s = 0; s < data.size(); ++s) args.op[s].ptr = reinterpret_cast<char*>(data[s].data());
  args.extent[0] = static_cast<int64_t>(in[0].size());
  run(args);
  return data[3];
}

}  // namespace lathe::jit::x64_test
