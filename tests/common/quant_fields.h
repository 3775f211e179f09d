// The operands of weights of few bits, as callers give them: constants of a graph.
#pragma once
#include <vector>

#include "ops/graph.h"
#include "ops/quant_formats.h"

namespace lathe::test {

// The tensors of a format that has its fields in some, for a weight of n outputs and k terms in groups of so many.
inline std::vector<ops::QuantField> given_fields(const ops::QuantFormat& f, int64_t n, int64_t k, int64_t group) {
  std::vector<ops::TensorDesc> types(f.tensors());
  std::vector<const ops::TensorDesc*> given;
  for (size_t i = 0; i < types.size(); ++i) {
    types[i].dtype = ir::given_type(f.meaning.buffers[i]);
    given.push_back(&types[i]);
  }
  return ops::quant_fields({&f, ops::fixed_dim(n), k, group, false}, given);
}

// Puts the weight's operands behind those that are there; `number` weights that integers choose, 0: one.
inline void add_weight(ops::Graph& g, std::vector<int>& in, const ops::QuantFormat& f, int64_t n, int64_t k,
                       int64_t group, int64_t number = 0) {
  const auto several = [&](std::vector<ops::DimDesc> dims) {
    if (number > 0) dims.insert(dims.begin(), ops::fixed_dim(number));
    return dims;
  };
  if (f.place == ops::FieldsIn::kBlocks) {
    const int64_t bytes = k / f.block * f.block_bytes;
    in.push_back(ops::add_tensor(g, "w", several({ops::fixed_dim(n), ops::fixed_dim(bytes)}), true, ir::DType::u8));
    return;
  }
  for (const ops::QuantField& q : given_fields(f, n, k, group)) {
    std::vector<ops::DimDesc> dims;
    for (const ir::Expr& d : ir::given_dims(q.buffer)) dims.push_back(ops::fixed_dim(d->ival));
    in.push_back(ops::add_tensor(g, q.buffer.name, several(dims), true, ir::given_type(q.buffer)));
  }
}

}  // namespace lathe::test
