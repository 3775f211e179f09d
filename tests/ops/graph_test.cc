// finish(): one test row per rejection, with the exact message; inference; canonical form.
#include "ops/graph.h"

#include <gtest/gtest.h>

#include <functional>

namespace lathe::ops {
namespace {

DimDesc F(int64_t n) { return fixed_dim(n); }
DimDesc M(int64_t max = 64) { return symbol_dim("M", 1, max); }
constexpr int64_t kHuge = int64_t{1} << 40;

struct Refusal {
  const char* what;
  const char* error;
  std::function<void(Graph&)> build;
};

// A legal graph for edits: y = matmul(x [M, 8], w [4, 8]) transposed.
void linear(Graph& g) {
  const int x = add_tensor(g, "x", {M(), F(8)}), w = add_tensor(g, "w", {F(4), F(8)}, true);
  g.outputs = {add_node(g, "matmul", {x, w}, "y", {{"transpose_b", true}})};
}
std::function<void(Graph&)> edit(std::function<void(Graph&)> f) {
  return [f](Graph& g) {
    linear(g);
    f(g);
  };
}
std::function<void(Graph&)> one(const char* op, std::vector<std::vector<DimDesc>> shapes,
                                std::vector<Attr> attrs = {}) {
  return [=](Graph& g) {
    std::vector<int> in;
    for (const auto& s : shapes) in.push_back(add_tensor(g, "x" + std::to_string(in.size()), s));
    g.outputs = {add_node(g, op, in, "y", attrs)};
  };
}
std::function<void(Graph&)> rope_at(std::vector<DimDesc> positions) {
  return [=](Graph& g) {
    const int x = add_tensor(g, "x", {F(5), F(2), F(3), F(8)}), angles = add_tensor(g, "angles", {F(9), F(4)});
    g.outputs = {add_node(g, "rope", {x, angles, angles, add_tensor(g, "at", positions, false, ir::DType::i32)}, "y")};
  };
}

// Pages of so many keys, so many of values, tables and lengths of so many sequences, where there are two.
std::function<void(Graph&)> paged(DimDesc keys, DimDesc values, DimDesc tables, DimDesc lengths) {
  return [=](Graph& g) {
    const std::vector<int> in = {
        add_tensor(g, "q", {F(2), F(4), F(1), F(8)}), add_tensor(g, "k", {values, F(2), keys, F(8)}),
        add_tensor(g, "v", {F(8), F(2), keys, F(8)}), add_tensor(g, "lengths", {lengths}, false, ir::DType::i32),
        add_tensor(g, "pages", {tables, F(3)}, false, ir::DType::i32)};
    g.outputs = {add_node(g, "paged_attention", in, "y")};
  };
}

// Offsets of these sizes, where there are two sequences, or so many.
std::function<void(Graph&)> ragged(std::vector<DimDesc> offsets, DimDesc batch = F(2),
                                   ir::DType type = ir::DType::i32) {
  return [=](Graph& g) {
    const std::vector<int> in = {add_tensor(g, "q", {F(9), F(4), F(8)}),
                                 add_tensor(g, "k", {F(8), F(2), F(4), F(8)}),
                                 add_tensor(g, "v", {F(8), F(2), F(4), F(8)}),
                                 add_tensor(g, "lengths", {batch}, false, ir::DType::i32),
                                 add_tensor(g, "pages", {batch, F(3)}, false, ir::DType::i32),
                                 add_tensor(g, "offsets", offsets, false, type)};
    g.outputs = {add_node(g, "ragged_attention", in, "y")};
  };
}

// A mask over tables of so many pages of four keys.
std::function<void(Graph&)> masked(DimDesc table, std::vector<DimDesc> mask, bool of_ragged = false) {
  return [=](Graph& g) {
    std::vector<int> in = {
        add_tensor(g, "q", of_ragged ? std::vector{F(9), F(4), F(8)} : std::vector{F(2), F(4), F(3), F(8)}),
        add_tensor(g, "k", {F(8), F(2), F(4), F(8)}), add_tensor(g, "v", {F(8), F(2), F(4), F(8)}),
        add_tensor(g, "lengths", {F(2)}, false, ir::DType::i32),
        add_tensor(g, "pages", {F(2), table}, false, ir::DType::i32)};
    if (of_ragged) in.push_back(add_tensor(g, "offsets", {F(3)}, false, ir::DType::i32));
    in.push_back(add_tensor(g, "mask", mask));
    g.outputs = {add_node(g, of_ragged ? "ragged_attention" : "paged_attention", in, "y")};
  };
}

// Keys and values of a type, with scales of these sizes for both if there are any, or if the attribute says so.
std::function<void(Graph&)> bytes(ir::DType type, std::vector<DimDesc> scales, bool say = false) {
  return [=](Graph& g) {
    std::vector<int> in = {add_tensor(g, "q", {F(2), F(4), F(1), F(8)}),
                           add_tensor(g, "k", {F(2), F(2), F(4), F(8)}, false, type),
                           add_tensor(g, "v", {F(2), F(2), F(4), F(8)}, false, type),
                           add_tensor(g, "lengths", {F(2)}, false, ir::DType::i32)};
    if (!scales.empty()) in.insert(in.end(), 2, add_tensor(g, "scales", scales));
    g.outputs = {add_node(g, "cached_attention", in, "y", {{"scales", say || !scales.empty()}})};
  };
}

const std::vector<Refusal>& refusals() {
  static const std::vector<Refusal> kRows = {
      {"no output", "INVALID: outputs: the graph has no output", [](Graph&) {}},
      {"unknown op", "UNSUPPORTED: nodes[0]: unknown op \"matmult\"", edit([](Graph& g) { g.nodes[0].op = "matmult"; })},
      {"arity", "INVALID: nodes[0]: 1 operands of matmul, expected 2", edit([](Graph& g) { g.nodes[0].inputs.pop_back(); })},
      {"operand index", "INVALID: nodes[0]: operand 9 of matmul, expected 0 to 2", edit([](Graph& g) { g.nodes[0].inputs[1] = 9; })},
      {"output index", "INVALID: nodes[0]: output -1 of matmul, expected 0 to 2", edit([](Graph& g) { g.nodes[0].output = -1; })},
      {"unknown attribute", "INVALID: nodes[0]: unknown attribute \"axis\" of matmul", edit([](Graph& g) { g.nodes[0].attrs = {{"axis", int64_t{1}}}; })},
      {"repeated attribute", "INVALID: nodes[0]: attribute \"transpose_b\" is repeated", edit([](Graph& g) { g.nodes[0].attrs.push_back({"transpose_b", true}); })},
      {"attribute type", "INVALID: nodes[0].transpose_b: expected a boolean", edit([](Graph& g) { g.nodes[0].attrs[0].value = int64_t{1}; })},
      {"missing attribute", "INVALID: nodes[0]: attribute \"value\" of scale is missing", one("scale", {{F(2)}})},
      {"infinite attribute", "INVALID: nodes[0].value: expected a finite number", one("scale", {{F(2)}}, {{"value", INFINITY}})},
      {"K", "INVALID: x.shape[1]: 96, expected 8 (K of w)", edit([](Graph& g) { g.tensors[0].dims[1] = F(96); })},
      {"symbolic K", "INVALID: x.shape[1]: L, expected 8 (K of w)", edit([](Graph& g) { g.tensors[0].dims[1] = symbol_dim("L", 1, 8); })},
      {"matmul rank", "INVALID: x.shape: 1 dimensions, expected at least 2 (matmul)", edit([](Graph& g) { g.tensors[0].dims = {F(8)}; })},
      {"batch", "INVALID: x1.shape[0]: 3, expected 2 or 1 (broadcast)", one("matmul", {{F(2), F(4), F(4)}, {F(3), F(4), F(4)}})},
      {"broadcast", "INVALID: x1.shape[1]: 4, expected 3 or 1 (broadcast)", one("add", {{F(2), F(3)}, {F(2), F(4)}})},
      {"broadcast of symbols", "INVALID: x1.shape[0]: L, expected M or 1 (broadcast)", one("add", {{M()}, {symbol_dim("L", 1, 64)}})},
      {"dtype", "UNSUPPORTED: x: dtype i8 of matmul, expected f32, bf16, f16; cast it to f32 before", edit([](Graph& g) { g.tensors[0].dtype = ir::DType::i8; })},
      {"mask", "UNSUPPORTED: x0: dtype f32 of where, expected b8", one("where", {{F(2)}, {F(2)}, {F(2)}})},
      {"rank", "INVALID: x0.shape: 9 dimensions, expected at most 8", one("neg", {std::vector<DimDesc>(9, F(1))})},
      {"negative dim", "INVALID: x0.shape[1]: -1, expected >= 0", one("neg", {{F(2), F(-1)}})},
      {"empty range", "INVALID: x0.shape[0]: max 1 is less than min 5", one("neg", {{symbol_dim("M", 5, 1)}})},
      {"multiple", "INVALID: x0.shape[0]: multiple_of 0, expected >= 1", one("neg", {{symbol_dim("M", 1, 9, {}, 0)}})},
      {"no multiple", "INVALID: x0.shape[0]: no multiple of 8 in 1..7", one("neg", {{symbol_dim("M", 1, 7, {}, 8)}})},
      {"hint", "INVALID: x0.shape[0]: hint 12, expected a multiple of 1 in 1..9", one("neg", {{symbol_dim("M", 1, 9, {{12, 1}})}})},
      {"hint weight", "INVALID: x0.shape[0]: weight of a hint, expected finite and >= 0", one("neg", {{symbol_dim("M", 1, 9, {{2, NAN}})}})},
      {"symbol name", "INVALID: x0.shape[0]: symbol \"a b\", expected a name", one("neg", {{symbol_dim("a b", 1, 9)}})},
      {"symbols alike", "INVALID: x0.shape[1]: symbols S_m and m cannot be told apart", one("neg", {{symbol_dim("m", 1, 9), symbol_dim("S_m", 1, 9)}})},
      {"two ranges", "INVALID: x1.shape[0]: symbol M in 1..9 multiple 1, expected 1..64 multiple 1 as in x0.shape[0]", one("add", {{M()}, {M(9)}})},
      {"size overflow", "INVALID: x0.shape: the size in bytes overflows 64 bits", one("neg", {{F(kHuge), F(kHuge)}})},
      {"result overflow", "INVALID: y.shape: the size in bytes overflows 64 bits", one("matmul", {{F(kHuge), F(1)}, {F(1), F(kHuge)}})},
      {"offset overflow", "INVALID: x0.strides[0]: the offset in bytes overflows 64 bits", [](Graph& g) {
         g.outputs = {add_node(g, "neg", {add_tensor(g, "x0", {F(1024)}, false, ir::DType::f32, {ir::Expr(INT64_MAX / 1024)})}, "y")};
       }},
      {"symbols", "INVALID: dims: 7 symbols, expected at most 6", [](Graph& g) {
         std::vector<DimDesc> dims;
         for (int i = 0; i < 7; ++i) dims.push_back(symbol_dim("D" + std::to_string(i), 1, 4));
         one("neg", {dims})(g);
       }},
      {"stride form", "INVALID: x.strides[0]: expected a product of non-negative constants and symbols", edit([](Graph& g) { g.tensors[0].strides = {ir::Expr(-8), ir::Expr(1)}; })},
      {"stride count", "INVALID: x.strides: 1 strides, expected 2", edit([](Graph& g) { g.tensors[0].strides = {ir::Expr(1)}; })},
      {"stride symbol", "INVALID: x.strides[0]: symbol Q is the size of no dimension", edit([](Graph& g) { g.tensors[0].strides = {ir::symbol("Q"), ir::Expr(1)}; })},
      {"stride 0 in a result", "INVALID: y.strides: stride 0: elements of a result share memory, expected >= 1", edit([](Graph& g) { g.tensors[2].strides = {ir::Expr(4), ir::Expr(0)}; })},
      {"overlap in a result", "INVALID: y.strides: stride 3: elements of a result share memory, expected >= 4", edit([](Graph& g) { g.tensors[2].strides = {ir::Expr(3), ir::Expr(1)}; })},
      {"axis range", "INVALID: x0: axis 2 of softmax, expected -2 to 1", one("softmax", {{F(2), F(3)}}, {{"axis", int64_t{2}}})},
      {"axis", "UNSUPPORTED: x0: axis 0 of softmax: only the last axis is supported", one("softmax", {{F(2), F(3)}}, {{"axis", int64_t{0}}})},
      {"scale of a norm", "INVALID: x1.shape[0]: 4, expected 3 (last of x0)", one("rmsnorm", {{F(2), F(3)}, {F(4)}})},
      {"rank of a scale", "INVALID: x1.shape: 2 dimensions, expected 1 (rmsnorm)", one("rmsnorm", {{F(2), F(3)}, {F(1), F(3)}})},
      {"epsilon", "INVALID: x0: epsilon -1 of rmsnorm, expected >= 0", one("rmsnorm", {{F(2), F(3)}}, {{"epsilon", -1.0}})},
      {"row rank", "INVALID: x0.shape: 0 dimensions, expected at least 1 (sum)", one("sum", {{}})},
      {"gelu form", "INVALID: x0: approximate \"fast\" of gelu, expected \"none\" or \"tanh\"", one("gelu", {{F(2)}}, {{"approximate", std::string("fast")}})},
      {"perm", "INVALID: x0: perm [0, 0] of transpose, expected each of the 2 dimensions once", one("transpose", {{F(2), F(3)}}, {{"perm", std::vector<int64_t>{0, 0}}})},
      {"dtype of an elementwise operand", "UNSUPPORTED: x: dtype i8 of neg, expected f32, bf16, f16; cast it to f32 before", [](Graph& g) {
         g.outputs = {add_node(g, "neg", {add_tensor(g, "x", {F(2)}, false, ir::DType::i8)}, "y")};
       }},
      {"cast to", "INVALID: x0: to \"f8\" of cast, expected f32, bf16, f16, i32, i8, u8, b8", one("cast", {{F(2)}}, {{"to", std::string("f8")}})},
      {"cast to what none makes", "UNSUPPORTED: x0: to \"i64\" of cast, expected f32, bf16, f16, i32, i8, u8, b8", one("cast", {{F(2)}}, {{"to", std::string("i64")}})},
      {"rope of varying heads", "INVALID: x0.shape[2]: M, expected a fixed size: finish a graph for each", one("rope", {{F(2), F(3), M()}, {F(2), F(3)}, {F(2), F(3)}})},
      {"odd rope", "INVALID: x0.shape[2]: 7, expected an even size, as pairs are turned: pad it by one", one("rope", {{F(2), F(3), F(7)}, {F(2), F(3)}, {F(2), F(3)}})},
      {"rope positions", "INVALID: x1.shape[0]: 5, expected 2 (positions of x0)", one("rope", {{F(2), F(3), F(8)}, {F(5), F(4)}, {F(2), F(4)}})},
      {"rope half", "INVALID: x1.shape[1]: 8, expected at most 4 (half of the last of x0)", one("rope", {{F(2), F(3), F(8)}, {F(2), F(8)}, {F(2), F(8)}})},
      {"rope half of sin", "INVALID: x2.shape[1]: 8, expected 4 (as x1)", one("rope", {{F(2), F(3), F(8)}, {F(2), F(4)}, {F(2), F(8)}})},
      {"rope of varying angles", "INVALID: x1.shape[1]: M, expected at most 4 (half of the last of x0)", one("rope", {{F(2), F(3), F(8)}, {F(2), M()}, {F(2), M()}})},
      {"rope positions that are floats", "UNSUPPORTED: x3: dtype f32 of rope, expected i32, i64", one("rope", {{F(2), F(3), F(8)}, {F(9), F(4)}, {F(9), F(4)}, {F(2)}})},
      {"rope positions of all tokens", "INVALID: at.shape[0]: 3, expected 2 (as x)", rope_at({F(3)})},
      {"rope positions of the batch", "INVALID: at.shape[1]: 1, expected 2 (as x)", rope_at({F(5), F(1)})},
      {"rope positions of heads", "INVALID: at.shape: 3 dimensions, expected 2 (rope)", rope_at({F(5), F(2), F(3)})},
      {"attention heads", "INVALID: x1.shape[0]: 3, expected a divisor of 4 (heads of x0)", one("attention", {{F(4), F(2), F(8)}, {F(3), F(5), F(8)}, {F(3), F(5), F(8)}})},
      {"attention of varying heads", "INVALID: x0.shape[0]: M, expected a fixed number of heads: finish a graph for each", one("attention", {{M(), F(2), F(8)}, {M(), F(5), F(8)}, {M(), F(5), F(8)}})},
      {"attention depth", "INVALID: x1.shape[2]: 7, expected 8 (depth of x0)", one("attention", {{F(4), F(2), F(8)}, {F(2), F(5), F(7)}, {F(2), F(5), F(8)}})},
      {"attention keys", "INVALID: x2.shape[1]: 6, expected 5 (keys of x1)", one("attention", {{F(4), F(2), F(8)}, {F(2), F(5), F(8)}, {F(2), F(6), F(8)}})},
      {"attention batch", "INVALID: x1.shape[0]: 2, expected 3 (batch of x0)", one("attention", {{F(3), F(4), F(2), F(8)}, {F(2), F(4), F(5), F(8)}, {F(3), F(4), F(5), F(8)}})},
      {"attention mask", "INVALID: x3.shape[1]: 4, expected 5 (of the scores) or 1", one("attention", {{F(4), F(2), F(8)}, {F(2), F(5), F(8)}, {F(2), F(5), F(8)}, {F(2), F(4)}})},
      {"attention window", "INVALID: attention: window 0, expected at least 1; leave it out for all keys", one("attention", {{F(4), F(2), F(8)}, {F(2), F(5), F(8)}, {F(2), F(5), F(8)}}, {{"window", int64_t{0}}})},
      {"attention soft_cap", "INVALID: attention: soft_cap 0, expected a number above 0; leave it out for none", one("attention", {{F(4), F(2), F(8)}, {F(2), F(5), F(8)}, {F(2), F(5), F(8)}}, {{"soft_cap", 0.0}})},
      {"attention without its sinks", "INVALID: attention: 3 operands of attention with sinks, expected 4 or 5", one("attention", {{F(4), F(2), F(8)}, {F(2), F(5), F(8)}, {F(2), F(5), F(8)}}, {{"sinks", true}})},
      {"attention with more than a mask", "INVALID: attention: 5 operands of attention without sinks, expected 3 or 4", one("attention", {{F(4), F(2), F(8)}, {F(2), F(5), F(8)}, {F(2), F(5), F(8)}, {F(5)}, {F(4)}})},
      {"attention sinks", "INVALID: x3.shape[0]: 2, expected 4 (heads of x0)", one("attention", {{F(4), F(2), F(8)}, {F(2), F(5), F(8)}, {F(2), F(5), F(8)}, {F(2)}}, {{"sinks", true}})},
      {"attention pages that vary", "INVALID: k.shape[2]: M, expected a fixed number of keys of a page, at least 1: finish a graph for each", paged(M(), F(8), F(2), F(2))},
      {"attention pages of no keys", "INVALID: k.shape[2]: 0, expected a fixed number of keys of a page, at least 1: finish a graph for each", paged(F(0), F(8), F(2), F(2))},
      {"attention pages of values", "INVALID: v.shape[0]: 8, expected 9 (pages of k)", paged(F(4), F(9), F(2), F(2))},
      {"attention tables", "INVALID: pages.shape[0]: 3, expected 2 (batch of lengths)", paged(F(4), F(8), F(3), F(2))},
      {"attention lengths of sequences", "INVALID: lengths.shape[0]: 1, expected 2 (batch of q)", paged(F(4), F(8), F(2), F(1))},
      {"attention mask of pages", "INVALID: mask.shape[1]: 11, expected 12 (of the scores) or 1", masked(F(3), {F(3), F(11)})},
      {"attention mask of a page", "INVALID: mask.shape[4]: 3, expected 4 (of the scores) or 1", masked(F(3), {F(2), F(4), F(3), F(3), F(3)})},
      {"attention mask of tables that vary", "INVALID: mask.shape[1]: 12, expected 1, or 5 dimensions, the last two [M, 4] (pages of keys)", masked(M(), {F(3), F(12)})},
      {"attention mask of one page for all", "INVALID: mask.shape[3]: 2, expected M (of the scores) or 1", masked(M(), {F(1), F(1), F(1), F(2), F(4)})},
      {"attention mask of too many dimensions", "INVALID: mask: 6 dimensions, expected at most 5 (scores of paged_attention)", masked(F(3), {F(1), F(1), F(1), F(1), F(1), F(1)})},
      {"attention mask of ragged heads", "INVALID: mask.shape[0]: 2, expected 4 (of the scores) or 1", masked(F(3), {F(2), F(9), F(12)}, true)},
      {"attention mask of ragged queries", "INVALID: mask.shape[0]: 4, expected 9 (of the scores) or 1", masked(F(3), {F(4), F(12)}, true)},
      {"attention mask of ragged tables", "INVALID: mask.shape[1]: 12, expected 1, or 4 dimensions, the last two [M, 4] (pages of keys)", masked(M(), {F(9), F(12)}, true)},
      {"attention offsets", "INVALID: offsets.shape[0]: 2, expected 3 (batch of lengths, and one more)", ragged({F(2)})},
      {"attention offsets of batches that vary", "INVALID: offsets.shape[0]: 3, expected [M, 2], with strides 1 and 1 for one array", ragged({F(3)}, M())},
      {"attention offsets in pairs", "INVALID: offsets.shape[1]: 3, expected 2: where the queries of a sequence begin and end", ragged({F(2), F(3)})},
      {"attention offsets of a batch", "INVALID: offsets.shape[0]: 3, expected 2 (batch of lengths)", ragged({F(3), F(2)})},
      {"attention offsets that are floats", "UNSUPPORTED: offsets: dtype f32 of ragged_attention, expected i32, i64", ragged({F(3)}, F(2), ir::DType::f32)},
      {"attention of bytes", "INVALID: k: dtype i8 without scales, expected f32, bf16, f16", bytes(ir::DType::i8, {})},
      {"attention of scaled floats", "INVALID: k: dtype f32 with scales, expected i8", bytes(ir::DType::f32, {F(2), F(2), F(4)})},
      {"attention scales", "INVALID: scales.shape[2]: 3, expected 4 (keys of k)", bytes(ir::DType::i8, {F(2), F(2), F(3)})},
      {"attention without its scales", "INVALID: cached_attention: 4 operands of cached_attention without sinks and with scales, expected 6 or 7", bytes(ir::DType::i8, {}, true)},
      {"no name", "INVALID: tensors: tensor 0 has no name", edit([](Graph& g) { g.tensors[0].name.clear(); })},
      {"same names", "INVALID: x: two tensors of this name", edit([](Graph& g) { g.tensors[1].name = "x"; })},
      {"two writers", "INVALID: y: written by two nodes", edit([](Graph& g) { g.nodes.push_back(g.nodes[0]); })},
      {"constant result", "INVALID: y: a constant cannot be the result of matmul", edit([](Graph& g) { g.tensors[2].constant = true; })},
      {"nobody writes", "INVALID: x: dims and dtype are missing, and no node writes it", edit([](Graph& g) { g.tensors[0].inferred = true; })},
      {"input as output", "INVALID: x: an input cannot be an output; copy it", edit([](Graph& g) { g.outputs = {0}; })},
      {"output twice", "INVALID: y: named twice as an output", edit([](Graph& g) { g.outputs = {2, 2}; })},
      {"output index", "INVALID: outputs[0]: tensor 7 does not exist", edit([](Graph& g) { g.outputs = {7}; })},
      {"unused", "INVALID: z: no output needs it", edit([](Graph& g) { add_tensor(g, "z", {F(2)}); })},
      {"cycle", "INVALID: b: depends on itself", [](Graph& g) {
         const int x = add_tensor(g, "x", {F(2)});
         const int a = add_node(g, "add", {x, 2}, "a");
         g.outputs = {add_node(g, "neg", {a}, "b")};
       }},
      {"declared shape", "INVALID: y.shape[1]: 5, expected 4 (result of matmul)", edit([](Graph& g) {
         g.tensors[2].inferred = false;
         g.tensors[2].dims = {M(), F(5)};
       })},
      {"declared rank", "INVALID: y.shape: 1 dimensions, expected 2 (result of matmul)", edit([](Graph& g) {
         g.tensors[2].inferred = false;
         g.tensors[2].dims = {M()};
       })},
      {"declared dtype", "INVALID: y: dtype f16, expected f32 (result of matmul)", edit([](Graph& g) {
         g.tensors[2].inferred = false;
         g.tensors[2].dtype = ir::DType::f16;
         g.tensors[2].dims = {M(), F(4)};
       })},
  };
  return kRows;
}

TEST(Finish, RefusesNamingTheArgument) {
  for (const Refusal& r : refusals()) {
    Graph g;
    r.build(g);
    const auto result = finish(g);
    ASSERT_FALSE(result.ok()) << r.what;
    EXPECT_EQ(result.status().to_string(), r.error) << r.what;
  }
}

TEST(Finish, InfersAndStatesEverything) {
  Graph g;
  linear(g);
  const auto f = finish(g);
  ASSERT_TRUE(f.ok()) << f.status().to_string();
  const TensorDesc& y = f->tensors[f->outputs[0]];
  EXPECT_FALSE(y.inferred);
  ASSERT_EQ(y.dims.size(), 2u);
  EXPECT_EQ(dim_text(y.dims[0]), "M");
  EXPECT_EQ(dim_text(y.dims[1]), "4");
  EXPECT_EQ(f->nodes[0].attrs.size(), 2u);
  ASSERT_EQ(f->symbols.size(), 1u);
  EXPECT_EQ(f->symbols[0].max, 64);
  EXPECT_EQ(*finish(*f), *f);
}

// The same graph with tensors and nodes stated in another order and under other names.
TEST(Finish, OrderAndNamesDoNotMatter) {
  const auto build = [](bool flip) {
    Graph g;
    int x = -1, b = -1;
    if (flip) b = add_tensor(g, "q1", {F(8)}, true);
    x = add_tensor(g, flip ? "q0" : "x", {symbol_dim(flip ? "R" : "M", 1, 64), F(8)});
    if (!flip) b = add_tensor(g, "b", {F(8)}, true);
    const int t = add_node(g, "add", {x, b}, flip ? "q2" : "t");
    g.outputs = {add_node(g, "relu", {t}, flip ? "q3" : "y")};
    if (flip) std::swap(g.nodes[0], g.nodes[1]);
    return g;
  };
  const auto a = finish(build(false)), b = finish(build(true));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->nodes, b->nodes);
  EXPECT_EQ(a->outputs, b->outputs);
  EXPECT_EQ(a->inputs, (std::vector<int>{0, 1}));
  EXPECT_EQ(b->inputs, (std::vector<int>{1, 0}));  // arguments stay in the caller's order
  EXPECT_EQ(b->source, (std::vector<int>{1, 0, 2, 3}));
}

TEST(Finish, SymbolsOfOneValueAreFixed) {
  Graph g;
  const int x =
      add_tensor(g, "x", {symbol_dim("B", 3, 3), F(8)}, false, ir::DType::f32, {ir::Expr(8) * ir::symbol("B"), 1});
  g.outputs = {add_node(g, "neg", {x}, "y")};
  const auto f = finish(g);
  ASSERT_TRUE(f.ok()) << f.status().to_string();
  EXPECT_TRUE(f->symbols.empty());
  EXPECT_TRUE(ir::is_const_int(f->tensors[0].strides[0], 24));
}

// The name made for a dim without one differs from the caller's names, said before it or after it.
TEST(Finish, UnnamedDimsTakeNobodysName) {
  for (const bool before : {false, true}) {
    Graph g;
    DimDesc unnamed = symbol_dim("", 1, 9);
    const DimDesc named = symbol_dim(before ? "D1_0" : "D0_0", 1, 9);
    const int first = add_tensor(g, "first", {before ? named : unnamed}, false);
    const int second = add_tensor(g, "second", {before ? unnamed : named}, false);
    g.outputs = {add_node(g, "neg", {first}, "y"), add_node(g, "neg", {second}, "z")};
    const auto f = finish(g);
    ASSERT_TRUE(f.ok()) << f.status().to_string();
    EXPECT_EQ(f->symbols.size(), 2u);
  }
}

TEST(Finish, LongChains) {
  Graph g;
  int x = add_tensor(g, "x", {F(2)});
  for (int i = 0; i < 3000; ++i) x = add_node(g, "neg", {x}, "t" + std::to_string(i));
  g.outputs = {x};
  EXPECT_TRUE(finish(g).ok());
}

}  // namespace
}  // namespace lathe::ops
