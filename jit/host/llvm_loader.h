// Finds and opens the LLVM plug-in (jit/llvm/plugin_api.h). Used by llvm_loader.cc and its tests;
// everybody else calls backend.h.
#pragma once
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "jit/llvm/plugin_api.h"

namespace lathe::jit {

struct LlvmPlugin {
  std::string path;
  LatheLlvmCompileV1 compile = nullptr;
  LatheLlvmDisassembleV1 disassemble = nullptr;
  LatheLlvmFreeV1 free = nullptr;
};

// Directories to look in, in order: beside the file that holds this code, its ../lib, the build
// tree's jit/llvm, plugin_dir.
std::vector<std::string> llvm_plugin_directories(const std::string& plugin_dir);

// Opens the first liblathe_llvm.so of these directories that loads and has the right version.
// UNSUPPORTED if there is none, with every reason. Stays open for the life of the process.
ir::Result<LlvmPlugin> open_llvm_plugin(const std::vector<std::string>& directories);

}  // namespace lathe::jit
