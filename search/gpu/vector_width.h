// How many neighbouring elements a thread takes at once.
#pragma once
#include <algorithm>
#include <cstdint>

#include "ir/core/kernel.h"
#include "ir/core/names.h"

namespace lathe::search {

inline constexpr int64_t kVector = 4, kWideVector = 8, kByteVector = 16;  // of 4, 2 and 1 bytes that have 16

// 16 bytes of elements of the type. length: of what is gone through, as hinted; lines of another length begin anywhere.
inline int64_t vector_width(ir::DType type, int64_t length) {
  const int bytes = dtype_bytes(type);
  return bytes == 1 && length % kByteVector == 0   ? kByteVector
         : bytes <= 2 && length % kWideVector == 0 ? kWideVector
                                                   : kVector;
}
// Of the narrowest parameter.
inline int64_t vector_width(const ir::Kernel& kernel, int64_t length) {
  int64_t out = kVector;
  for (const ir::Buffer& b : kernel.buffers) {
    if (ir::is_param(b.place)) out = std::max(out, vector_width(b.type, length));
  }
  return out;
}

}  // namespace lathe::search
