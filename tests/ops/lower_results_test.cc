// Groups with several results: what a Kernel stores on its way to its last one, and when it may.
#include <gmock/gmock.h>

#include "ir/core/text_form.h"
#include "ops/fusion.h"
#include "tests/ops/check_lowered.h"

namespace lathe::ops::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const DimDesc kRows = symbol_dim("M", 0, 64), kColumns = symbol_dim("N", 0, 64);
const std::vector<DimDesc> kBoth = {kRows, kColumns};

// x + r, its norm, and both as outputs.
struct Residual {
  Graph g;
  int sum = -1, norm = -1;
  Residual(const char* op, ir::DType type, std::vector<DimDesc> dims = kBoth) {
    sum = add_node(g, "add", {add_tensor(g, "x", dims, false, type), add_tensor(g, "r", dims, false, type)}, "h");
    norm = add_node(g, op, {sum}, "y");
    g.outputs = {sum, norm};
  }
};

std::string text(const Graph& g) { return ir::print(lower(*finish(g))->kernels.at(0).kernel); }
size_t kernels(const Graph& g) { return lower(*finish(g))->kernels.size(); }

TEST(Results, ResidualAndNormAreOneKernel) {
  for (const char* op : {"rmsnorm", "layernorm", "softmax", "sum", "max", "mean", "cumsum"}) {
    SCOPED_TRACE(op);
    for (const ir::DType type : {ir::DType::f32, ir::DType::bf16, ir::DType::f16}) {
      const Residual r(op, type);
      EXPECT_EQ(kernels(r.g), 1u);
      if (type != ir::DType::f32) continue;  // the reference rounds nothing
      for (const int64_t rows : {0, 1, 3}) {
        for (const int64_t columns : {1, 5}) check(r.g, {{"M", rows}, {"N", columns}});
      }
      check(Residual(op, type, {F(7)}).g);
      check(Residual(op, type, fixed({2, 3, 5})).g);
    }
  }
}

TEST(Results, NormReadsTheSumThatIsStored) {
  EXPECT_EQ(
      text(Residual("rmsnorm", ir::DType::f32).g),
      R"(kernel add_rmsnorm(e0: f32[M, N] in, e1: f32[M, N] in, t0: f32[M, N] out, d: f32[M, N] out) family row where M in 0..64, N in 0..64
  v: f32[M] heap
  r: f32[M] heap
  for b < M [row]:
    v[b] = 0.0
    for n < N [col]:
      t0[b, n] = e0[b, n] + e1[b, n]
      v[b] += t0[b, n] * t0[b, n]
    r[b] = rsqrt(v[b] / f32(N) + 1e-05)
    for n1 < N [col]:
      d[b, n1] = t0[b, n1] * r[b]
)");
  EXPECT_THAT(
      text(Residual("rmsnorm", ir::DType::bf16).g),
      HasSubstr("t0[b, n] = bf16(f32(e0[b, n]) + f32(e1[b, n]))\n      e[b, n] = f32(e0[b, n]) + f32(e1[b, n])"));
}

// The sum of a decoder's layer: the norm reads it, and the next sum, which comes later.
TEST(Results, OthersMayReadWhatIsStoredLater) {
  Residual r("rmsnorm", ir::DType::f32);
  const int w = add_tensor(r.g, "w", {kColumns}), z = add_node(r.g, "mul", {r.norm, w}, "z");
  const int up = add_node(r.g, "softmax", {z}, "up");
  r.g.outputs = {add_node(r.g, "add", {up, r.sum}, "next")};
  EXPECT_EQ(kernels(r.g), 2u);
  const Graph g = *finish(r.g);
  const Lowered lowered = *lower(g);
  EXPECT_THAT(lowered.kernels[0].fusion_note, HasSubstr("h is stored as well"));
  ASSERT_EQ(lowered.temps.size(), 2u);
  check(r.g, {{"M", 3}, {"N", 7}});
}

// The other reader ends before the norm does: it would wait for the norm, or run before its operand is there.
TEST(Results, OthersThatReadEarlierKeepItApart) {
  Residual r("rmsnorm", ir::DType::f32);
  const int top = add_node(r.g, "max", {r.sum}, "top", {{"keepdims", true}});
  const int over = add_node(r.g, "mul", {add_node(r.g, "exp", {top}, "e"), top}, "over");
  Graph before = r.g, through = r.g;
  before.outputs = {over, r.norm};
  EXPECT_EQ(kernels(before), 2u);
  check(before, {{"M", 3}, {"N", 7}});
  const int scale = add_tensor(through, "scale", {kColumns});
  through.nodes[1].inputs.push_back(scale);  // the norm's scale does not come from the sum
  through.outputs = {add_node(through, "add", {r.norm, over}, "both"), r.sum};
  check(through, {{"M", 3}, {"N", 7}});
}

TEST(Results, ChainsStoreWhatTheGraphNames) {
  Graph g;
  const int x = add_tensor(g, "x", kBoth), y = add_tensor(g, "y", {kColumns});
  const int a = add_node(g, "exp", {x}, "a"), b = add_node(g, "mul", {a, y}, "b"), c = add_node(g, "silu", {b}, "c");
  g.outputs = {c, a, b};
  EXPECT_EQ(kernels(g), 1u);
  check(g, {{"M", 3}, {"N", 5}});
  Graph flat;
  const int z = add_node(flat, "exp", {add_tensor(flat, "x", kBoth)}, "a");
  flat.outputs = {add_node(flat, "relu", {z}, "b"), z};
  EXPECT_THAT(text(flat), HasSubstr("for j < M*N [col]:\n    t0[j] = exp(e0[j])\n    y[j] = max(exp(e0[j]), 0.0)"));
  flat.tensors[static_cast<size_t>(z)].strides = {ir::Expr(100), ir::Expr(1)};  // a result that is strided
  check(flat, {{"M", 3}, {"N", 5}});
}

TEST(Results, BothSidesOfARowAreStored) {
  Graph g;
  const int x = add_tensor(g, "x", kBoth), w = add_tensor(g, "w", {kColumns});
  const int a = add_node(g, "scale", {x}, "a", {{"value", 0.5}}), b = add_node(g, "neg", {a}, "b");
  const int c = add_node(g, "layernorm", {b, w}, "c"), d = add_node(g, "add", {c, b}, "d");
  g.outputs = {a, b, c, d};
  EXPECT_EQ(kernels(g), 1u);
  check(g, {{"M", 3}, {"N", 5}});
}

// Decisions are named by the structure: with one result, or with two.
TEST(Results, AreToldApartByTheStructure) {
  Residual both("rmsnorm", ir::DType::f32), one = both;
  one.g.outputs = {one.norm};
  EXPECT_NE(lower(*finish(both.g))->kernels[0].structure, lower(*finish(one.g))->kernels[0].structure);
}

}  // namespace
}  // namespace lathe::ops::testing
