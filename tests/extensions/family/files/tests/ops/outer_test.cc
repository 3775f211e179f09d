// The outer product: its shape, what it refuses, and its values as the interpreter computes them.
#include <gmock/gmock.h>

#include "ir/meaning/interpreter.h"
#include "ops/lower.h"
#include "tests/ops/reference.h"

namespace lathe::ops::testing {
namespace {

Graph outer(const std::vector<DimDesc>& a, const std::vector<DimDesc>& b) {
  Graph g;
  const int x = add_tensor(g, "a", a), y = add_tensor(g, "b", b);
  g.outputs = {add_node(g, "outer", {x, y}, "y")};
  return g;
}

TEST(Outer, IsTheProductOfEveryPair) {
  for (const int64_t m : {0, 1, 3, 17}) {
    for (const int64_t n : {0, 1, 5, 33}) {
      const auto g = finish(outer({fixed_dim(m)}, {symbol_dim("N", 0, 64)}));
      ASSERT_TRUE(g.ok()) << g.status().message();
      const auto l = lower(*g);
      ASSERT_TRUE(l.ok()) << l.status().message();
      Tensors values{{g->inputs[0], {{m}, {}}}, {g->inputs[1], {{n}, {}}}};
      for (int64_t i = 0; i < m; ++i) values[g->inputs[0]].data.push_back(static_cast<double>(i) - 2);
      for (int64_t i = 0; i < n; ++i) values[g->inputs[1]].data.push_back(static_cast<double>(i) / 4);
      run_lowered(*g, *l, {{"N", n}}, values);
      const Tensor& y = values.at(g->outputs[0]);
      ASSERT_EQ(y.dims, (std::vector<int64_t>{m, n}));
      for (int64_t i = 0; i < m * n; ++i)
        EXPECT_EQ(y.data[static_cast<size_t>(i)], (static_cast<double>(i / n) - 2) * static_cast<double>(i % n) / 4);
    }
  }
}

TEST(Outer, TakesVectorsOnly) {
  const auto g = finish(outer({fixed_dim(2), fixed_dim(3)}, {fixed_dim(4)}));
  ASSERT_FALSE(g.ok());
  EXPECT_THAT(g.status().message(), ::testing::HasSubstr("expected 1"));
}

}  // namespace
}  // namespace lathe::ops::testing
