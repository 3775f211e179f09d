// Products with weights of few bits that the tests of GPUs share, as ops writes them.
#pragma once
#include <string>
#include <vector>

#include "ops/lower.h"
#include "ops/quant_formats.h"
#include "tests/common/quant_fields.h"

namespace lathe::test {

inline ir::Kernel lowered(ops::Graph& g) { return ops::lower(ops::finish(g).value()).value().kernels[0].kernel; }

// y[M, n] = a[M, k] of that type by a weight of the format; M in 0..5000.
inline ir::Kernel quantised_product(const std::string& format, int64_t n, int64_t k, ir::DType type = ir::DType::f32,
                                    int64_t group = 32) {
  ops::Graph g;
  const ops::QuantFormat& f = *ops::find_quant_format(format);
  if (!f.grouped) group = 0;
  std::vector<int> in = {ops::add_tensor(g, "a", {ops::symbol_dim("M", 0, 5000), ops::fixed_dim(k)}, false, type)};
  add_weight(g, in, f, n, k, group);
  g.outputs = {ops::add_node(g, "quantized_matmul", in, "y", {{"format", format}, {"group", group}})};
  return lowered(g);
}

// The same by one of `number` weights: of rows a[M, k] between offsets, or of tokens a[M, 1, k] that name two each.
inline ir::Kernel chosen_product(bool grouped, const std::string& format, int64_t number, int64_t n, int64_t k,
                                 ir::DType type = ir::DType::f32, int64_t group = 32) {
  ops::Graph g;
  const ops::QuantFormat& f = *ops::find_quant_format(format);
  if (!f.grouped) group = 0;
  const ops::DimDesc rows = ops::symbol_dim("M", 0, 5000);
  std::vector<ops::DimDesc> a = {rows, ops::fixed_dim(k)}, integers = {ops::fixed_dim(number + 1)};
  if (!grouped) a.insert(a.begin() + 1, ops::fixed_dim(1)), integers = {rows, ops::fixed_dim(2)};
  std::vector<int> in = {ops::add_tensor(g, "a", a, false, type)};
  add_weight(g, in, f, n, k, group, number);
  in.push_back(ops::add_tensor(g, "integers", integers, false, ir::DType::i32));
  const char* op = grouped ? "quantized_grouped_matmul" : "quantized_expert_matmul";
  g.outputs = {ops::add_node(g, op, in, "y", {{"format", format}, {"group", group}})};
  return lowered(g);
}

}  // namespace lathe::test
