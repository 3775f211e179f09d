// Kernels that do one thing, in the dialect of jit/cuda/text/cuda_text.h: what a GPU's tensor instructions reach where
// nothing else is to be done, and what a launch costs that does nothing. Each takes an address and a number of turns.
#pragma once
#include <string>

#include "jit/cuda/text/cuda_text.h"

namespace lathe::bench {

struct BareLoop {
  const char* name;       // of the kernel
  int least_sm, most_sm;  // compute capability of the GPUs that have the instruction
  int threads, shared;    // of a block; bytes
  double flops;           // of a block in one turn
  const char *defines, *body;
};

inline constexpr int kBareThreads = 256;
inline constexpr BareLoop kNothing = {"lathe_nothing", 80, 999, 32, 0, 0, "", "  if (a.n < 0) lt_store1(a.p, 0.0f);\n"};
// Factors are random numbers of 1 to 2 with either sign: zeros take less power, and run faster.
inline constexpr BareLoop kTensorLoops[] = {
    {"lathe_mma", 80, 999, kBareThreads, 0, 8.0 * 8 * 2 * 16 * 8 * 16, "", R"(  float c[32];
  LT_UNROLL
  for (int i = 0; i < 32; ++i) c[i] = 0.0f;
  unsigned x[6];
  LT_UNROLL
  for (int i = 0; i < 6; ++i) x[i] = 0x3f803f80u ^ ((unsigned)(lt_thread() * 6 + i + 1) * 2654435769u & 0x807f807fu);
  LT_LOOP
  for (lt_int turn = 0; turn < a.n; ++turn) {
    LT_UNROLL
    for (int i = 0; i < 32; i += 4)
      lt_mma_bf16(i, c[i], c[i + 1], c[i + 2], c[i + 3], x[0], x[1], x[2], x[3], x[4], x[5]);
  }
  float sum = 0.0f;
  LT_UNROLL
  for (int i = 0; i < 32; ++i) sum += c[i];
  lt_store1(a.p + lt_block() * 256 + lt_thread(), sum);
)"},
    {"lathe_wgmma", 90, 90, kBareThreads, 49152, 2.0 * 4 * 2 * 64 * 256 * 16, "#define LT_WGMMA_256\n",
     R"(  LT_DYNAMIC_SHARED(lt_all, 49152);
  lt_bf16* factors = (lt_bf16*)lt_all;
  for (lt_int i = lt_thread(); i < 24576; i += 256)
    factors[i].bits = (unsigned short)(0x3f80u ^ ((unsigned)(i + 1) * 2654435769u >> 16 & 0x807fu));
  float c[128];
  LT_UNROLL
  for (int i = 0; i < 128; ++i) c[i] = 0.0f;
  lt_fence_shared();
  lt_barrier(0);
  lt_bf16* mine = factors + lt_thread() / 128 * 4096;
  LT_LOOP
  for (lt_int turn = 0; turn < a.n; ++turn) {
    lt_fence_sums();
    LT_UNROLL
    for (int k = 0; k < 64; k += 16)
      lt_wgmma_bf16_256<0, 0>(0, c, lt_tile(mine + k, 1024, 16), lt_tile(factors + 8192 + k, 1024, 16));
    lt_commit_products(0);
    lt_await_products(0, 0);
  }
  float sum = 0.0f;
  LT_UNROLL
  for (int i = 0; i < 128; ++i) sum += c[i];
  lt_store1(a.p + lt_block() * 256 + lt_thread(), sum);
)"}};

inline std::string text_of(const BareLoop& loop) {
  return std::string(loop.defines) + "#include \"" + jit::kPreludeName +
         "\"\nstruct lt_args { float* p; lt_int n; };\nLT_KERNEL(" + loop.name + ", " + std::to_string(loop.threads) +
         ", 1, lt_args, a) {\n" + loop.body + "}\n";
}

}  // namespace lathe::bench
