// Links one ELF relocatable object to a position-independent block: text, then constants, all
// references resolved. Knows no LLVM. Rejects what such a block cannot hold: undefined symbols,
// writable sections, absolute addresses, unknown relocations.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/base/status.h"

namespace lathe::jit {

struct LinkedObject {
  std::vector<uint8_t> code;
  uint32_t text_bytes = 0;  // constants start here, rounded up to 64
  uint32_t entry = 0;
  uint32_t stack_bytes = 0;  // the deepest function's, from .stack_sizes; 0: not said
};

ir::Result<LinkedObject> link_object(const std::vector<uint8_t>& object, const std::string& entry_symbol);

}  // namespace lathe::jit
