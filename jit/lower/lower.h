// lower_leaf: a leaf Kernel (canonical form, ir/nest.h) to a leaf program for a Target: vector scopes become lanes,
// unrolled scopes are expanded, reg buffers become registers, math becomes polynomials, tensor(mma) becomes the segment
// loop.
#pragma once
#include <memory_resource>
#include <string_view>

#include "ir/nest.h"
#include "jit/program/leaf_program.h"

namespace lathe::jit {

// UNSUPPORTED if the kernel is outside leaf form; the message names the construct. text: print(leaf), where that is at
// hand. The program has passed verify_program(). memory: of the program and of what making it takes; the program must
// not outlive it.
ir::Result<LeafProgram> lower_leaf(const ir::Kernel& leaf, const ir::Target& target, std::string_view text = {},
                                   std::pmr::memory_resource* memory = std::pmr::get_default_resource());

// Those of the target's extra features that make the leaf's code another: they belong to its identity, and its program
// may use no others. A tile instruction of the name dot4_u8s8 is code of that instruction of leaf programs.
uint64_t code_features(const ir::Kernel& leaf, const ir::Target& target);

}  // namespace lathe::jit
