// Numbers of threads and elements as powers of two: lanes that add something up are one.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

namespace lathe::search {

// The largest that is no more, and the least that is no less; 1 of numbers below.
inline int64_t floor_pow2(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}
inline int64_t ceil_pow2(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}

}  // namespace lathe::search
