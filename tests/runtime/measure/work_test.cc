// What a call moves: operands whole, and of those of which rows are chosen so many rows.
#include "runtime/measure/work.h"

#include <gtest/gtest.h>

namespace lathe::runtime {
namespace {

TEST(Work, OfATableItIsTheRowsThatAreRead) {
  ops::Graph g;
  const ops::DimDesc p = ops::symbol_dim("P", 1, 100000), t = ops::symbol_dim("T", 1, 64);
  const int table = ops::add_tensor(g, "table", {p, ops::fixed_dim(10)}, true, ir::DType::bf16),
            ids = ops::add_tensor(g, "ids", {t}, false, ir::DType::i64);
  g.outputs = {ops::add_node(g, "gather", {table, ids}, "y")};
  const Work work = work_at(*ops::finish(g), {{"P", 50000}, {"T", 8}});
  EXPECT_EQ(work.read_bytes, 8 * 10 * 2 + 8 * 8);
  EXPECT_EQ(work.constant_bytes, 8 * 10 * 2);
  EXPECT_EQ(work.write_bytes, 8 * 10 * 2);
}

// Of what several nodes read, what most is.
TEST(Work, OfATableThatIsReadWholeBesidesItIsAll) {
  ops::Graph g;
  const int table = ops::add_tensor(g, "table", {ops::fixed_dim(50), ops::fixed_dim(10)}),
            ids = ops::add_tensor(g, "ids", {ops::fixed_dim(4)}, false, ir::DType::i32);
  g.outputs = {ops::add_node(g, "gather", {table, ids}, "y"), ops::add_node(g, "exp", {table}, "z")};
  EXPECT_EQ(work_at(*ops::finish(g), {}).read_bytes, 50 * 10 * 4 + 4 * 4);
}

}  // namespace
}  // namespace lathe::runtime
