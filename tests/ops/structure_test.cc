// The structure of a graph: equal whatever the caller named, different for whatever else differs; that of a fused group
// does not depend on the graph around it.
#include "ops/structure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "ops/lower.h"

namespace lathe::ops {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What a caller chooses, and what is computed.
struct Words {
  std::string graph = "gate", x = "x", w = "w", b = "bias", y = "y", m = "M", l = "L";
};
struct Asked {
  int64_t k = 24, most = 64, multiple = 1;
  bool constant = true, transposed = true, one_symbol = false, strided = false, swapped = false;
  std::string last = "relu";
  std::vector<Hint> hints = {{4, 1}};
};

// relu(x[M, L, K] * w[K, 16] + bias[16])
Graph graph_of(const Asked& a, const Words& name) {
  Graph g;
  g.name = name.graph;
  const DimDesc m = symbol_dim(name.m, 1, a.most, a.hints, a.multiple);
  const DimDesc l = a.one_symbol ? m : symbol_dim(name.l, 1, 64);
  std::vector<ir::Expr> strides;
  if (a.strided) strides = {ir::symbol(name.m) * ir::symbol(name.l) * ir::Expr(a.k), ir::Expr(a.k), ir::Expr(1)};
  const int x = add_tensor(g, name.x, {m, l, fixed_dim(a.k)}, false, ir::DType::f32, std::move(strides));
  const std::vector<DimDesc> sizes =
      a.transposed ? std::vector{fixed_dim(16), fixed_dim(a.k)} : std::vector{fixed_dim(a.k), fixed_dim(16)};
  const int w = add_tensor(g, name.w, sizes, a.constant);
  const int b = add_tensor(g, name.b, {fixed_dim(16)}, true);
  const int p = add_node(g, "matmul", {x, w}, name.y + "0", {{"transpose_b", a.transposed}});
  const int s = add_node(g, "add", a.swapped ? std::vector{b, p} : std::vector{p, b}, name.y + "1");
  g.outputs = {add_node(g, a.last, {s}, name.y)};
  const ir::Result<Graph> out = finish(g);
  EXPECT_TRUE(out.ok()) << out.status().to_string();
  return *out;
}

const Words kOther = {"mlp.up", "hidden", "up_proj.weight", "up_proj.bias", "act", "batch", "A_length"};

std::vector<std::string> groups_of(const Graph& finished) {
  std::vector<std::string> out;
  const ir::Result<Lowered> lowered = lower(finished);
  EXPECT_TRUE(lowered.ok()) << lowered.status().to_string();
  for (const LoweredKernel& k : lowered->kernels) out.push_back(k.structure);
  return out;
}

TEST(Structure, NamesMakeNoDifference) {
  for (const bool strided : {false, true}) {
    Asked a;
    a.strided = strided;
    const Graph mine = graph_of(a, {}), theirs = graph_of(a, kOther);
    ASSERT_NE(mine.symbols[0].symbol, theirs.symbols[0].symbol);
    EXPECT_EQ(structure_of(mine), structure_of(theirs));
    EXPECT_EQ(groups_of(mine), groups_of(theirs));
    for (const std::string& name : {kOther.x, kOther.w, kOther.b, kOther.m, kOther.l, kOther.y})
      EXPECT_THAT(structure_of(theirs), Not(HasSubstr(name)));
  }
}

TEST(Structure, WhateverElseDiffersMakesOne) {
  const std::vector<std::function<void(Asked&)>> changes = {
      [](Asked& a) { a.k = 25; },
      [](Asked& a) { a.most = 65; },
      [](Asked& a) { a.multiple = 2; },
      [](Asked& a) { a.constant = false; },
      [](Asked& a) { a.transposed = false; },
      [](Asked& a) { a.one_symbol = true; },
      [](Asked& a) { a.strided = true; },
      [](Asked& a) { a.last = "gelu"; },
      [](Asked& a) { a.swapped = true; },
  };
  std::set<std::string> wholes = {structure_of(graph_of({}, {}))};
  std::set<std::vector<std::string>> groups = {groups_of(graph_of({}, {}))};
  for (size_t i = 0; i < changes.size(); ++i) {
    Asked a;
    changes[i](a);
    const Graph g = graph_of(a, {});
    EXPECT_TRUE(wholes.insert(structure_of(g)).second) << "change " << i;
    EXPECT_TRUE(groups.insert(groups_of(g)).second) << "change " << i;
  }
}

// relu(a - b) and neg(a - b), as one graph gives both.
struct Pair {
  ir::DType dtype = ir::DType::f32;
  int64_t least = 1;
  bool twice = false, first_last = false;
};
std::string pair_of(const Pair& p) {
  Graph g;
  const DimDesc m = symbol_dim("M", p.least, 64);
  const int a = add_tensor(g, "a", {m, fixed_dim(8)}, false, p.dtype);
  const int b = p.twice ? a : add_tensor(g, "b", {m, fixed_dim(8)}, false, p.dtype);
  const int s = add_node(g, "sub", {a, b}, "s");
  g.outputs = {add_node(g, "relu", {s}, "r"), add_node(g, "neg", {s}, "n")};
  if (p.first_last) std::swap(g.outputs[0], g.outputs[1]);
  const ir::Result<Graph> out = finish(g);
  EXPECT_TRUE(out.ok()) << out.status().to_string();
  return out.ok() ? structure_of(*out) : std::string();
}

TEST(Structure, TypesOrderAndRepeatedOperandsMakeOne) {
  EXPECT_EQ(pair_of({}), pair_of({}));
  EXPECT_NE(pair_of({}), pair_of({.dtype = ir::DType::bf16}));
  EXPECT_NE(pair_of({}), pair_of({.least = 2}));
  EXPECT_NE(pair_of({}), pair_of({.twice = true}));
  EXPECT_NE(pair_of({}), pair_of({.first_last = true}));
}

// What is made for an operator depends on what is hinted; a decision has a range of its own.
TEST(Structure, HintsBelongToTheWholeOnly) {
  Asked a;
  a.hints = {{8, 1}};
  EXPECT_NE(structure_of(graph_of(a, {})), structure_of(graph_of({}, {})));
  EXPECT_EQ(groups_of(graph_of(a, {})), groups_of(graph_of({}, {})));
}

TEST(Structure, AGroupIsTheSameInEveryGraph) {
  const auto softmax_of = [](bool alone) {
    Graph g;
    const DimDesc m = symbol_dim("M", 1, 64);
    int x = add_tensor(g, "x", {m, fixed_dim(40)});
    if (!alone) x = add_node(g, "matmul", {x, add_tensor(g, "w", {fixed_dim(40), fixed_dim(40)}, true)}, "p");
    const int s = add_node(g, "softmax", {x}, "s");
    g.outputs = {s};
    if (!alone) g.outputs.insert(g.outputs.begin(), x);
    return groups_of(finish(g).value()).back();
  };
  EXPECT_EQ(softmax_of(true), softmax_of(false));
}

}  // namespace
}  // namespace lathe::ops
