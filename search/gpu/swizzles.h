// The swizzle of what is staged of a factor on tensor cores: by the number of its neighbours.
#pragma once
#include <cstdint>
#include <string>

#include "search/gpu/move_list.h"

namespace lathe::search {

// Bytes of the widest lines of elements of so many bytes that so many neighbours are a multiple of; 0: of none.
inline int64_t widest_swizzle(int64_t neighbours, int64_t each = 2) {
  for (const int64_t bytes : {128, 64, 32}) {
    if (each * neighbours % bytes == 0) return bytes;
  }
  return 0;
}

// Swizzles lines of so many neighbours, elements of so many bytes along the last dimension, as widely as they can be;
// where that is less than a line, a panel of lines follows the other.
inline void swizzle_lines(MoveList& list, const std::string& buffer, int last, int64_t neighbours, int64_t each = 2) {
  const int64_t bytes = widest_swizzle(neighbours, each);
  if (each * neighbours > bytes) {
    list.move("tile_buffer {} {} {}", buffer, last, bytes / each);
    list.move("swap_dims {} {} {}", buffer, last - 1, last);
  }
  list.move("swizzle_buffer {} {}", buffer, bytes);
}

}  // namespace lathe::search
