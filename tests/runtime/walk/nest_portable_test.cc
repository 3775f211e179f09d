// Scheduled Kernels through cut, lowering, bind and walk with the portable executor, against the
// interpreter: exact integer data, so the bits must be equal, on one to four threads and for sizes
// with every kind of tail.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "ir/core/text_form.h"
#include "ir/meaning/interpreter.h"
#include "jit/host/host_cpu.h"
#include "jit/image/exec_memory.h"
#include "jit/lower/lower.h"
#include "jit/program/backend.h"
#include "jit/program/portable_leaves.h"
#include "runtime/walk/nest_bind.h"
#include "runtime/walk/nest_walk.h"
#include "search/cut/cut.h"

namespace lathe::runtime {
namespace {

ir::Target target16() {
  ir::Target t;
  t.level = ir::IsaLevel::avx512;  // lowered for it, executed by C++
  t.lanes = 16;
  t.vector_registers = 32;
  t.mask_registers = 7;
  return t;
}

void run_prepared(const void* program, const ir::LeafArgs& args) {
  static_cast<const jit::PreparedProgram*>(program)->run(args);
}

struct Built {
  ir::Kernel kernel;
  ir::CutKernel cut;
  std::vector<std::unique_ptr<jit::PreparedProgram>> programs;
  std::vector<LeafRef> leaves;
};

Built build(const std::string& text) {
  Built b;
  auto kernel = ir::parse_kernel(text);
  EXPECT_TRUE(kernel.ok()) << kernel.status().to_string();
  b.kernel = *kernel;
  auto cut = search::cut(b.kernel);
  EXPECT_TRUE(cut.ok()) << cut.status().to_string();
  b.cut = *cut;
  for (const ir::Leaf& leaf : b.cut.leaves) {
    auto program = jit::lower_leaf(leaf.kernel, target16());
    EXPECT_TRUE(program.ok()) << program.status().to_string() << "\n" << leaf.text;
    if (!program.ok()) return b;
    b.programs.push_back(std::make_unique<jit::PreparedProgram>(*program));
    b.leaves.push_back({nullptr, run_prepared, b.programs.back().get()});
  }
  return b;
}

std::vector<double> integers(int64_t count, int mod) {
  std::vector<double> v;
  for (int64_t i = 0; i < count; ++i) v.push_back(static_cast<double>((i * 7 + i / 13) % mod - mod / 2));
  return v;
}
std::vector<float> floats(const std::vector<double>& v) { return {v.begin(), v.end()}; }

constexpr const char* kGate = R"(
kernel gate(x: f32[M, 40] in, w: f32[100, 40] const layout [0/32, 1, 0%32] pad [28, 0], b: f32[100] const, y: f32[M, 100] out) family matmul where M in 1..4096 numeric contract
  c: f32[8, 32] reg
  for n0 < 4 [n] @parallel:
    for m0 < ceildiv(M, 8) [m]:
      for m1 < min(8, M - 8*m0) [m] @unroll:
        for n1 < ceildiv(min(32, 100 - 32*n0), 16) [n] @unroll:
          for n2 < min(16, min(32, 100 - 32*n0) - 16*n1) [n] @vector:
            c[m1, 16*n1 + n2] = 0.0
      for k < 40 [k] @tensor(mma):
        prefetch w next m0 lines 4
        for m1b < min(8, M - 8*m0) [m] @unroll:
          for n1b < ceildiv(min(32, 100 - 32*n0), 16) [n] @unroll:
            for n2b < min(16, min(32, 100 - 32*n0) - 16*n1b) [n] @vector:
              c[m1b, 16*n1b + n2b] += x[8*m0 + m1b, k] * w[32*n0 + 16*n1b + n2b, k]
      for m1c < min(8, M - 8*m0) [m] @unroll:
        for n1c < ceildiv(min(32, 100 - 32*n0), 16) [n] @unroll:
          for n2c < min(16, min(32, 100 - 32*n0) - 16*n1c) [n] @vector:
            y[8*m0 + m1c, 32*n0 + 16*n1c + n2c] = c[m1c, 16*n1c + n2c] + b[32*n0 + 16*n1c + n2c]
)";

TEST(NestPortable, MatmulWithPackedPanelsEqualsTheInterpreter) {
  const Built b = build(kGate);
  ASSERT_FALSE(b.leaves.empty());
  const std::vector<double> w = integers(100 * 40, 9), bias = integers(100, 5);
  std::vector<float> packed(4 * 40 * 32);
  for (int n = 0; n < 100; ++n) {
    for (int k = 0; k < 40; ++k)
      packed[static_cast<size_t>((n / 32 * 40 + k) * 32 + n % 32)] =
          static_cast<float>(w[static_cast<size_t>(n * 40 + k)]);
  }
  for (int64_t m : {1, 3, 8, 13, 24, 31}) {
    const std::vector<double> x = integers(m * 40, 11);
    std::map<std::string, ir::Tensor> tensors{{"x", {{m, 40}, x}}, {"w", {{100, 40}, w}}, {"b", {{100}, bias}}};
    const ir::Status oracle = ir::interpret(b.kernel, {{"M", m}}, tensors);
    ASSERT_TRUE(oracle.ok()) << oracle.to_string();
    std::vector<float> xf = floats(x), bf = floats(bias);
    for (int threads : {1, 2, 3, 4}) {
      auto nest = bind_nest(b.cut, {{"M", m}}, {}, threads);
      ASSERT_TRUE(nest.ok()) << nest.status().to_string();
      ThreadTeam team(TeamOptions{threads});
      std::vector<float> y(static_cast<size_t>(m * 100), -99.0F);
      void* args[] = {xf.data(), packed.data(), bf.data(), y.data()};
      walk(*nest, b.leaves.data(), args, nullptr, &team);
      EXPECT_EQ(y, floats(tensors["y"].data)) << "M " << m << " threads " << threads;
    }
  }
}

// The tensor loop of every call in pieces: what the walk hands over and the leaf adds up is the same sum.
void in_two(std::vector<ir::NestNode>& nodes, int first, int* calls) {
  for (ir::NestNode& n : nodes) {
    in_two(n.body, first, calls);
    if (n.kind != ir::NestNode::Kind::call || n.call.segments.empty()) continue;
    const ir::Expr steps = n.call.segments.at(0).len;
    // x moves by one float a step, the panel by a row of 32.
    n.call.segments = {{ir::Expr(first), {}, {}},
                       {steps - ir::Expr(first), ir::Expr(first * 4), ir::Expr(first * 128)}};
    ++*calls;
  }
}

TEST(NestPortable, TwoSegmentsAddUpToOne) {
  Built b = build(kGate);
  ASSERT_FALSE(b.leaves.empty());
  // The same leaves as code, where this machine runs what they are lowered for.
  jit::ExecMemory memory(jit::ExecMode::automatic);
  std::vector<LeafRef> native;
  for (const ir::Leaf& leaf : b.cut.leaves) {
    if (jit::host_target().lanes != 16) break;
    const auto image = jit::compile_xbyak(jit::lower_leaf(leaf.kernel, jit::host_target()).value());
    if (!image.ok()) break;
    native.push_back({memory.load(*image).value().entry, nullptr, nullptr});
  }
  const int64_t m = 13;
  std::vector<float> x = floats(integers(m * 40, 11)), w = floats(integers(4 * 40 * 32, 9)),
                     bias = floats(integers(100, 5));
  const auto run = [&](const std::vector<LeafRef>& leaves) {
    const auto nest = bind_nest(b.cut, {{"M", m}}, {}, 1);
    EXPECT_TRUE(nest.ok()) << nest.status().to_string();
    std::vector<float> y(static_cast<size_t>(m * 100), -99.0F);
    void* args[] = {x.data(), w.data(), bias.data(), y.data()};
    walk(*nest, leaves.data(), args, nullptr, nullptr);
    return y;
  };
  const std::vector<float> want = run(b.leaves);
  const ir::Nest whole = b.cut.nest;
  for (const int first : {0, 1, 16, 40}) {
    int calls = 0;
    in_two(b.cut.nest.phases, first, &calls);
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(run(b.leaves), want) << first;
    if (native.size() == b.leaves.size()) EXPECT_EQ(run(native), want) << first << ", as code";
    b.cut.nest = whole;
  }
}

constexpr const char* kRows = R"(
kernel rows(s: f32[B, N] in strides [ld, 1], d: f32[B, N] out) family row where B in 1..65536, N in 1..32768, ld in 1..65536
  u: f32[B] heap
  for b < B [row] @parallel:
    u[b] = 0.0
    for n < N [col]:
      u[b] += s[b, n]
  for b1 < B [row] @parallel:
    for n1 < N [col]:
      d[b1, n1] = s[b1, n1] - u[b1]
)";

TEST(NestPortable, RowsWithScratchAndStridesEqualTheInterpreter) {
  const Built b = build(kRows);
  ASSERT_FALSE(b.leaves.empty());
  for (auto [rows, cols, ld] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1}, {5, 17, 20}, {9, 64, 64}, {16, 33, 40}}) {
    const std::vector<double> wide = integers(rows * ld, 9);
    std::vector<double> s;
    for (int64_t i = 0; i < rows; ++i) s.insert(s.end(), wide.begin() + i * ld, wide.begin() + i * ld + cols);
    std::map<std::string, ir::Tensor> tensors{{"s", {{rows, cols}, s}}};
    const ir::Status oracle = ir::interpret(b.kernel, {{"B", rows}, {"N", cols}, {"ld", ld}}, tensors);
    ASSERT_TRUE(oracle.ok()) << oracle.to_string();
    std::vector<float> sf = floats(wide);
    for (int threads : {1, 3}) {
      auto nest = bind_nest(b.cut, {{"B", rows}, {"N", cols}}, {{{ld, 1}}, {}}, threads);
      ASSERT_TRUE(nest.ok()) << nest.status().to_string();
      ThreadTeam team(TeamOptions{threads});
      std::vector<float> d(static_cast<size_t>(rows * cols), -99.0F);
      std::unique_ptr<void, void (*)(void*)> workspace(
          std::aligned_alloc(64, static_cast<size_t>(nest->workspace_bytes + 64) / 64 * 64), std::free);
      void* args[] = {sf.data(), d.data()};
      walk(*nest, b.leaves.data(), args, workspace.get(), &team);
      EXPECT_EQ(d, floats(tensors["d"].data)) << rows << "x" << cols << " threads " << threads;
    }
  }
}

// Rows that integers choose, and as many of their elements as integers say.
constexpr const char* kChosen = R"(
kernel chosen(t: f32[P, N] in, ids: i32[T] in values 0..P - 1, len: i64[2] in values 0..N, y: f32[T, N] out, s: f32[T] out) family row where P in 1..100, N in 1..100, T in 0..100
  for i < T [row] @parallel:
    for j < N [col]:
      y[i, j] = t[i64(ids[i]), j]
    s[i] = 0.0
    for l < len[i64(ids[i]) // 50] [col]:
      s[i] += t[i64(ids[i]), l]
)";

TEST(NestPortable, ChosenRowsEqualTheInterpreter) {
  const Built b = build(kChosen);
  ASSERT_FALSE(b.leaves.empty());
  for (const auto& [p, n, t] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 2}, {7, 33, 5}, {100, 17, 64}, {3, 5, 0}}) {
    const std::vector<double> table = integers(p * n, 9);
    std::vector<double> ids;
    const std::vector<double> len = {static_cast<double>(n), static_cast<double>(n / 2)};
    for (int64_t i = 0; i < t; ++i) ids.push_back(static_cast<double>((i * 7 + p - 1) % p));
    std::map<std::string, ir::Tensor> tensors{{"t", {{p, n}, table}}, {"ids", {{t}, ids}}, {"len", {{2}, len}}};
    const SymbolValues sizes{{"P", p}, {"N", n}, {"T", t}};
    const ir::Status oracle = ir::interpret(b.kernel, sizes, tensors);
    ASSERT_TRUE(oracle.ok()) << oracle.to_string();
    std::vector<float> tf = floats(table);
    std::vector<int32_t> ids32(ids.begin(), ids.end());
    std::vector<int64_t> len64(len.begin(), len.end());
    for (int threads : {1, 3}) {
      auto nest = bind_nest(b.cut, sizes, {}, threads);
      ASSERT_TRUE(nest.ok()) << nest.status().to_string();
      ThreadTeam team(TeamOptions{threads});
      std::vector<float> y(static_cast<size_t>(t * n), -99.0F), s(static_cast<size_t>(t), -99.0F);
      void* args[] = {tf.data(), ids32.data(), len64.data(), y.data(), s.data()};
      walk(*nest, b.leaves.data(), args, nullptr, &team);
      EXPECT_EQ(y, floats(tensors["y"].data)) << p << "x" << n << " threads " << threads;
      EXPECT_EQ(s, floats(tensors["s"].data)) << p << "x" << n << " threads " << threads;
    }
  }
}

}  // namespace
}  // namespace lathe::runtime
