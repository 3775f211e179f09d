// A leaf program as an LLVM module in its final form: one function, registers in SSA, no IR pass
// needed. No code generation here.
#pragma once
#include <llvm/IR/Module.h>

#include <memory>

#include "jit/program/leaf_program.h"

namespace lathe::jit {

// The CPU name and features of a level, as LLVM spells them: the level's own instructions only,
// whatever the machine has.
struct LlvmTarget {
  const char* cpu;
  const char* features;
  const char* vector_width;
};
ir::Result<LlvmTarget> llvm_target(ir::IsaLevel level, int lanes);

inline constexpr char kLlvmTriple[] = "x86_64-unknown-linux-gnu";

ir::Result<std::unique_ptr<llvm::Module>> build_module(const LeafProgram& program, llvm::LLVMContext& context,
                                                       const llvm::DataLayout& layout);

}  // namespace lathe::jit
