// The swizzle of what is staged of a factor on tensor cores: by the number of its neighbours.
#pragma once
#include <cstdint>

namespace lathe::search {

// Bytes of the widest lines of elements of 2 bytes that so many neighbours are a multiple of; 0: of none.
inline int64_t widest_swizzle(int64_t neighbours) {
  for (const int64_t bytes : {128, 64, 32}) {
    if (2 * neighbours % bytes == 0) return bytes;
  }
  return 0;
}

}  // namespace lathe::search
