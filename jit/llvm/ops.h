// Emits one leaf instruction as LLVM IR with exactly the meaning of jit/program/leaf_ops.def: no fast-math,
// no contraction, reduction trees spelled out. Control flow and registers are module.cc's; this
// file knows values only. Not thread-safe (one builder).
#pragma once
#include <llvm/IR/IRBuilder.h>

#include "jit/program/leaf_program.h"

namespace lathe::jit {

// What an emitter may ask of the function being built.
class OpContext {
 public:
  OpContext(llvm::IRBuilder<>& builder, const LeafProgram& program);
  virtual ~OpContext() = default;

  virtual llvm::Value* vector(int reg) = 0;               // <lanes x float>
  virtual llvm::Value* mask(int reg) = 0;                 // mask_type()
  virtual llvm::Value* var(int index) = 0;                // i64; -1: constant 0
  virtual llvm::Value* extent(const Extent& extent) = 0;  // i64
  virtual llvm::Value* address(const Mem& mem) = 0;       // ptr

  bool avx512() const { return program.has(ir::kCpu_avx512f); }
  llvm::Type* float_type(int lanes) const;
  llvm::Type* int_type(int lanes) const;
  // AVX-512: <lanes x i1>. AVX2: <lanes x i32> of 0 and -1, what vmaskmov and vblendv take.
  llvm::Type* mask_type() const;
  llvm::Value* splat_bits(uint32_t bits) const;

  llvm::IRBuilder<>& builder;
  const LeafProgram& program;
  const int lanes;
};

// The new value of inst.dst (a vector, or a mask for kMask), or null for stores and hints.
// Unsupported at this level: an error.
ir::Result<llvm::Value*> emit_op(OpContext& context, const Inst& inst);

}  // namespace lathe::jit
