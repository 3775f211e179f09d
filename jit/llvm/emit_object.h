// An LLVM module to an ELF object through ORC: the compile layer of an LLJIT made for a level,
// whose linking is not used (images are linked by link_object and mapped by Lathe's own loader).
// One LLJIT and TargetMachine per thread and level.
#pragma once
#include <llvm/IR/Module.h>

#include <memory>

#include "jit/program/leaf_program.h"

namespace lathe::jit {

// Compiles for one level on the thread that made it.
class ObjectEmitter {
 public:
  virtual ~ObjectEmitter() = default;
  virtual const llvm::DataLayout& layout() const = 0;
  virtual ir::Result<std::vector<uint8_t>> emit(llvm::Module& module) = 0;
};

// This thread's emitter.
ir::Result<ObjectEmitter*> object_emitter(ir::IsaLevel level, int lanes);

// program -> object; `ir_text`, if not null, gets the module as text instead and no object is made.
ir::Result<std::vector<uint8_t>> emit_program(const LeafProgram& program, std::string* ir_text);

}  // namespace lathe::jit
