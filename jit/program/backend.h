// Backends turn a leaf program into an image. One row each in backends.def; an absent one refuses with a reason.
// Thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "jit/program/leaf_program.h"

namespace lathe::jit {

// Position-independent machine code without undefined symbols: text, then constants, pre-linked. `features` is the set
// of CPU features the bytes use (bits of CpuFeature), checked against CPUID and XCR0 at load.
struct CodeImage {
  std::string symbol;
  uint32_t entry = 0;  // offset of the function
  uint64_t features = 0;
  uint32_t stack_bytes = 0;
  std::vector<uint8_t> code;  // text and constants, at most 24 KB
  uint32_t text_bytes = 0;    // constants start here (rounded up to 64)
};

enum class Backend : uint8_t {
#define LATHE_BACKEND(id) id,
#include "jit/program/backends.def"
#undef LATHE_BACKEND
};
const char* backend_name(Backend backend);
// Whether this build has it; LLVM's plug-in is there or not when it is wanted first.
bool backend_built(Backend backend);
const char* backend_versions();  // for the code environment

// Errors: UNSUPPORTED = refused (registers, opcode, plug-in missing); the caller tries the next backend.
// verified: verify_program() has accepted the program, as it has those of lower_leaf().
ir::Result<CodeImage> compile_xbyak(const LeafProgram& program, bool verified = false);
// Opens the plug-in on first use: beside the library, then in LATHE_PLUGIN_DIR (passed in as plugin_dir; empty: none).
ir::Result<CodeImage> compile_llvm(const LeafProgram& program, const std::string& plugin_dir);
bool llvm_mapped();  // whether the plug-in has been opened in this process

// For dumps, through the same plug-in: the module before code generation, and an image's text in Intel syntax.
ir::Result<std::string> llvm_ir_text(const LeafProgram& program, const std::string& plugin_dir);
ir::Result<std::string> llvm_disassemble(const CodeImage& image, const std::string& plugin_dir);

}  // namespace lathe::jit
