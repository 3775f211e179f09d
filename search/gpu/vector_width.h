// How many neighbouring elements a thread takes at once.
#pragma once
#include <algorithm>
#include <bit>
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
// Of a row of fewer elements, whose number the code knows: a vector has 2, 4, ... of them.
inline int64_t vector_of_row(int64_t vector, const ir::Expr& row) {
  const bool less = ir::is_const_int(row) && row->ival > 0 && row->ival < vector;
  const auto length = static_cast<uint64_t>(less ? row->ival : 1);
  return std::has_single_bit(length) ? vector : static_cast<int64_t>(std::bit_floor(length));
}

}  // namespace lathe::search
