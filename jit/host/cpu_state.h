// What code of this CPU is called with, and leaves behind: the control register of floating point, cache lines. Inline.
#pragma once
#include <cstdint>

namespace lathe::jit {

#if defined(__x86_64__)
// MXCSR. kFpSticky: flags that operations set. kFpRounding: the direction of rounding.
inline constexpr uint32_t kFpSticky = 0x3f, kFpRounding = 0x6000;
inline uint32_t fp_control() { return __builtin_ia32_stmxcsr(); }
inline void set_fp_control(uint32_t value) { __builtin_ia32_ldmxcsr(value); }
inline constexpr int64_t kCacheLine = 64;
// Out of every cache of every core, and done when it returns.
inline void flush_lines(const char* data, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += kCacheLine) __builtin_ia32_clflush(data + i);
  __builtin_ia32_mfence();
}
// Copies whole lines, which begin at multiples of 64 bytes and do not overlap. What is written is in no cache then.
inline void copy_past_caches(char* to, const char* from, int64_t bytes) {
  typedef long long Vector __attribute__((vector_size(16), may_alias));
  for (int64_t i = 0; i < bytes; i += sizeof(Vector)) {
    Vector value;
    __builtin_memcpy(&value, from + i, sizeof value);
    __builtin_ia32_movntdq(reinterpret_cast<Vector*>(to + i), value);
  }
  __builtin_ia32_sfence();
}
#endif

}  // namespace lathe::jit
