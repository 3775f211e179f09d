// What is fused before or after the passes of a row keeps a Schedule and code of the CPU's own: the default of no such
// Kernel is the naive loops.
#include <gtest/gtest.h>

#include <functional>

#include "jit/host/host_cpu.h"
#include "runtime/serve/operator.h"
#include "tests/common/generators.h"

namespace lathe::runtime {
namespace {

using ops::add_node;
using ops::add_tensor;
using ops::DimDesc;
using ops::fixed_dim;
using ops::Graph;

std::shared_ptr<Context> in_memory() {
  ContextConfig config;
  EXPECT_TRUE(config.options.set("cache", "off").ok());
  return Context::create(std::move(config)).value();
}

struct Fused {
  const char* name;
  std::function<int(Graph&, int x, const std::vector<DimDesc>& dims)> add;
};

const std::vector<Fused>& before_a_row() {
  static const std::vector<Fused> kAll = {
      {"nothing", [](Graph&, int x, const std::vector<DimDesc>&) { return x; }},
      {"a sum",
       [](Graph& g, int x, const std::vector<DimDesc>& dims) {
         return add_node(g, "add", {x, add_tensor(g, "u", dims)}, "p");
       }},
      {"a bias",
       [](Graph& g, int x, const std::vector<DimDesc>& dims) {
         return add_node(g, "add", {x, add_tensor(g, "u", {dims[1]})}, "p");
       }},
      {"a function", [](Graph& g, int x, const std::vector<DimDesc>&) { return add_node(g, "silu", {x}, "p"); }},
      {"a mask", [](Graph& g, int x, const std::vector<DimDesc>& dims) {
         const int mask = add_tensor(g, "u", dims, false, ir::DType::b8);
         return add_node(g, "where", {mask, x, add_tensor(g, "v", dims)}, "p");
       }}};
  return kAll;
}

const std::vector<Fused>& rows() {
  static const std::vector<Fused> kAll = {
      {"softmax", [](Graph& g, int x, const std::vector<DimDesc>&) { return add_node(g, "softmax", {x}, "r"); }},
      {"rmsnorm",
       [](Graph& g, int x, const std::vector<DimDesc>& dims) {
         return add_node(g, "rmsnorm", {x, add_tensor(g, "s", {dims[1]}, true)}, "r");
       }},
      {"layernorm",
       [](Graph& g, int x, const std::vector<DimDesc>& dims) {
         return add_node(g, "layernorm", {x, add_tensor(g, "s", {dims[1]}, true), add_tensor(g, "h", {dims[1]}, true)},
                         "r");
       }},
      {"sum",
       [](Graph& g, int x, const std::vector<DimDesc>&) { return add_node(g, "sum", {x}, "r", {{"keepdims", true}}); }},
      {"mean", [](Graph& g, int x,
                  const std::vector<DimDesc>&) { return add_node(g, "mean", {x}, "r", {{"keepdims", true}}); }},
      {"max", [](Graph& g, int x, const std::vector<DimDesc>&) {
         return add_node(g, "max", {x}, "r", {{"keepdims", true}});
       }}};
  return kAll;
}

const std::vector<Fused>& after_a_row() {
  static const std::vector<Fused> kAll = {
      {"nothing", [](Graph&, int x, const std::vector<DimDesc>&) { return x; }},
      {"a product",
       [](Graph& g, int x, const std::vector<DimDesc>& dims) {
         return add_node(g, "mul", {x, add_tensor(g, "t", dims)}, "q");
       }},
      {"a function", [](Graph& g, int x, const std::vector<DimDesc>&) { return add_node(g, "relu", {x}, "q"); }}};
  return kAll;
}

void expect_a_schedule(const std::shared_ptr<Context>& ctx, const Graph& graph) {
  const ir::Result<Graph> finished = ops::finish(graph);
  ASSERT_TRUE(finished.ok()) << finished.status().to_string();
  const std::shared_ptr<Operator> op = Operator::create(ctx, *finished).value();
  ASSERT_TRUE(op->stages().prepare({}).ok());
  for (const auto& stage : op->stages().of(0)) {
    EXPECT_FALSE(stage->stage.schedule.moves.empty()) << "naive loops";
    EXPECT_FALSE(stage->stage.portable) << "no code of the CPU's own";
  }
}

// Products of x with what lies as it likes, and what follows them.
TEST(FusedDefaults, OfProductsAreNeverTheNaiveLoops) {
  if (!test::generates()) GTEST_SKIP() << "no vectors on this CPU";
  const std::shared_ptr<Context> ctx = in_memory();
  const std::vector<Fused> followers = {
      {"nothing", [](Graph&, int x, const std::vector<DimDesc>&) { return x; }},
      {"a bias",
       [](Graph& g, int x, const std::vector<DimDesc>& dims) {
         return add_node(g, "add", {x, add_tensor(g, "u", {dims.back()})}, "f");
       }},
      {"a scale and a mask",
       [](Graph& g, int x, const std::vector<DimDesc>& dims) {
         const int scaled = add_node(g, "scale", {x}, "f", {{"value", 0.125}});
         return add_node(g, "where", {add_tensor(g, "u", dims, false, ir::DType::b8), scaled, add_tensor(g, "v", dims)},
                         "h");
       }},
      {"a function", [](Graph& g, int x, const std::vector<DimDesc>&) { return add_node(g, "gelu", {x}, "f"); }}};
  for (const DimDesc& m : {fixed_dim(1), fixed_dim(7), fixed_dim(70), ops::symbol_dim("M", 1, 512, {{6, 1}})}) {
    for (const DimDesc& n : {fixed_dim(1), fixed_dim(9), fixed_dim(70), ops::symbol_dim("N", 1, 512, {{64, 1}})}) {
      for (const int64_t k : {1, 2, 33, 64}) {
        for (const bool turned_a : {false, true}) {
          for (const bool turned_b : {false, true}) {
            for (const bool constant : {false, true}) {
              for (const bool batch : {false, true}) {
                for (const Fused& after : followers) {
                  if (constant && (batch || n.symbol == "N")) continue;
                  if (k == 1 && batch) continue;  // outer products side by side: their cut panels have no leaf form
                  SCOPED_TRACE(fmt::format("{}x{}x{}, a {}, b {}{}{}, {}", m.max, k, n.max, turned_a, turned_b,
                                           constant ? ", constant" : "", batch ? ", batch" : "", after.name));
                  Graph g;
                  g.name = "product";
                  const DimDesc depth = fixed_dim(k);
                  const auto dims = [&](const DimDesc& rows, const DimDesc& columns) {
                    std::vector<DimDesc> out = {rows, columns};
                    if (batch) out.insert(out.begin(), fixed_dim(3));
                    return out;
                  };
                  const int a = add_tensor(g, "a", turned_a ? dims(depth, m) : dims(m, depth));
                  const int b = add_tensor(g, "b", turned_b ? dims(n, depth) : dims(depth, n), constant);
                  const int y =
                      add_node(g, "matmul", {a, b}, "y", {{"transpose_a", turned_a}, {"transpose_b", turned_b}});
                  g.outputs = {after.add(g, y, dims(m, n))};
                  expect_a_schedule(ctx, g);
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST(FusedDefaults, OfRowsAreNeverTheNaiveLoops) {
  if (!test::generates()) GTEST_SKIP() << "no vectors on this CPU";
  const std::shared_ptr<Context> ctx = in_memory();
  for (const DimDesc& count : {fixed_dim(6), ops::symbol_dim("M", 1, 512, {{6, 1}})}) {
    for (const int64_t columns : {64, 130, 1024}) {
      for (const Fused& before : before_a_row()) {
        for (const Fused& row : rows()) {
          for (const Fused& after : after_a_row()) {
            SCOPED_TRACE(fmt::format("{}, {} of {} columns, {}{}", before.name, row.name, columns, after.name,
                                     count.symbol.empty() ? "" : ", M rows"));
            const std::vector<DimDesc> dims = {count, fixed_dim(columns)};
            Graph g;
            g.name = "fused";
            const int x = before.add(g, add_tensor(g, "x", dims), dims);
            g.outputs = {after.add(g, row.add(g, x, dims), dims)};
            expect_a_schedule(ctx, g);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace lathe::runtime
