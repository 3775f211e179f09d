// Shape inference: dtype and dims of a node's result from those of its operands, with the rules of
// broadcasting and the refusals of each family. Works on one node; graph.cc walks the graph.
#pragma once
#include <span>
#include <vector>

#include "ops/op_table.h"

namespace lathe::ops {

struct Shape {
  ir::DType dtype = ir::DType::f32;
  std::vector<DimDesc> dims;
};

// `node` has its attributes complete; `inputs` are its operands in order.
ir::Result<Shape> infer_shape(const OpRow& row, const Node& node, const std::vector<const TensorDesc*>& inputs);

// What operand `number` may be. Rows and elementwise operators compute in f32, whatever they read and write.
std::span<const ir::DType> operand_dtypes(const OpRow& row, size_t number);
// What cast reads and makes.
std::span<const ir::DType> cast_dtypes();

}  // namespace lathe::ops
