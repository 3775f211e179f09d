// See machine_loops.h. Compiled for their level by attribute; GCC's vector extensions keep them readable, and an empty
// asm keeps every accumulator alive and in its register.
#include "jit/host/machine_loops.h"

namespace lathe::jit {
namespace {

typedef float F4 __attribute__((vector_size(16)));
typedef float F8 __attribute__((vector_size(32)));
typedef float F16 __attribute__((vector_size(64)));
typedef int64_t I2 __attribute__((vector_size(16), aligned(16)));
typedef int64_t I4 __attribute__((vector_size(32), aligned(32)));
typedef int64_t I8 __attribute__((vector_size(64), aligned(64)));

// kFmaChains independent chains, `steps` multiply-adds each; named one by one, so that each is a
// register.
#define LATHE_EACH_CHAIN(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11)
#define LATHE_CHAIN_START(n) auto a##n = x * static_cast<float>(n);
#define LATHE_CHAIN_STEP(n) a##n = a##n * x + y;
#define LATHE_CHAIN_KEEP_V(n) asm volatile("" : "+v"(a##n));
#define LATHE_CHAIN_KEEP_X(n) asm volatile("" : "+x"(a##n));
#define LATHE_FMA_LOOP(name, type, isa, keep)             \
  __attribute__((target(isa))) void name(int64_t steps) { \
    const type x = type{} + 0.999f, y = type{} + 0.001f;  \
    LATHE_EACH_CHAIN(LATHE_CHAIN_START)                   \
    for (int64_t s = 0; s < steps; ++s) {                 \
      LATHE_EACH_CHAIN(LATHE_CHAIN_STEP)                  \
      LATHE_EACH_CHAIN(keep)                              \
    }                                                     \
  }
LATHE_FMA_LOOP(fma_512, F16, "avx512f", LATHE_CHAIN_KEEP_V)
LATHE_FMA_LOOP(fma_256, F8, "avx2,fma", LATHE_CHAIN_KEEP_X)
LATHE_FMA_LOOP(fma_128, F4, "sse2", LATHE_CHAIN_KEEP_X)
#undef LATHE_FMA_LOOP

// Reads `lines` cache lines in `streams` equal parts side by side.
#define LATHE_READ_LOOP(name, type, isa, constraint)                                           \
  __attribute__((target(isa))) void name(const char* data, int64_t lines, int streams) {       \
    constexpr int kPerLine = 64 / sizeof(type);                                                \
    type a[4] = {};                                                                            \
    const int64_t part = lines / streams;                                                      \
    for (int64_t i = 0; i + 4 <= part; i += 4) {                                               \
      for (int s = 0; s < streams; ++s) {                                                      \
        const type* p = reinterpret_cast<const type*>(data + (s * part + i) * 64);             \
        _Pragma("GCC unroll 16") for (int k = 0; k < 4 * kPerLine; ++k) { a[k & 3] ^= p[k]; }  \
      }                                                                                        \
    }                                                                                          \
    asm volatile("" : constraint(a[0]), constraint(a[1]), constraint(a[2]), constraint(a[3])); \
  }
LATHE_READ_LOOP(read_512, I8, "avx512f", "+v")
LATHE_READ_LOOP(read_256, I4, "avx2", "+x")
LATHE_READ_LOOP(read_128, I2, "sse2", "+x")
#undef LATHE_READ_LOOP

#define LATHE_COPY_LOOP(name, type, isa)                                              \
  __attribute__((target(isa))) void name(char* to, const char* from, int64_t lines) { \
    constexpr int kPerLine = 64 / sizeof(type);                                       \
    for (int64_t i = 0; i < lines; i += 2) {                                          \
      const type* p = reinterpret_cast<const type*>(from + i * 64);                   \
      type* q = reinterpret_cast<type*>(to + i * 64);                                 \
      _Pragma("GCC unroll 8") for (int k = 0; k < 2 * kPerLine; ++k) q[k] = p[k];     \
      asm volatile("" ::: "memory");                                                  \
    }                                                                                 \
  }
LATHE_COPY_LOOP(copy_512, I8, "avx512f")
LATHE_COPY_LOOP(copy_256, I4, "avx2")
LATHE_COPY_LOOP(copy_128, I2, "sse2")
#undef LATHE_COPY_LOOP

constexpr MachineLoops kLoops[] = {
    {ir::IsaLevel::portable, 4, fma_128, read_128, copy_128},
    {ir::IsaLevel::avx2, 8, fma_256, read_256, copy_256},
    {ir::IsaLevel::avx512, 16, fma_512, read_512, copy_512},
};

}  // namespace

std::span<const MachineLoops> machine_loops() { return kLoops; }

}  // namespace lathe::jit
