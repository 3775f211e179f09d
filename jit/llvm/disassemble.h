// Machine code to text, for dumps and for the test that an image holds its level's instructions
// only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "ir/base/status.h"

namespace lathe::jit {

// Intel syntax, "<hex offset>: <instruction>" a line; RIP-relative operands are followed by "; ->
// <hex offset>". Bytes that do not decode are INVALID.
ir::Result<std::string> disassemble_x86(const uint8_t* code, size_t size);

}  // namespace lathe::jit
