// Bind and walk against a naive evaluation of the same Nest: every call with its leaf, addresses,
// strides, extents, segment and streams; on hand-written and random nests; on one to four threads.
// Leaves are recorders or small C++ functions.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <random>

#include "runtime/walk/nest_bind.h"
#include "runtime/walk/nest_walk.h"

namespace lathe::runtime {
namespace {

using ir::Expr;
using ir::iter;
using ir::NestCall;
using ir::NestNode;
using ir::symbol;

using Env = std::map<std::string, int64_t>;

// What nests may read: the third argument.
constexpr int kReadArgument = 2, kReadCount = 6;
alignas(8) int32_t read_values[kReadCount] = {3, 0, -2, 5, 1, 4};

int64_t naive(const Expr& e, const Env& env) {
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

void record(const void* program, const ir::LeafArgs& a) {
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
void expect_calls(const NestNode& n, Env env, std::vector<Record>* out) {
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

std::vector<Record> walked(const ir::CutKernel& cut, const SymbolValues& symbols, int threads, ThreadTeam* team,
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

void check(const ir::CutKernel& cut, const SymbolValues& symbols, const RecordingLeaf& shape) {
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

NestNode loop(std::string name, Expr extent, std::vector<NestNode> body, bool parallel = false) {
  NestNode n;
  n.kind = NestNode::Kind::loop;
  n.iter = std::move(name);
  n.extent = std::move(extent);
  n.body = std::move(body);
  n.parallel = parallel;
  return n;
}
NestNode call(NestCall c) {
  NestNode n;
  n.call = std::move(c);
  return n;
}
ir::CutKernel cut_of(std::vector<NestNode> phases, int params, size_t leaves, std::vector<ir::Symbol> symbols) {
  ir::CutKernel cut;
  cut.nest.num_params = params;
  cut.nest.phases = std::move(phases);
  cut.leaves.resize(leaves);
  cut.kernel.symbols = std::move(symbols);
  return cut;
}
const Expr M = symbol("M"), N = symbol("N"), K = symbol("K");

// The matmul of docs/ir.md: panels of 32 columns, tiles of 8 rows in up to 8 variants, a masked
// column tail.
ir::CutKernel matmul() {
  const Expr m0 = iter("m0"), n0 = iter("n0");
  NestCall c;
  c.variants = {{ir::min(8, M - Expr(8) * m0), 8}};
  for (int i = 0; i < 8; ++i) c.leaves.push_back(i);
  c.operands = {{0, ir::DType::f32, Expr(8) * m0 * K, {K, 1}},
                {1, ir::DType::f32, Expr(32) * n0 * K, {32, 1}},
                {2, ir::DType::f32, Expr(8) * m0 * N + Expr(32) * n0, {N, 1}}};
  c.extents = {ir::min(32, N - Expr(32) * n0)};
  c.segments = {{K, {}, {}}};
  return cut_of({loop("n0", ceildiv(N, 32), {loop("m0", ceildiv(M, 8), {call(c)})}, true)}, 3, 8,
                {{"M", 0, 4096}, {"N", 0, 4096}, {"K", 0, 4096}});
}
template <int kRows>
void tile(const ir::LeafArgs* a) {
  for (int i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < a->extent[0]; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < a->seg->len; ++k) {
        sum += *reinterpret_cast<float*>(a->op[0].ptr + i * a->op[0].stride[0] + k * 4) *
               *reinterpret_cast<float*>(a->op[1].ptr + k * a->op[1].stride[0] + j * 4);
      }
      *reinterpret_cast<float*>(a->op[2].ptr + i * a->op[2].stride[0] + j * 4) = sum;
    }
  }
}

TEST(Nest, MatmulWithTailsOnOneToFourThreads) {
  const LeafRef leaves[8] = {{tile<1>}, {tile<2>}, {tile<3>}, {tile<4>}, {tile<5>}, {tile<6>}, {tile<7>}, {tile<8>}};
  for (auto [m, n, k] : {std::tuple{1, 1, 1}, {8, 32, 5}, {7, 33, 9}, {30, 100, 16}, {0, 40, 3}, {9, 64, 0}}) {
    std::vector<float> x(static_cast<size_t>(m * k)), w(static_cast<size_t>((n + 31) / 32 * 32 * k));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
    for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 5) - 2;
    std::vector<float> want(static_cast<size_t>(m * n));
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) {
        for (int q = 0; q < k; ++q) {
          want[static_cast<size_t>(i * n + j)] +=
              x[static_cast<size_t>(i * k + q)] * w[static_cast<size_t>(j / 32 * 32 * k + q * 32 + j % 32)];
        }
      }
    }
    for (int threads : {1, 2, 3, 4}) {
      auto bound = bind_nest(matmul(), {{"M", m}, {"N", n}, {"K", k}}, {}, threads);
      ASSERT_TRUE(bound.ok()) << bound.status().to_string();
      ThreadTeam team(TeamOptions{threads});
      std::vector<float> y(want.size(), -77.0F);
      void* args[] = {x.data(), w.data(), y.data()};
      walk(*bound, leaves, args, nullptr, &team);
      EXPECT_EQ(y, want) << m << "x" << n << "x" << k << " on " << threads;
    }
  }
}

TEST(Nest, MatmulCallsAreThoseOfTheDefinition) {
  for (int64_t m : {1, 5, 8, 16, 17}) {
    for (int64_t n : {1, 32, 70}) check(matmul(), {{"M", m}, {"N", n}, {"K", 48}}, {nullptr, 0, 3, 2, 1, 0, true});
  }
}

TEST(Nest, AFullTileHasNoDynamicValues) {
  auto bound = bind_nest(matmul(), {{"M", 64}, {"N", 64}, {"K", 64}}, {}, 1);
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bound->values.size(), 0u);
  auto one = bind_nest(matmul(), {{"M", 8}, {"N", 32}, {"K", 64}}, {}, 1);
  ASSERT_TRUE(one.ok());
  EXPECT_TRUE(one->direct);
}

TEST(Nest, NonAffineExpressionsAndTriangularLoops) {
  const Expr i = iter("i"), j = iter("j"), k = iter("k");
  NestCall c;
  c.leaves = {0};
  c.operands = {{0, ir::DType::f32, floordiv(i, 3) * 7 + mod(i + j, 4), {}},
                {1, ir::DType::bf16, ir::max(i - j, j), {}}};
  c.extents = {ir::max(i - 3, ceildiv(j, 2)), ir::min(ir::min(4, i + 1), N - j)};
  NestCall d = c;
  d.operands[0].offset = i * 16 + k;
  d.operands[1].offset = Expr(5) - k;
  d.extents = {N, k + 1};
  check(cut_of({loop("i", M,
                     {loop("j", i + 1, {call(c)}),
                      call(c =
                               [&] {
                                 auto e = c;
                                 e.operands[0].offset = i;
                                 e.operands[1].offset = i * i;
                                 e.extents = {i, 2};
                                 return e;
                               }()),
                      loop("k", ir::min(3, N - i), {call(d), call(d)})})},
               2, 1, {{"M", 1, 100}, {"N", 1, 100}}),
        {{"M", 9}, {"N", 6}}, {nullptr, 0, 2, 0, 2, 0, false});
}

TEST(Nest, TwoParallelLoopsAreOneSpace) {
  NestCall c;
  c.leaves = {0};
  c.operands = {{0, ir::DType::f32, iter("b") * 100 + iter("r"), {}}};
  auto cut = cut_of({loop("b", M, {loop("r", N, {call(c)}, true)}, true)}, 1, 1, {{"M", 1, 100}, {"N", 1, 100}});
  auto bound = bind_nest(cut, {{"M", 3}, {"N", 5}}, {}, 4);
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bound->phases[0].parallel_loops, 2);
  EXPECT_TRUE(bound->nodes[bound->phases[0].first_node].even);
  EXPECT_EQ(bound->phases[0].parts, 4);
  check(cut, {{"M", 3}, {"N", 5}}, {nullptr, 0, 1, 0, 0, 0, false});
  check(cut, {{"M", 1}, {"N", 2}}, {nullptr, 0, 1, 0, 0, 0, false});
}

Expr read(const Expr& element) { return ir::cast(ir::DType::i64, ir::load("ids", {element}, ir::DType::i32)); }
std::vector<ir::Buffer> read_parameters() {
  std::vector<ir::Buffer> out(3);
  out[0].name = "a";
  out[1].name = "b";
  out[2].name = "ids";
  out[2].type = ir::DType::i32;
  out[2].dims = {kReadCount};
  out[2].values = {Expr(-2), M * 0 + 5};
  return out;
}

// Iterations of the innermost parallel loop are shared out, also where there are not equally many in each outer one.
TEST(Nest, ParallelLoopsOfUnequalExtentsAreOneSpace) {
  const Expr b = iter("b"), h = iter("h"), p = iter("p");
  NestCall c;
  c.leaves = {0};
  c.operands = {{0, ir::DType::f32, b * 1000 + h * 100 + p, {}}};
  const auto nest = [&](const Expr& outer) {
    auto cut = cut_of(
        {loop("b", outer, {loop("h", N, {loop("p", ir::max(read(mod(b, 6)), 0), {call(c)}, true)}, true)}, true)}, 3, 1,
        {{"M", 1, 100}, {"N", 1, 100}});
    cut.kernel.buffers = read_parameters();
    return cut;
  };
  const RecordingLeaf shape{nullptr, 0, 1, 0, 0, 0, false};
  for (const int64_t n : {1, 2, 7}) {
    check(nest(M), {{"M", 1}, {"N", n}}, shape);
    check(nest(M), {{"M", 6}, {"N", n}}, shape);
    check(nest(read(Expr(3))), {{"M", 6}, {"N", n}}, shape);
    check(nest(read(Expr(1))), {{"M", 6}, {"N", n}}, shape);
  }
  const auto bound = bind_nest(nest(M), {{"M", 6}, {"N", 2}}, {}, 2);
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bound->phases[0].parallel_loops, 3);
  // 3, 0, 0, 5, 1, 4 iterations, twice each: 13 of 26 for each thread.
  Recorder recorder;
  RecordingLeaf leaf = shape;
  leaf.recorder = &recorder;
  const LeafRef ref{nullptr, record, &leaf};
  void* args[] = {nullptr, nullptr, read_values};
  walk(*bound, &ref, args, nullptr, nullptr);
  EXPECT_EQ(recorder.records.size(), 26u);
}

// What the nest reads is read once in each iteration of the loop that it follows, and only there if it is proven to be
// there whatever runs inside.
TEST(Nest, IntegersAreReadWhereTheirLoopRuns) {
  const Expr i = iter("i"), j = iter("j");
  NestCall c;
  c.leaves = {0};
  c.operands = {{0, ir::DType::f32, read(i) * 7 + j, {}}, {1, ir::DType::i8, read(i) + read(i + j) * 3, {}}};
  const auto nest = [&](const Expr& inner) {
    auto cut = cut_of({loop("i", M, {loop("j", inner, {call(c)})})}, 3, 1, {{"M", 1, 9}});
    cut.kernel.buffers = read_parameters();
    return cut;
  };
  const RecordingLeaf shape{nullptr, 0, 2, 0, 0, 0, false};
  // i + j stays below 6 by i's extent alone, or only where j runs.
  const auto even = bind_nest(nest(Expr(2)), {{"M", 5}}, {}, 1),
             uneven = bind_nest(nest(Expr(6) - i), {{"M", 9}}, {}, 1);
  ASSERT_TRUE(even.ok() && uneven.ok());
  EXPECT_EQ(even->locals.size(), 2u);
  EXPECT_EQ(uneven->locals.size(), 0u);
  check(nest(Expr(2)), {{"M", 5}}, shape);
  for (const int64_t m : {6, 9}) check(nest(Expr(6) - i), {{"M", m}}, shape);
}

TEST(Nest, ReadsIntegersOfItsArguments) {
  const Expr i = iter("i");
  NestCall c;
  c.leaves = {0};
  c.operands = {{0, ir::DType::f32, read(i) * 7 + i, {}}, {1, ir::DType::i8, read(mod(read(Expr(3)) + i, 6)), {}}};
  c.extents = {read(Expr(0)), ir::min(read(i), 4)};
  auto cut =
      cut_of({loop("i", N, {call(c)}, true), loop("k", read(Expr(5)), {loop("j", read(Expr(1)), {call(c)})}, true)}, 3,
             1, {{"M", 1, 9}, {"N", 1, 6}});
  cut.nest.phases[1].body[0] = loop("i", read(Expr(4)), {call(c)});
  cut.kernel.buffers = read_parameters();
  check(cut, {{"M", 3}, {"N", 6}}, {nullptr, 0, 2, 0, 2, 0, false});
  cut.kernel.buffers[2].values = {};
  const auto bound = bind_nest(cut, {{"M", 3}, {"N", 6}}, {}, 1);
  EXPECT_NE(bound.status().message().find("a nest expression uses 'cast'"), std::string::npos)
      << bound.status().to_string();
}

// Random expressions over the open loops, kept small; extents stay below 5.
struct Random {
  std::mt19937 rng;
  std::vector<std::string> open;
  int pick(int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); }
  Expr expr(int depth) {
    if (depth == 0 || pick(4) == 0) {
      if (pick(6) == 0) return read(mod(expr(depth), Expr(kReadCount)));
      if (!open.empty() && pick(3) != 0) return iter(open[static_cast<size_t>(pick(static_cast<int>(open.size())))]);
      return pick(2) != 0 ? Expr(pick(9)) : M;
    }
    const Expr a = expr(depth - 1), b = expr(depth - 1);
    switch (pick(8)) {
      case 0:
        return a + b;
      case 1:
        return a - b;
      case 2:
        return a * Expr(pick(5));
      case 3:
        return floordiv(a, Expr(1 + pick(4)));
      case 4:
        return mod(a, Expr(1 + pick(6)));
      case 5:
        return ceildiv(a, Expr(1 + pick(4)));
      case 6:
        return ir::min(a, b);
      default:
        return ir::max(a, b);
    }
  }
  NestNode node(int depth, int* names) {
    if (depth == 0 || pick(5) == 0) {
      NestCall c;
      if (pick(2) != 0) {
        c.variants = {{ir::min(2, expr(2)), 2}, {ir::min(3, expr(2)), 3}};
        c.leaves = {0, 1, 2, 3, 4, 5};
      } else {
        c.leaves = {pick(6)};
      }
      c.operands = {{0, ir::DType::f32, expr(3), {M, 1}}, {1, ir::DType::i8, expr(2), {1, Expr(3) * M}}};
      c.extents = {expr(3), expr(1)};
      c.segments = {{expr(2), {}, {}}};
      for (int more = pick(3); more > 0; --more) c.segments.push_back({expr(1), expr(1) * 4, {}});
      if (pick(4) == 0) c.segments = {{Expr(3), {}, {}}, {M, Expr(12), Expr(64)}};
      c.streams = {{1, 4096, "", {}, 4}};
      return call(c);
    }
    const std::string name = "i" + std::to_string((*names)++);
    const Expr extent = ir::min(Expr(1 + pick(4)), expr(2));
    open.push_back(name);
    std::vector<NestNode> body;
    for (int i = 1 + pick(3); i > 0; --i) body.push_back(node(depth - 1, names));
    open.pop_back();
    return loop(name, extent, body, pick(3) == 0);
  }
};

TEST(Nest, RandomNestsMatchTheirDefinition) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    Random r{std::mt19937(seed), {}};
    int names = 0;
    std::vector<NestNode> phases;
    for (int i = 1 + r.pick(2); i > 0; --i) phases.push_back(r.node(1 + r.pick(4), &names));
    auto cut = cut_of(phases, 3, 6, {{"M", 0, 100}});
    cut.kernel.buffers = read_parameters();
    const SymbolValues symbols{{"M", r.pick(12)}};
    check(cut, symbols, {nullptr, 0, 2, 2, 2, 1, true});
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

// What changes from call to call has its room; what does not has no limit.
TEST(Nest, SegmentsThatChangeAreLimited) {
  NestCall c;
  c.leaves = {0};
  c.operands = {{0, ir::DType::f32, Expr(0), {}}};
  for (int i = 0; i <= kMaxChangingSegments; ++i) c.segments.push_back({K, Expr(4 * i), Expr(64 * i)});
  const auto nest = [&] { return cut_of({loop("i", M, {call(c)})}, 1, 1, {{"M", 1, 8}, {"K", 1, 64}}); };
  const SymbolValues symbols{{"M", 3}, {"K", 5}};
  check(nest(), symbols, {nullptr, 0, 1, 0, 0, 0, true});
  c.segments.back().len = iter("i");
  const auto bound = bind_nest(nest(), symbols, {}, 1);
  ASSERT_FALSE(bound.ok());
  EXPECT_EQ(bound.status().code(), ir::Code::kUNSUPPORTED);
  EXPECT_NE(bound.status().message().find("9 segments that change, expected at most 8"), std::string::npos)
      << bound.status().to_string();
  c.segments.pop_back();
  c.segments.back().a_bytes = iter("i") * 4;
  check(nest(), symbols, {nullptr, 0, 1, 0, 0, 0, true});
}

TEST(Nest, SpreadStreamsCoverTheNextBlock) {
  NestCall c;
  c.leaves = {0};
  c.operands = {{0, ir::DType::f32, iter("n0") * 32 * K, {}}};
  c.segments = {{K, {}, {}}};
  c.streams = {{0, 0, "m0", K * 128, 4}};
  auto cut = cut_of({loop("n0", 2, {loop("m0", ceildiv(M, 8), {call(c)})})}, 1, 1, {{"M", 1, 4096}, {"K", 1, 4096}});
  const auto calls = walked(cut, {{"M", 24}, {"K", 16}}, 1, nullptr, {nullptr, 0, 1, 0, 0, 1, true});
  ASSERT_EQ(calls.size(), 6u);
  const int64_t base = int64_t{1} << 32, block = 16 * 128,
                share = 704;  // a third of the block, in lines
  for (int n = 0; n < 2; ++n) {
    for (int m = 0; m < 3; ++m)
      EXPECT_EQ(calls[static_cast<size_t>(n * 3 + m)].back(), base + n * block + block + m * share);
  }
}

TEST(Nest, ScratchIsSizedAlignedAndPerPart) {
  NestCall c;
  c.leaves = {0};
  c.operands = {{1, ir::DType::f32, Expr(0), {}}, {2, ir::DType::f32, Expr(2), {}}};
  auto cut = cut_of({loop("i", M, {call(c)}, true)}, 1, 1, {{"M", 1, 100}});
  cut.nest.scratch = {{"shared", M * 4, false}, {"own", Expr(65), true}};
  auto bound = bind_nest(cut, {{"M", 3}}, {}, 2);
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bound->workspace_bytes, 64 + 2 * 128);
  alignas(64) static char workspace[64 + 256];
  Recorder recorder;
  RecordingLeaf leaf{&recorder, 0, 2, 0, 0, 0, false};
  const LeafRef ref{nullptr, record, &leaf};
  void* args[] = {nullptr};
  walk(*bound, &ref, args, workspace, nullptr);
  const auto at = [&](int offset) { return reinterpret_cast<int64_t>(workspace + offset); };
  EXPECT_EQ(recorder.records, (std::vector<Record>{{0, at(0), at(72)}, {0, at(0), at(72)}, {0, at(0), at(200)}}));
}

TEST(Nest, RefusesWhatItCannotBind) {
  EXPECT_EQ(bind_nest(matmul(), {{"M", 1}, {"N", 1}}, {}, 1).status().code(), ir::Code::kINVALID);
  EXPECT_EQ(bind_nest(matmul(), {{"M", 5000}, {"N", 1}, {"K", 1}}, {}, 1).status().code(), ir::Code::kINVALID);
  EXPECT_EQ(bind_nest(matmul(), {{"M", 1}, {"N", 1}, {"K", 1}}, {}, 0).status().code(), ir::Code::kINVALID);
  auto huge = cut_of({loop("i", M, {loop("j", M, {call([] {
                                           NestCall c;
                                           c.leaves = {0};
                                           c.operands = {{0, ir::DType::f32, iter("i") * M + iter("j"), {}}};
                                           return c;
                                         }())})})},
                     1, 1, {{"M", 1, INT64_MAX}});
  EXPECT_TRUE(bind_nest(huge, {{"M", 1 << 20}}, {}, 1).ok());
  EXPECT_EQ(bind_nest(huge, {{"M", int64_t{1} << 31}}, {}, 1).status().code(), ir::Code::kINVALID);
}

TEST(Nest, StrideSymbolsComeFromTheArguments) {
  NestCall c;
  c.leaves = {0};
  c.operands = {{0, ir::DType::f32, iter("i") * symbol("lda"), {symbol("lda")}}};
  auto cut = cut_of({loop("i", M, {call(c)})}, 1, 1, {{"M", 1, 9}, {"lda", 1, 1000}});
  ir::Buffer x;
  x.name = "x";
  x.dims = {M, 4};
  x.strides = {symbol("lda"), 1};
  cut.kernel.buffers = {x};
  auto bound = bind_nest(cut, {{"M", 2}}, {{{40, 1}}}, 1);
  ASSERT_TRUE(bound.ok()) << bound.status().to_string();
  EXPECT_EQ(bound->calls[0].args.op[0].stride[0], 160);
  EXPECT_EQ(bind_nest(cut, {{"M", 2}}, {{{40, 2}}}, 1).status().arg(), "x");
  EXPECT_FALSE(bind_nest(cut, {{"M", 2}, {"lda", 41}}, {{{40, 1}}}, 1).ok());
}

}  // namespace
}  // namespace lathe::runtime
