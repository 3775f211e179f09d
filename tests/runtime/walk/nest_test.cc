// Bind and walk against a naive evaluation of the same Nest: every call with its leaf, addresses,
// strides, extents, segment and streams; on hand-written and random nests; on one to four threads.
// Leaves are recorders or small C++ functions.
#include <gtest/gtest.h>

#include <random>

#include "tests/runtime/walk/nest_case.h"

namespace lathe::runtime {
namespace {

const Expr K = symbol("K");

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

// A loop that may run less often: what the lines are for, not the least share; all of the block at most.
TEST(Nest, SpreadStreamsOfALoopThatVariesReachAsFarAsTheirLines) {
  for (const int lines : {1, 4, 1000}) {
    NestCall c;
    c.leaves = {0};
    c.operands = {{0, ir::DType::f32, iter("n0") * 32 * K, {}}};
    c.segments = {{K, {}, {}}};
    c.streams = {{0, 0, "m0", K * 128, lines}};
    const auto cut = cut_of({loop("n0", 9, {loop("m0", iter("n0"), {call(c)})})}, 1, 1, {{"K", 1, 4096}});
    const auto calls = walked(cut, {{"K", 16}}, 1, nullptr, {nullptr, 0, 1, 0, 0, 1, true});
    ASSERT_EQ(calls.size(), 36u);
    const int64_t base = int64_t{1} << 32, block = 16 * 128,
                  share = lines == 1   ? 256  // an eighth
                          : lines == 4 ? 16 / 4 * 4 * 64
                                       : block;
    size_t call = 0;
    for (int n = 0; n < 9; ++n) {
      for (int m = 0; m < n; ++m) EXPECT_EQ(calls[call++].back(), base + n * block + block + m * share) << lines;
    }
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
