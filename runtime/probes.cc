// See probes.h. The intrinsics are behind target attributes, so that this file needs no flags and the library starts anywhere.
#include "runtime/probes.h"

#include <immintrin.h>

#include <cstring>

namespace lathe::runtime {
namespace {

constexpr int kChains = 16;  // independent accumulators: latency 4 to 5, two pipes

__attribute__((target("avx512f"))) double fma_512(int64_t steps) {
  __m512 acc[kChains];
  const __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
  for (int i = 0; i < kChains; ++i) acc[i] = _mm512_set1_ps(static_cast<float>(i));
  for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) acc[i] = _mm512_fmadd_ps(acc[i], a, b);
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) asm volatile("" : "+v"(acc[i]));
  }
  return 2.0 * 16 * kChains * static_cast<double>(steps);
}

__attribute__((target("avx2,fma"))) double fma_256(int64_t steps) {
  constexpr int kYmmChains = 12;  // 16 registers, two of them operands
  __m256 acc[kYmmChains];
  const __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
  for (int i = 0; i < kYmmChains; ++i) acc[i] = _mm256_set1_ps(static_cast<float>(i));
  for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 12
    for (int i = 0; i < kYmmChains; ++i) acc[i] = _mm256_fmadd_ps(acc[i], a, b);
#pragma GCC unroll 12
    for (int i = 0; i < kYmmChains; ++i) asm volatile("" : "+x"(acc[i]));
  }
  return 2.0 * 8 * kYmmChains * static_cast<double>(steps);
}

double fma_scalar(int64_t steps) {
  float acc[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  for (int64_t s = 0; s < steps; ++s) {
    for (float& v : acc) {
      v = v * 0.5f + 0.25f;
      asm volatile("" : "+x"(v));
    }
  }
  return 2.0 * 8 * static_cast<double>(steps);
}

// Four streams, a quarter each: more open pages and prefetch streams than one.
__attribute__((target("avx512f"))) void read_512(const char* p, size_t lines) {
  const size_t quarter = lines / 4;
  __m512i acc[4] = {};
  for (size_t i = 0; i < quarter; ++i) {
#pragma GCC unroll 4
    for (size_t q = 0; q < 4; ++q) acc[q] = _mm512_or_si512(acc[q], _mm512_loadu_si512(p + 64 * (q * quarter + i)));
  }
  for (size_t i = 4 * quarter; i < lines; ++i) acc[0] = _mm512_or_si512(acc[0], _mm512_loadu_si512(p + 64 * i));
  for (__m512i& a : acc) asm volatile("" : "+v"(a));
}

__attribute__((target("avx2"))) void read_256(const char* p, size_t lines) {
  const size_t quarter = lines / 4;
  __m256i acc[4] = {};
  const auto line = [&](int q, size_t i) __attribute__((target("avx2"), always_inline)) {
    const auto* at = reinterpret_cast<const __m256i*>(p + 64 * i);
    acc[q] = _mm256_or_si256(acc[q], _mm256_or_si256(_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)));
  };
  for (size_t i = 0; i < quarter; ++i) {
    for (int q = 0; q < 4; ++q) line(q, static_cast<size_t>(q) * quarter + i);
  }
  for (size_t i = 4 * quarter; i < lines; ++i) line(0, i);
  for (__m256i& a : acc) asm volatile("" : "+x"(a));
}

void read_scalar(const char* p, size_t lines) {
  uint64_t acc = 0;
  for (size_t i = 0; i < lines * 8; ++i) {
    uint64_t v;
    std::memcpy(&v, p + 8 * i, 8);
    acc |= v;
  }
  asm volatile("" : "+r"(acc));
}

__attribute__((target("avx512f"))) void copy_512(char* out, const char* in, size_t lines) {
  for (size_t i = 0; i < lines; ++i) _mm512_storeu_si512(out + 64 * i, _mm512_loadu_si512(in + 64 * i));
}

__attribute__((target("avx2"))) void copy_256(char* out, const char* in, size_t lines) {
  for (size_t i = 0; i < 2 * lines; ++i) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 32 * i), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 32 * i)));
  }
}

}  // namespace

double probe_fma(const ir::Target& target, int64_t steps) {
  if (target.level >= ir::IsaLevel::avx512) return fma_512(steps);
  return target.level == ir::IsaLevel::avx2 ? fma_256(steps) : fma_scalar(steps);
}

void probe_read(const ir::Target& target, const void* data, size_t bytes) {
  const char* p = static_cast<const char*>(data);
  if (target.level >= ir::IsaLevel::avx512) return read_512(p, bytes / 64);
  return target.level == ir::IsaLevel::avx2 ? read_256(p, bytes / 64) : read_scalar(p, bytes / 64);
}

void probe_copy(const ir::Target& target, void* out, const void* in, size_t bytes) {
  auto* to = static_cast<char*>(out);
  const auto* from = static_cast<const char*>(in);
  if (target.level >= ir::IsaLevel::avx512) return copy_512(to, from, bytes / 64);
  if (target.level == ir::IsaLevel::avx2) return copy_256(to, from, bytes / 64);
  std::memcpy(to, from, bytes);
}

}  // namespace lathe::runtime
