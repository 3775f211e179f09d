// What tests of nests share: what a Nest means, from its definition, and the calls of a walk, as numbers.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "runtime/walk/nest_bind.h"
#include "runtime/walk/nest_walk.h"

namespace lathe::runtime {

using ir::Expr;
using ir::iter;
using ir::NestCall;
using ir::NestNode;
using ir::symbol;

using Env = std::map<std::string, int64_t>;

// What nests may read: the third argument.
constexpr int kReadArgument = 2, kReadCount = 6;
alignas(8) inline int32_t read_values[kReadCount] = {3, 0, -2, 5, 1, 4};

inline int64_t naive(const Expr& e, const Env& env) {
  auto arg = [&](int i) { return naive(e->args[static_cast<size_t>(i)], env); };
  auto fdiv = [](int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); };
  switch (e->op) {
    case ir::Op::k_const_int:
      return e->ival;
    case ir::Op::k_iter:
    case ir::Op::k_symbol:
      return env.at(e->name);
    case ir::Op::k_add:
      return arg(0) + arg(1);
    case ir::Op::k_sub:
      return arg(0) - arg(1);
    case ir::Op::k_mul:
      return arg(0) * arg(1);
    case ir::Op::k_neg:
      return -arg(0);
    case ir::Op::k_floordiv:
      return fdiv(arg(0), arg(1));
    case ir::Op::k_mod:
      return arg(0) - fdiv(arg(0), arg(1)) * arg(1);
    case ir::Op::k_ceildiv:
      return -fdiv(-arg(0), arg(1));
    case ir::Op::k_min:
      return std::min(arg(0), arg(1));
    case ir::Op::k_max:
      return std::max(arg(0), arg(1));
    case ir::Op::k_cast:
      return arg(0);
    case ir::Op::k_load:
      return read_values[arg(0)];
    default:
      ADD_FAILURE() << "op " << static_cast<int>(e->op);
      return 0;
  }
}

// A call as numbers: leaf, then per operand (address, strides), extents, segment length, stream
// addresses.
using Record = std::vector<int64_t>;

struct Recorder {
  std::mutex mutex;
  std::vector<Record> records;
};
struct RecordingLeaf {
  Recorder* recorder;
  int leaf, operands, strides, extents, streams;
  bool tensor;
};

inline void record(const void* program, const ir::LeafArgs& a) {
  const auto& leaf = *static_cast<const RecordingLeaf*>(program);
  Record r{leaf.leaf};
  for (int i = 0; i < leaf.operands; ++i) {
    r.push_back(reinterpret_cast<int64_t>(a.op[i].ptr));
    for (int d = 0; d < leaf.strides; ++d) r.push_back(a.op[i].stride[d]);
  }
  for (int i = 0; i < leaf.extents; ++i) r.push_back(a.extent[i]);
  if (leaf.tensor) {
    for (int64_t i = 0; i < a.nseg; ++i) {
      r.push_back(a.seg[i].len);
      r.push_back(a.seg[i].a_off);
      r.push_back(a.seg[i].b_off);
    }
  } else {
    EXPECT_EQ(a.nseg, 0);
  }
  for (int i = 0; i < leaf.streams; ++i) r.push_back(reinterpret_cast<int64_t>(a.stream[i].ptr));
  std::lock_guard<std::mutex> lock(leaf.recorder->mutex);
  leaf.recorder->records.push_back(r);
}

// What the nest means, from its definition. Arguments live at (i + 1) << 32.
inline void expect_calls(const NestNode& n, Env env, std::vector<Record>* out) {
  if (n.kind == NestNode::Kind::loop) {
    const int64_t extent = naive(n.extent, env);
    for (int64_t i = 0; i < extent; ++i) {
      env[n.iter] = i;
      for (const NestNode& c : n.body) expect_calls(c, env, out);
    }
    return;
  }
  const NestCall& c = n.call;
  int64_t v = 0;
  for (const NestCall::Variant& variant : c.variants) {
    const int64_t e = naive(variant.extent, env);
    if (e <= 0) return;
    v = v * variant.count + e - 1;
  }
  Record r{c.leaves[static_cast<size_t>(v)]};
  std::vector<int64_t> addresses;
  for (const ir::NestOperand& o : c.operands) {
    const int64_t size = ir::dtype_bytes(o.type);
    addresses.push_back((int64_t{o.buffer} + 1) * (int64_t{1} << 32) + naive(o.offset, env) * size);
    r.push_back(addresses.back());
    for (const Expr& s : o.strides) r.push_back(naive(s, env) * size);
  }
  for (const Expr& e : c.extents) r.push_back(std::max<int64_t>(0, naive(e, env)));
  for (const ir::NestSegment& s : c.segments) {
    r.push_back(std::max<int64_t>(0, naive(s.len, env)));
    r.push_back(s.a_bytes ? naive(s.a_bytes, env) : 0);
    r.push_back(s.b_bytes ? naive(s.b_bytes, env) : 0);
  }
  for (const ir::NestStream& s : c.streams) r.push_back(addresses[static_cast<size_t>(s.operand)] + s.distance);
  out->push_back(r);
}

inline std::vector<Record> walked(const ir::CutKernel& cut, const SymbolValues& symbols, int threads, ThreadTeam* team,
                                  const RecordingLeaf& shape) {
  auto bound = bind_nest(cut, symbols, {}, threads);
  EXPECT_TRUE(bound.ok()) << bound.status().to_string();
  if (!bound.ok()) return {};
  Recorder recorder;
  std::vector<RecordingLeaf> leaves(cut.leaves.size(), shape);
  std::vector<LeafRef> refs;
  for (size_t i = 0; i < leaves.size(); ++i) {
    leaves[i].leaf = static_cast<int>(i);
    leaves[i].recorder = &recorder;
    refs.push_back({nullptr, record, &leaves[i]});
  }
  std::vector<void*> args;
  for (int i = 0; i < cut.nest.num_params; ++i) args.push_back(reinterpret_cast<void*>((int64_t{i} + 1) << 32));
  if (cut.kernel.buffers.size() > kReadArgument) args[kReadArgument] = read_values;
  walk(*bound, refs.data(), args.data(), nullptr, team);
  return recorder.records;
}

inline void check(const ir::CutKernel& cut, const SymbolValues& symbols, const RecordingLeaf& shape) {
  std::vector<Record> expected;
  for (const NestNode& phase : cut.nest.phases) expect_calls(phase, Env(symbols.begin(), symbols.end()), &expected);
  EXPECT_EQ(walked(cut, symbols, 1, nullptr, shape), expected);
  std::sort(expected.begin(), expected.end());
  for (int threads : {2, 3, 4}) {
    ThreadTeam team(TeamOptions{threads});
    std::vector<Record> got = walked(cut, symbols, threads, &team, shape);
    std::sort(got.begin(), got.end());
    EXPECT_EQ(got, expected) << threads << " threads";
  }
}

inline NestNode loop(std::string name, Expr extent, std::vector<NestNode> body, bool parallel = false) {
  NestNode n;
  n.kind = NestNode::Kind::loop;
  n.iter = std::move(name);
  n.extent = std::move(extent);
  n.body = std::move(body);
  n.parallel = parallel;
  return n;
}
inline NestNode call(NestCall c) {
  NestNode n;
  n.call = std::move(c);
  return n;
}
inline ir::CutKernel cut_of(std::vector<NestNode> phases, int params, size_t leaves, std::vector<ir::Symbol> symbols) {
  ir::CutKernel cut;
  cut.nest.num_params = params;
  cut.nest.phases = std::move(phases);
  cut.leaves.resize(leaves);
  cut.kernel.symbols = std::move(symbols);
  return cut;
}
inline const Expr M = symbol("M"), N = symbol("N");

inline Expr read(const Expr& element) { return ir::cast(ir::DType::i64, ir::load("ids", {element}, ir::DType::i32)); }
inline std::vector<ir::Buffer> read_parameters() {
  std::vector<ir::Buffer> out(3);
  out[0].name = "a";
  out[1].name = "b";
  out[2].name = "ids";
  out[2].type = ir::DType::i32;
  out[2].dims = {kReadCount};
  out[2].values = {Expr(-2), M * 0 + 5};
  return out;
}

}  // namespace lathe::runtime
