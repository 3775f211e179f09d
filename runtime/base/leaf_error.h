// What went wrong with a leaf, in the words of whoever wrote the Kernel: leaves are in canonical form, where operands
// are p0, p1, ..., extents e0, e1, ... and loops i0, i1, ... (ir/nest.h), and leaves of many Kernels are one. Only the
// cut Kernel knows the names.
#pragma once
#include "ir/base/status.h"
#include "ir/nest.h"

namespace lathe::runtime {

// The error of leaf `leaf` of `cut` with the names of its buffers and the extents of its scopes; an operand has those
// of the leaf's first call.
ir::Status leaf_error(const ir::Status& status, const ir::CutKernel& cut, int leaf);

}  // namespace lathe::runtime
