// The instructions that the walker and the team of threads need of the CPU itself. Inline: each call executes them.
#pragma once

namespace lathe::runtime {

#if defined(__x86_64__)
// While waiting for another thread to write.
inline void pause_cpu() { __builtin_ia32_pause(); }
// Whether a leaf may leave the upper halves of vector registers set, which slows down code that knows only the lower.
inline bool has_upper_halves() { return __builtin_cpu_supports("avx"); }
inline void zero_upper_halves() {
  asm volatile("vzeroupper" ::
                   : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                     "xmm12", "xmm13", "xmm14", "xmm15");
}
#else
inline void pause_cpu() {}
inline bool has_upper_halves() { return false; }
inline void zero_upper_halves() {}
#endif

}  // namespace lathe::runtime
