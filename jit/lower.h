// lower_leaf: a leaf Kernel (canonical form, ir/nest.h) to a leaf program for a Target: vector scopes become lanes, unrolled
// scopes are expanded, reg buffers become registers, math becomes polynomials, tensor(mma) becomes the segment loop.
#pragma once
#include "ir/nest.h"
#include "jit/leaf_program.h"

namespace lathe::jit {

// UNSUPPORTED if the kernel is outside leaf form; the message names the construct.
ir::Result<LeafProgram> lower_leaf(const ir::Kernel& leaf, const ir::Target& target);

}  // namespace lathe::jit
