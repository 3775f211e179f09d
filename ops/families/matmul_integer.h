// Products of bytes whose sums are i32: the shapes and the naive Kernel of matmul_integer. See matmul_integer.cc.
#pragma once
#include "ops/kernel_writer.h"
#include "ops/shape.h"

namespace lathe::ops {

enum IntegerOperand : uint8_t { kBytesA, kBytesB, kZeroA, kZeroB };

// Checks zero points, and that no sum leaves i32: `depth` is the dimension of a that is summed over.
ir::Status check_integer_product(const Inputs& in, size_t depth, const DimDesc& columns);
ir::Result<LoweredKernel> lower_integer_product(KernelWriter& w);

}  // namespace lathe::ops
