// Shapes beyond one swept dimension: operators on one element, symbols that are two dimensions at once, results without
// elements beside others, masks inside chains. Checked as the sweep checks (sweep_case.h).
#include "tests/sweep/sweep_case.h"

namespace lathe::runtime {
namespace {

using ops::add_node;
using ops::add_tensor;
using ops::DimDesc;
using ops::fixed_dim;
using ops::symbol_dim;

void sweep(ops::Graph& graph, std::vector<int> outputs, const std::string& what,
           const std::vector<SymbolValues>& shapes, int hint_every = 0) {
  graph.outputs = std::move(outputs);
  const auto finished = ops::finish(graph);
  ASSERT_TRUE(finished.ok()) << what << ": " << finished.status().to_string();
  Case(*finished, what).run(shapes, hint_every);
}

TEST(Shapes, elementwise_operators_on_one_element) {
  for (const size_t rank : {0, 1, 2, 3}) {
    for (const char* op : {"exp", "gelu", "relu", "silu"}) {
      ops::Graph g;
      const int x = add_tensor(g, "x", std::vector<DimDesc>(rank, fixed_dim(1)));
      sweep(g, {add_node(g, op, {x}, "y")}, fmt::format("{} of rank {}", op, rank), {{}});
    }
    ops::Graph g;
    const std::vector<DimDesc> ones(rank, fixed_dim(1));
    const int x = add_tensor(g, "x", ones), y = add_tensor(g, "y", ones);
    sweep(g, {add_node(g, "swiglu", {x, y}, "z")}, fmt::format("swiglu of rank {}", rank), {{}});
  }
}

// Rows of attention scores: as many as columns.
TEST(Shapes, softmax_of_squares) {
  for (const int64_t hint : {1, 7, 16, 33, 64}) {
    ops::Graph g;
    const DimDesc t = symbol_dim("T", 1, 512, {{hint, 1}});
    const int x = add_tensor(g, "x", {fixed_dim(12), t, t});
    std::vector<SymbolValues> shapes;
    for (const int64_t n : {1, 2, 15, 16, 17, 33}) shapes.push_back({{"T", n}});
    sweep(g, {add_node(g, "softmax", {x}, "y")}, fmt::format("softmax of squares, hint {}", hint), shapes, 1);
  }
}

// A fixed result without elements runs nothing; one beside it has its own.
TEST(Shapes, results_without_elements) {
  for (const char* op : {"softmax", "layernorm", "sum", "mean", "max"}) {
    ops::Graph rows, columns;
    sweep(rows, {add_node(rows, op, {add_tensor(rows, "x", {fixed_dim(0), symbol_dim("N", 0, 300)})}, "y")},
          fmt::format("{} of no rows", op), {{{"N", 0}}, {{"N", 65}}}, 1);
    sweep(columns, {add_node(columns, op, {add_tensor(columns, "x", {symbol_dim("M", 0, 300), fixed_dim(0)})}, "y")},
          fmt::format("{} of no columns", op), {{{"M", 0}}, {{"M", 65}}}, 1);
  }
  ops::Graph g;
  const int x = add_tensor(g, "x", {fixed_dim(5), symbol_dim("N", 0, 64)});
  const int y = add_node(g, "exp", {x}, "y"), s = add_node(g, "sum", {x}, "s");
  sweep(g, {y, s}, "exp and sum", {{{"N", 0}}, {{"N", 9}}});
  const auto finished = ops::finish(g);
  auto op = Operator::create(levels()[0].context, *finished);
  ASSERT_TRUE((*op)->stages().prepare({}).ok());
  CallShape call;
  call.symbols = {{"N", 0}};
  const auto bound = (*op)->shapes().bound(call);
  ASSERT_TRUE(bound.ok());
  float sums[5] = {7, 7, 7, 7, 7}, none[1] = {};
  std::vector<char> workspace(static_cast<size_t>((*bound)->workspace_bytes) + 64);
  const auto base = reinterpret_cast<uintptr_t>(workspace.data());
  void* args[] = {none, none, sums};
  (*bound)->run(args, reinterpret_cast<void*>((base + 63) / 64 * 64), nullptr);
  for (const float sum : sums) EXPECT_EQ(sum, 0) << "the sum of nothing";
}

TEST(Shapes, masks_choose_inside_chains) {
  for (const int64_t n : {1, 7, 8, 17, 33, 130}) {
    ops::Graph g;
    const std::vector<DimDesc> dims = {fixed_dim(5), fixed_dim(n)};
    const int mask = add_tensor(g, "mask", dims, false, ir::DType::b8), x = add_tensor(g, "x", dims),
              y = add_tensor(g, "y", dims);
    const int chosen = add_node(g, "where", {mask, add_node(g, "silu", {x}, "a"), y}, "b");
    sweep(g, {add_node(g, "softmax", {chosen}, "p")}, fmt::format("masked softmax of {}", n), {{}});
  }
}

// The default of so long a chain has no leaf form, or no registers: what is simpler serves.
TEST(Shapes, chains_that_are_too_much_for_a_leaf) {
  for (const int64_t n : {9, 64, 130}) {
    ops::Graph g;
    const std::vector<DimDesc> dims = {fixed_dim(5), fixed_dim(n)};
    const int mask = add_tensor(g, "mask", dims, false, ir::DType::b8),
              other = add_tensor(g, "other", dims, false, ir::DType::b8);
    const int x = add_tensor(g, "x", dims), y = add_tensor(g, "y", dims);
    const int chosen = add_node(g, "where", {mask, add_node(g, "silu", {x}, "a"), y}, "b");
    const int again = add_node(g, "where", {other, chosen, add_node(g, "gelu", {y}, "c")}, "d");
    sweep(g, {add_node(g, "softmax", {again}, "p")}, fmt::format("softmax of {} by two masks", n), {{}});
  }
}

// A residual sum and its norm: two results of one Kernel, and chains that store what they make on the way.
TEST(Shapes, results_stored_on_the_way) {
  for (const ir::DType type : {ir::DType::f32, ir::DType::bf16, ir::DType::f16}) {
    for (const char* op : {"rmsnorm", "layernorm", "softmax", "sum", "cumsum", "gelu"}) {
      for (const int64_t rows : {1, 5}) {
        ops::Graph g;
        const std::vector<DimDesc> dims = {fixed_dim(rows), symbol_dim("N", 0, 5000, {{64, 1}})};
        const int x = add_tensor(g, "x", dims, false, type), r = add_tensor(g, "r", dims, false, type);
        const int h = add_node(g, "add", {x, r}, "h"), y = add_node(g, op, {h}, "y");
        std::vector<SymbolValues> shapes;
        for (const int64_t n : {0, 1, 2, 7, 8, 9, 15, 16, 17, 33, 63, 64, 65, 127, 129, 1000, 4099})
          shapes.push_back({{"N", n}});
        sweep(g, {h, y}, fmt::format("{} rows of a sum and its {}, {}", rows, op, ir::dtype_name(type)), shapes, 5);
      }
    }
  }
}

// Columns with a sum each, in vectors.
TEST(Shapes, sums_along_other_axes) {
  for (const ir::DType type : {ir::DType::f32, ir::DType::bf16}) {
    for (const int64_t axis : {0, 1, 2}) {
      ops::Graph g;
      const std::vector<DimDesc> dims = {fixed_dim(3), symbol_dim("M", 0, 40), symbol_dim("N", 0, 20000)};
      const int x = add_tensor(g, "x", dims, false, type);
      const int a = add_node(g, "scale", {x}, "a", {{"value", 0.5}});
      std::vector<SymbolValues> shapes;
      for (const int64_t n : {0, 1, 2, 7, 8, 9, 15, 16, 17, 33, 63, 64, 65, 127, 129, 1000})
        shapes.push_back({{"M", 5}, {"N", n}});
      for (const int64_t m : {0, 1, 2, 17, 40}) shapes.push_back({{"M", m}, {"N", 37}});
      shapes.push_back({{"M", 2}, {"N", 20000}});
      sweep(g, {add_node(g, "cumsum", {a}, "y", {{"axis", axis}})},
            fmt::format("sums along axis {}, {}", axis, ir::dtype_name(type)), shapes, 5);
    }
  }
}

TEST(Shapes, transposes_with_unit_sides) {
  const std::vector<std::vector<int64_t>> shapes = {{1, 37},    {37, 1},    {1, 1}, {1, 5, 19},
                                                    {5, 1, 19}, {5, 19, 1}, {0, 5}, {5, 0}};
  for (const std::vector<int64_t>& dims : shapes) {
    ops::Graph g;
    std::vector<DimDesc> shape;
    std::vector<int64_t> perm;
    for (const int64_t d : dims) {
      shape.push_back(fixed_dim(d));
      perm.insert(perm.begin(), static_cast<int64_t>(perm.size()));
    }
    const int x = add_tensor(g, "x", shape, false, ir::DType::i32);
    sweep(g, {add_node(g, "transpose", {x}, "y", {{"perm", perm}})},
          fmt::format("transpose of {}", fmt::join(dims, "x")), {{}});
  }
}

}  // namespace
}  // namespace lathe::runtime
