// Products with weights of few bits that the tests of GPUs share, as ops writes them.
#pragma once
#include <string>
#include <vector>

#include "ops/lower.h"
#include "ops/quant_formats.h"

namespace lathe::test {

// y[M, n] = a[M, k] of that type by a weight of the format; M in 0..5000.
inline ir::Kernel quantised_product(const std::string& format, int64_t n, int64_t k, ir::DType type = ir::DType::f32,
                                    int64_t group = 32) {
  ops::Graph g;
  const ops::QuantFormat& f = *ops::find_quant_format(format);
  if (!f.grouped) group = 0;
  std::vector<int> in = {ops::add_tensor(g, "a", {ops::symbol_dim("M", 0, 5000), ops::fixed_dim(k)}, false, type)};
  if (f.place == ops::FieldsIn::kBlocks) {
    const int64_t bytes = k / f.block * f.block_bytes;
    in.push_back(ops::add_tensor(g, "w", {ops::fixed_dim(n), ops::fixed_dim(bytes)}, true, ir::DType::u8));
  } else {
    std::vector<ops::TensorDesc> types(f.tensors());
    std::vector<const ops::TensorDesc*> given;
    for (size_t i = 0; i < types.size(); ++i) {
      types[i].dtype = ir::given_type(f.meaning.buffers[i]);
      given.push_back(&types[i]);
    }
    for (const ops::QuantField& q : ops::quant_fields({&f, ops::fixed_dim(n), k, group, false}, given)) {
      std::vector<ops::DimDesc> dims;
      for (const ir::Expr& d : ir::given_dims(q.buffer)) dims.push_back(ops::fixed_dim(d->ival));
      in.push_back(ops::add_tensor(g, q.buffer.name, dims, true, ir::given_type(q.buffer)));
    }
  }
  g.outputs = {ops::add_node(g, "quantized_matmul", in, "y", {{"format", format}, {"group", group}})};
  return ops::lower(ops::finish(g).value()).value().kernels[0].kernel;
}

}  // namespace lathe::test
