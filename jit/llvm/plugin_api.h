// The C interface between lathe_jit and its LLVM plug-in: no C++ type crosses it, so the two may be
// built apart. A plug-in is used only if its version text equals the loader's. Every function is
// thread-safe.
#pragma once
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "ir/leaf_abi.h"
#include "jit/program/leaf_program.h"

extern "C" {

// What a call hands out. `bytes` belongs to the plug-in: give it back with lathe_llvm_free_v1. Zero
// it before the call.
struct LatheLlvmOutput {
  uint8_t* bytes;
  size_t size;
  uint32_t entry;        // images: offset of the function
  uint32_t text_bytes;   // images: constants start here, rounded up to 64
  uint32_t stack_bytes;  // images: stack the function touches
  char error[512];       // on failure: the reason, ends in 0
};

enum LatheLlvmResult { kLatheLlvmOk = 0, kLatheLlvmUnsupported = 1, kLatheLlvmFailed = 2 };

// options: "image" (text and constants, linked), "object" (ELF, as LLVM made it) or "ir" (LLVM IR
// as text).
typedef int (*LatheLlvmCompileV1)(const uint8_t* program, size_t size, const char* options, LatheLlvmOutput* out);
// code: text only. Text out, one instruction a line with its offset; bytes that are no instruction
// are an error.
typedef int (*LatheLlvmDisassembleV1)(const uint8_t* code, size_t size, LatheLlvmOutput* out);
typedef void (*LatheLlvmFreeV1)(LatheLlvmOutput* out);
typedef const char* (*LatheLlvmVersionV1)();

}  // extern "C"

namespace lathe::jit {

// Names this interface, the leaf ABI and the opcode table, which decide how a program's bytes are
// read.
inline std::string llvm_plugin_version() {
  uint32_t table = 2166136261u;
  const auto add = [&table](const char* name, int sources) {
    for (; *name; ++name) table = (table ^ static_cast<unsigned char>(*name)) * 16777619u;
    table = (table ^ static_cast<unsigned>(sources)) * 16777619u;
  };
#define LATHE_LEAF_OP(id, sources, kind) add(#id, sources);
#include "jit/program/leaf_ops.def"
#undef LATHE_LEAF_OP
  return fmt::format("lathe-llvm 1 leaf-abi {} opcodes {:08x}", ir::kLeafAbi, table);
}

}  // namespace lathe::jit
