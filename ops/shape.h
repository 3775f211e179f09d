// Shape inference: dtype and dims of a node's result from those of its operands. The rules are the families'
// (ops/family.h); what they share is here. Works on one node; graph.cc walks the graph.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "ops/family.h"

namespace lathe::ops {

// `node` has its attributes complete; `inputs` are its operands in order.
ir::Result<Shape> infer_shape(const OpRow& row, const Node& node, const Inputs& inputs);

// What cast reads and makes.
std::span<const ir::DType> cast_dtypes();
// "f32, bf16, f16"
std::string list_of(std::span<const ir::DType> dtypes);

// For the families. Errors name the dimension: "x.shape[1]: 96, expected 128".
ir::Status mismatch(const TensorDesc& t, size_t d, const std::string& expected);
ir::Status need_rank(const TensorDesc& t, size_t rank, bool at_least, const char* op);
// One of the dimensions, from the first, or from the last one back as -1, -2, ...
ir::Status need_axis(const TensorDesc& t, int64_t axis, const char* op);
// -1 or the last dimension, the only one that is served.
ir::Status need_last_axis(const TensorDesc& t, int64_t axis, const char* op);
// Rows of so many columns, one for each of the integers.
ir::Result<Shape> chosen_rows(const TensorDesc& ids, ir::DType dtype, const DimDesc& columns);
// Broadcasts dims [first, last) of `t`, aligned to the right, into `dims`.
ir::Status broadcast_into(std::vector<DimDesc>& dims, const TensorDesc& t, size_t first, size_t last);

}  // namespace lathe::ops
