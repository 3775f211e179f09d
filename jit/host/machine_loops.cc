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

// The same of pairs and quads, by the instruction's name: GCC has no operator for them.
#define LATHE_DOT_START(n) type a##n = {};
#define LATHE_DOT_STEP_V(n) asm volatile(LATHE_DOT_CODE : "+v"(a##n), "=&v"(t) : "v"(x), "v"(y));
#define LATHE_DOT_STEP_X(n) asm volatile(LATHE_DOT_CODE : "+x"(a##n), "=&x"(t) : "x"(x), "x"(y));
#define LATHE_DOT_LOOP(name, vector, isa, step)           \
  __attribute__((target(isa))) void name(int64_t steps) { \
    using type = vector;                                  \
    type x = {}, y = {}, t;                               \
    LATHE_EACH_CHAIN(LATHE_DOT_START)                     \
    for (int64_t s = 0; s < steps; ++s) {                 \
      LATHE_EACH_CHAIN(step)                              \
    }                                                     \
  }
#define LATHE_DOT_CODE "vpdpbusd %3, %2, %0"
LATHE_DOT_LOOP(vpdpbusd_512, I8, "avx512f", LATHE_DOT_STEP_V)
LATHE_DOT_LOOP(vpdpbusd_256, I4, "avx512f,avx512vl", LATHE_DOT_STEP_V)
#undef LATHE_DOT_CODE
#define LATHE_DOT_CODE "%{vex%} vpdpbusd %3, %2, %0"
LATHE_DOT_LOOP(vex_vpdpbusd_256, I4, "avx2", LATHE_DOT_STEP_X)
#undef LATHE_DOT_CODE
#define LATHE_DOT_CODE "vpmaddubsw %3, %2, %1\n\tvpmaddwd %3, %1, %1\n\tvpaddd %1, %0, %0"
LATHE_DOT_LOOP(vpmaddubsw_512, I8, "avx512f,avx512bw", LATHE_DOT_STEP_V)
LATHE_DOT_LOOP(vpmaddubsw_256, I4, "avx2", LATHE_DOT_STEP_X)
#undef LATHE_DOT_CODE
#define LATHE_DOT_CODE "vdpbf16ps %3, %2, %0"
LATHE_DOT_LOOP(vdpbf16ps_512, I8, "avx512f", LATHE_DOT_STEP_V)
LATHE_DOT_LOOP(vdpbf16ps_256, I4, "avx512f,avx512vl", LATHE_DOT_STEP_V)
#undef LATHE_DOT_CODE
#undef LATHE_DOT_LOOP

#if LATHE_ASSEMBLES_TILES
// Six sums of 16 x 16, more than a product takes of the time between two; a tile has 16 rows of 64 bytes.
constexpr int64_t kTileSums = 6, kTileRows = 16, kTileBytes = 64;
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {kTileBytes, kTileBytes, kTileBytes, kTileBytes, kTileBytes, kTileBytes, kTileBytes, kTileBytes};
  uint8_t rows[16] = {kTileRows, kTileRows, kTileRows, kTileRows, kTileRows, kTileRows, kTileRows, kTileRows};
};
static_assert(sizeof(TileConfig) == 64);
#define LATHE_EACH_TILE(f) f("0") f("1") f("2") f("3") f("4") f("5") f("6") f("7")
#define LATHE_TILE_ZERO(n) "tilezero %%tmm" n "\n\t"
#define LATHE_TILE_LOOP(name, instruction)                                                                         \
  void name(int64_t steps) {                                                                                       \
    const TileConfig config;                                                                                       \
    asm volatile("ldtilecfg %0\n\t" LATHE_EACH_TILE(LATHE_TILE_ZERO) : : "m"(config));                             \
    for (int64_t s = 0; s < steps; ++s) {                                                                          \
      asm volatile(instruction " %%tmm7, %%tmm6, %%tmm0\n\t" instruction " %%tmm7, %%tmm6, %%tmm1\n\t" instruction \
                               " %%tmm7, %%tmm6, %%tmm2\n\t" instruction " %%tmm7, %%tmm6, %%tmm3\n\t" instruction \
                               " %%tmm7, %%tmm6, %%tmm4\n\t" instruction " %%tmm7, %%tmm6, %%tmm5"                 \
                   :                                                                                               \
                   :);                                                                                             \
    }                                                                                                              \
    asm volatile("tilerelease");                                                                                   \
  }
LATHE_TILE_LOOP(tdpbusd_loop, "tdpbusd")
LATHE_TILE_LOOP(tdpbf16ps_loop, "tdpbf16ps")
#undef LATHE_TILE_LOOP
#undef LATHE_TILE_ZERO
#undef LATHE_EACH_TILE
// Operations of a step: two for each byte, or pair of bytes, of a factor and each sum.
constexpr int64_t of_tiles(int64_t of_factor) {
  return 2 * kTileSums * kTileRows * (kTileBytes / 4) * kTileBytes / of_factor;
}
#endif

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

using enum ir::CpuFeature;
constexpr uint64_t kAvx2 = kCpu_avx2, k512 = kCpu_avx512f | kCpu_avx512bw, k256 = k512 | kCpu_avx512vl;
// Of a step of vectors: two for each byte, or pair of bytes, of a factor and each sum's lane.
constexpr int64_t of_vectors(int64_t bytes, int64_t of_factor) { return 2 * kFmaChains * bytes / of_factor; }
constexpr DotLoop kDots[] = {
    {"vpmaddubsw", ir::DType::i8, kAvx2, 3, of_vectors(32, 1), vpmaddubsw_256},
    {"vpmaddubsw", ir::DType::i8, k512, 3, of_vectors(64, 1), vpmaddubsw_512},
    {"vpdpbusd", ir::DType::i8, kCpu_avx_vnni, 1, of_vectors(32, 1), vex_vpdpbusd_256},
    {"vpdpbusd", ir::DType::i8, k256 | kCpu_avx512vnni, 1, of_vectors(32, 1), vpdpbusd_256},
    {"vpdpbusd", ir::DType::i8, k512 | kCpu_avx512vnni, 1, of_vectors(64, 1), vpdpbusd_512},
    {"vdpbf16ps", ir::DType::bf16, k256 | kCpu_avx512bf16, 1, of_vectors(32, 2), vdpbf16ps_256},
    {"vdpbf16ps", ir::DType::bf16, k512 | kCpu_avx512bf16, 1, of_vectors(64, 2), vdpbf16ps_512},
#if LATHE_ASSEMBLES_TILES
    {"tdpbusd", ir::DType::i8, kCpu_amx_tile | kCpu_amx_int8, 0, of_tiles(1), tdpbusd_loop},
    {"tdpbf16ps", ir::DType::bf16, kCpu_amx_tile | kCpu_amx_bf16, 0, of_tiles(2), tdpbf16ps_loop},
#endif
};

}  // namespace

std::span<const DotLoop> dot_loops() { return kDots; }
std::span<const MachineLoops> machine_loops() { return kLoops; }

}  // namespace lathe::jit
