// argmax and cumsum: ties, NaN, rows of nothing, what is fused with them, and what is refused.
#include <gmock/gmock.h>

#include <cmath>

#include "ir/core/text_form.h"
#include "tests/ops/check_lowered.h"

namespace lathe::ops::testing {
namespace {

using ::testing::ElementsAre;

Graph over(const char* op, const std::vector<DimDesc>& dims, std::vector<Attr> attrs = {},
           ir::DType type = ir::DType::f32) {
  Graph g;
  g.outputs = {add_node(g, op, {add_tensor(g, "x", dims, false, type)}, "y", std::move(attrs))};
  return g;
}

TEST(Lower, ArgmaxOfEveryShape) {
  for (const std::vector<int64_t>& dims :
       std::vector<std::vector<int64_t>>{{4, 9}, {9}, {1}, {2, 3, 5}, {3, 1}, {0, 4}, {3, 0}}) {
    for (const char* to : {"i32", "i64"}) {
      for (const bool keep : {false, true}) {
        for (const ir::DType type : {ir::DType::f32, ir::DType::bf16, ir::DType::f16})
          check(over("argmax", fixed(dims), {{"to", std::string(to)}, {"keepdims", keep}}, type));
      }
    }
  }
}

TEST(Lower, ArgmaxOfTiesAndOfWhatIsNoNumber) {
  const Graph g = *finish(over("argmax", fixed({6, 4}), {{"to", std::string("i64")}}));
  constexpr double kInf = INFINITY, kNan = NAN;
  Tensors values;
  values[g.inputs[0]] = {{6, 4}, {1,     3,     3,     2,      //
                                  -kInf, -kInf, -kInf, -kInf,  //
                                  5,     kNan,  7,     kNan,   //
                                  kInf,  1,     kInf,  2,      //
                                  -0.0,  0.0,   -1,    0.0,    //
                                  kNan,  kInf,  1,     2}};
  run_lowered(g, *lower(g), {}, values);
  EXPECT_THAT(values.at(g.outputs[0]).data, ElementsAre(1, 0, 1, 0, 0, 0));
}

TEST(Lower, TopKOfEveryShape) {
  for (const std::vector<int64_t>& dims :
       std::vector<std::vector<int64_t>>{{4, 9}, {9}, {1}, {2, 3, 5}, {3, 1}, {0, 4}, {3, 0}}) {
    for (const int64_t k : {0, 1, 4, 9}) {
      for (const ir::DType type : {ir::DType::f32, ir::DType::bf16, ir::DType::f16}) {
        Graph g = over("top_k", fixed(dims), {{"k", std::min(k, dims.back())}}, type);
        g.outputs = results_of(g.nodes[0]);
        check(g);
        g.outputs = {g.nodes[0].also[0]};
        check(g);
      }
    }
  }
}

TEST(Lower, TopKOfTiesAndOfWhatIsNoNumber) {
  Graph unfinished = over("top_k", fixed({4, 5}), {{"k", int64_t{3}}});
  unfinished.outputs = results_of(unfinished.nodes[0]);
  const Graph g = *finish(unfinished);
  constexpr double kInf = INFINITY, kNan = NAN;
  Tensors values;
  values[g.inputs[0]] = {{4, 5}, {1,     3,    3,     2,    3,     //
                                  -kInf, kNan, -kInf, kNan, kNan,  //
                                  kInf,  5,    kInf,  kNan, kInf,  //
                                  0.0,   -0.0, -1,    0.0,  2}};
  run_lowered(g, *lower(g), {}, values);
  EXPECT_THAT(values.at(g.outputs[0]).data, ElementsAre(3, 3, 3, -kInf, -kInf, -kInf, kInf, kInf, kInf, 2, 0, 0));
  EXPECT_THAT(values.at(g.outputs[1]).data, ElementsAre(1, 2, 4, 0, 2, -1, 0, 2, 4, 4, 0, 1));
}

TEST(Graph, TopKRefusesWhatItDoesNotServe) {
  const auto error = [](const Graph& g) { return finish(g).status().to_string(); };
  EXPECT_EQ(error(over("top_k", fixed({3, 5}), {{"k", int64_t{6}}})),
            "INVALID: x: k 6 of top_k, expected 0 to 5 (last of x)");
  EXPECT_EQ(error(over("top_k", fixed({3, 5}), {{"k", int64_t{-1}}})),
            "INVALID: x: k -1 of top_k, expected 0 to 5 (last of x)");
  EXPECT_EQ(error(over("top_k", fixed({3, 5}))), "INVALID: nodes[0]: attribute \"k\" of top_k is missing");
  EXPECT_EQ(error(over("top_k", fixed({3, 1 << 25}), {{"k", int64_t{2}}})),
            "INVALID: x.shape[1]: 33554432, expected at most 16777216");
  Graph one = over("top_k", fixed({3, 5}), {{"k", int64_t{2}}});
  one.nodes[0].also.clear();
  EXPECT_EQ(error(one), "INVALID: nodes[0]: 1 results of top_k, expected 2");
  Graph two = over("cumsum", fixed({3, 5}));
  two.nodes[0].also = {two.nodes[0].output};
  EXPECT_EQ(error(two), "INVALID: nodes[0]: 2 results of cumsum, expected 1");
}

TEST(Lower, CumsumOfEveryShape) {
  for (const std::vector<int64_t>& dims :
       std::vector<std::vector<int64_t>>{{4, 9}, {9}, {1}, {2, 3, 5}, {3, 1}, {0, 4}, {3, 0}}) {
    for (const ir::DType type : {ir::DType::f32, ir::DType::bf16, ir::DType::f16})
      check(over("cumsum", fixed(dims), {{"axis", static_cast<int64_t>(dims.size()) - 1}}, type));
  }
  Graph g;  // what rides on both sides
  const DimDesc m = symbol_dim("M", 0, 64), n = symbol_dim("N", 0, 64);
  int y = add_node(g, "scale", {add_tensor(g, "x", {m, n})}, "a", {{"value", 0.5}});
  y = add_node(g, "cumsum", {y}, "b");
  g.outputs = {add_node(g, "add", {y, add_tensor(g, "r", {m, n})}, "c")};
  for (const int64_t rows : {0, 3}) check(g, {{"M", rows}, {"N", 7}});
  const auto lowered = lower(*finish(g));
  ASSERT_EQ(lowered->kernels.size(), 1u);
  EXPECT_EQ(ir::print(lowered->kernels[0].kernel),
            R"(kernel scale_cumsum_add(e0: f32[M, N] in, e1: f32[M, N] in, d: f32[M, N] out) family scan )"
            R"(where M in 0..64, N in 0..64
  a: f32[M] heap
  for b < M [row]:
    a[b] = 0.0
    for n < N [col]:
      a[b] += e0[b, n] * 0.5
      d[b, n] = a[b] + e1[b, n]
)");
}

TEST(Lower, CumsumOfEveryAxis) {
  for (const std::vector<int64_t>& dims : std::vector<std::vector<int64_t>>{
           {4, 9}, {1, 1}, {2, 3, 5}, {3, 1, 2}, {2, 3, 2, 5}, {0, 4}, {3, 0}, {2, 0, 3}, {2, 3, 0}}) {
    const auto rank = static_cast<int64_t>(dims.size());
    for (int64_t axis = -rank; axis < rank; ++axis) {
      for (const ir::DType type : {ir::DType::f32, ir::DType::bf16, ir::DType::f16})
        check(over("cumsum", fixed(dims), {{"axis", axis}}, type));
    }
  }
  Graph g;  // what rides on both sides
  const DimDesc m = symbol_dim("M", 0, 64), n = symbol_dim("N", 0, 64);
  int y = add_node(g, "scale", {add_tensor(g, "x", {m, n})}, "a", {{"value", 0.5}});
  y = add_node(g, "cumsum", {y}, "b", {{"axis", int64_t{0}}});
  g.outputs = {add_node(g, "add", {y, add_tensor(g, "r", {n})}, "c")};
  for (const int64_t rows : {0, 3}) check(g, {{"M", rows}, {"N", 7}});
  const auto lowered = lower(*finish(g));
  ASSERT_EQ(lowered->kernels.size(), 1u);
  EXPECT_EQ(ir::print(lowered->kernels[0].kernel),
            R"(kernel scale_cumsum_add(e0: f32[M, N] in, e1: f32[N] in, d: f32[1, M, N] out) family scan )"
            R"(where M in 0..64, N in 0..64
  a: f32[1, N] heap
  for b < 1 [row]:
    for c < N [clear]:
      a[b, c] = 0.0
    for n < M:
      for m < N [col]:
        a[b, m] += e0[n, m] * 0.5
        d[b, n, m] = a[b, m] + e1[m]
)");
}

// An index is that of the numbers as they are stored: what makes them is a Kernel of its own.
TEST(Lower, ArgmaxTakesNoneIntoItsKernel) {
  Graph g;
  const int x = add_node(g, "exp", {add_tensor(g, "x", fixed({3, 5}))}, "e");
  g.outputs = {add_node(g, "argmax", {x}, "y", {{"to", std::string("i32")}})};
  check(g);
  EXPECT_EQ(lower(*finish(g))->kernels.size(), 2u);
}

TEST(Graph, ArgmaxAndCumsumRefuseWhatTheyDoNotServe) {
  const auto error = [](const Graph& g) { return finish(g).status().to_string(); };
  EXPECT_EQ(error(over("argmax", fixed({3, 5}), {{"to", std::string("i8")}})),
            "UNSUPPORTED: x: to \"i8\" of argmax, expected i32, i64");
  EXPECT_EQ(error(over("argmax", fixed({3, 5}), {{"to", std::string("int")}})),
            "INVALID: x: to \"int\" of argmax, expected i32, i64");
  EXPECT_EQ(error(over("argmax", fixed({3, 5}))), "INVALID: nodes[0]: attribute \"to\" of argmax is missing");
  EXPECT_EQ(error(over("argmax", fixed({3, int64_t{1} << 31}), {{"to", std::string("i64")}})),
            "INVALID: x.shape[1]: 2147483648, expected at most 2147483647, the largest i32");
  EXPECT_EQ(error(over("argmax", fixed({3, 5}), {{"to", std::string("i32")}, {"axis", int64_t{0}}})),
            "UNSUPPORTED: x: axis 0 of argmax: only the last axis is supported");
  EXPECT_EQ(error(over("argmax", fixed({3, 5}), {{"to", std::string("i32")}}, ir::DType::i32)),
            "UNSUPPORTED: x: dtype i32 of argmax, expected f32, bf16, f16; cast it to f32 before");
  EXPECT_EQ(error(over("cumsum", {})), "INVALID: x.shape: 0 dimensions, expected at least 1 (cumsum)");
  EXPECT_EQ(error(over("cumsum", fixed({3, 5}), {{"axis", int64_t{2}}})),
            "INVALID: x: axis 2 of cumsum, expected -2 to 1");
  EXPECT_EQ(error(over("cumsum", fixed({3, 5}), {}, ir::DType::i64)),
            "UNSUPPORTED: x: dtype i64 of cumsum, expected f32, bf16, f16");
}

}  // namespace
}  // namespace lathe::ops::testing
