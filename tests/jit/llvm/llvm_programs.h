// Hand-built leaf programs with loops, segments, streams and masks, and arguments to run them on;
// used by several LLVM tests.
#pragma once
#include "tests/jit/llvm/llvm_test_util.h"

namespace lathe::jit::llvm_test {

inline Node block(Node::Kind kind, Nodes body) {
  Node n;
  n.kind = kind;
  n.body = std::move(body);
  return n;
}
inline Node count_loop(int var, int64_t step, Extent extent, Nodes body) {
  Node n = block(Node::Kind::loop, std::move(body));
  n.var = var;
  n.step = step;
  n.extent = extent;
  return n;
}

// c[rows, vectors * lanes] = sum over segments and k of a[row, k] * b[k, column], b walked by a
// stride, one prefetch stream.
inline LeafProgram matmul_tile(const Shape& s, int rows, int vectors) {
  LeafProgram p = empty_program(s, fmt::format("tile_{}x{}", rows, vectors * s.lanes), 3);
  constexpr int kSegA = 3, kSegB = 4, kStream = 5, kRow = 6;
  p.ptrs.resize(static_cast<size_t>(kRow + 2 * rows));
  p.ptrs[kStream].stream = 0;
  const int accumulators = rows * vectors, b0 = accumulators, a0 = b0 + vectors;
  p.num_vregs = a0 + 1;
  Nodes steps, entry, end;
  for (int v = 0; v < vectors; ++v) {
    Inst b = load(b0 + v, kSegB);
    b.mem.disp = v * s.lanes * 4;
    steps.push_back(inst(b));
  }
  for (int r = 0; r < rows; ++r) {
    Node row;
    row.kind = Node::Kind::set_ptr;
    row.from = kSegA;
    row.steps = {{kRow + r, 0, {{0, r}}}};
    entry.push_back(row);
    row.from = 2;
    row.steps = {{kRow + rows + r, 0, {{2 * ir::kMaxLeafStrides, r}}}};
    end.push_back(row);
    Inst a = load(a0, kRow + r, 0);
    a.op = LeafOp::k_load_bcast;
    steps.push_back(inst(a));
    for (int v = 0; v < vectors; ++v) {
      const int c = r * vectors + v;
      p.body.push_back(inst(arith(LeafOp::k_constant, c)));
      steps.push_back(inst(arith(LeafOp::k_fma, c, a0, b0 + v, c)));
      Inst to = store(c, kRow + rows + r);
      to.mem.disp = v * s.lanes * 4;
      end.push_back(inst(to));
    }
  }
  Inst touch{LeafOp::k_prefetch};
  touch.mem.ptr = kStream;
  steps.push_back(inst(touch));
  Node stream;
  stream.kind = Node::Kind::add_stream;
  stream.from = 0;
  stream.steps = {{kStream, 0, {}}};
  steps.push_back(stream);
  Node k = count_loop(0, 1, {Extent::kSegLen, 0}, std::move(steps));
  k.steps = {{kSegB, 0, {{1 * ir::kMaxLeafStrides, 1}}}};
  entry.push_back(k);
  Node segments = block(Node::Kind::segments, std::move(entry));
  segments.seg_ptr_a = kSegA;
  segments.seg_base_a = 0;
  segments.seg_ptr_b = kSegB;
  segments.seg_base_b = 1;
  p.body.push_back(segments);
  p.body.insert(p.body.end(), end.begin(), end.end());
  return p;
}

// d[row, i] = (s[row, i] - max of the row) * 3 where that is above -20, else 0; e0 rows of e1,
// masked tail, pointers stepped.
inline LeafProgram row_program(const Shape& s) {
  LeafProgram p = empty_program(s, "row", 2);
  Inst tail{LeafOp::k_mask_tail, 0};
  tail.var = 1;
  tail.extent.arg = 1;
  Inst low = arith(LeafOp::k_blend, 4, 1, 2);  // keeps -inf where the mask is off
  low.mask = 0;
  Nodes maximum = {inst(load(2, 0, 1)), inst(arith(LeafOp::k_max, 1, 2, 1))};
  Node rest =
      block(Node::Kind::if_less, {inst(tail), inst(load(2, 0, 1, 0)), inst(low), inst(arith(LeafOp::k_max, 1, 4, 1))});
  rest.var = 1;
  rest.extent.arg = 1;
  Inst keep = arith(LeafOp::k_blend, 8, 9, 7);
  keep.mask = 1;
  const Nodes math = {inst(arith(LeafOp::k_sub, 6, 2, 5)), inst(arith(LeafOp::k_mul, 7, 6, 3)),
                      inst(arith(LeafOp::k_constant, 9)), inst(arith(LeafOp::k_cmp_lt, 1, 10, 6)), inst(keep)};
  Nodes main = {inst(load(2, 0, 1))}, last = {inst(tail), inst(load(2, 0, 1, 0))};
  main.insert(main.end(), math.begin(), math.end());
  main.push_back(inst(store(8, 1, 1)));
  last.insert(last.end(), math.begin(), math.end());
  last.push_back(inst(store(8, 1, 1, 0)));
  Node write_rest = block(Node::Kind::if_less, last);
  write_rest.var = 1;
  write_rest.extent.arg = 1;
  Node rows =
      count_loop(0, 1, {0, 0},
                 {inst(arith(LeafOp::k_constant, 1, -1, -1, -1, 0xff800000)), count_loop(1, s.lanes, {1, 0}, maximum),
                  rest, inst(arith(LeafOp::k_reduce_max, 5, 1)), count_loop(1, s.lanes, {1, 0}, main), write_rest});
  rows.steps = {{0, 0, {{0, 1}}}, {1, 0, {{1 * ir::kMaxLeafStrides, 1}}}};
  p.body = {inst(arith(LeafOp::k_constant, 3, -1, -1, -1, 0x40400000)),
            inst(arith(LeafOp::k_constant, 10, -1, -1, -1, 0xc1a00000)), rows};
  return p;
}

struct TileArgs {
  ir::LeafArgs args{};
  std::vector<float> a, b, c;
  std::vector<ir::LeafSeg> segments;
  TileArgs(int rows, int columns, int k, int pieces, uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> values(-2.0f, 2.0f);
    a.resize(static_cast<size_t>(rows * k));
    b.resize(static_cast<size_t>(k * columns));
    c.assign(static_cast<size_t>(rows * (columns + 5)), -1.0f);
    for (float& x : a) x = values(random);
    for (float& x : b) x = values(random);
    for (int p = 0, at = 0; p < pieces; ++p) {
      const int len = p + 1 == pieces ? k - at : k / pieces;
      segments.push_back({at * 4, at * columns * 4, len, 0, 0});
      at += len;
    }
    args.op[0] = {reinterpret_cast<char*>(a.data()), {k * 4}};
    args.op[1] = {reinterpret_cast<char*>(b.data()), {columns * 4}};
    args.op[2] = {reinterpret_cast<char*>(c.data()), {(columns + 5) * 4}};
    args.nseg = pieces;
    args.seg = segments.data();
    args.stream[0] = {reinterpret_cast<const char*>(b.data()), 256, 0, nullptr};
  }
};

}  // namespace lathe::jit::llvm_test
