// Products of groups of rows that the tests of GPUs share, as ops writes them.
#pragma once
#include <vector>

#include "ops/lower.h"

namespace lathe::test {

// y[S, n] of rows a[S, k] by weights b[groups, k, n], or [groups, n, k] if turned; S in 0..5000.
inline ir::Kernel grouped_product(ir::DType type, bool turned, int64_t groups, int64_t n, int64_t k) {
  ops::Graph g;
  const auto fixed = [](int64_t size) { return ops::fixed_dim(size); };
  const std::vector<int> in = {
      ops::add_tensor(g, "a", {ops::symbol_dim("S", 0, 5000), fixed(k)}, false, type),
      ops::add_tensor(g, "b", {fixed(groups), fixed(turned ? n : k), fixed(turned ? k : n)}, true, type),
      ops::add_tensor(g, "offsets", {fixed(groups + 1)}, false, ir::DType::i32)};
  g.outputs = {ops::add_node(g, "grouped_matmul", in, "y", {{"transpose_b", turned}})};
  return ops::lower(ops::finish(g).value()).value().kernels[0].kernel;
}

}  // namespace lathe::test
