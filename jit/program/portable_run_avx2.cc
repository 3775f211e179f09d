// The portable executor compiled for AVX2 and FMA: the same bits, several times the speed. Called only where CPUID
// allows.
#include "jit/program/portable_leaves.h"

#if defined(__x86_64__)
#pragma GCC target("avx2,fma")
#endif
#define LATHE_PORTABLE_RUN portable_run_avx2
#include "jit/program/portable_run.inc"
