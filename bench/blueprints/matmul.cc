// Blueprints of f32 matmul, y[M, N] = x[M, K] w[K, N], w constant in panels of 32 columns, K-major:
//
//   M 1, 2       rows in place, no prefetch              M 4, 8    rows in place, the panel's own stream prefetched
//   M 14         one pass, A packed [k][14], own stream
//   M >= 16      panel { K block { M tile } }, A packed [tile][k][rows]; while tile t of T runs it prefetches share t
//                of the next block
//
// Partial sums between K blocks wait in a scratch tile. What each M gains by its form is in the design notes of the
// recipe.
#include <algorithm>

#include "bench/blueprints/case.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace lathe::blueprints {
namespace {

constexpr int kWidth = 32;  // columns of a panel

// A tile of MR rows by one panel over `steps` of k: a(r, k) at a[r * row + k * col]. From zero, or from `from`; result
// to `to`.
struct TileArgs {
  const float *a, *b, *from;
  float* to;
  int64_t steps, row, col, from_row, to_row;
  const char* ahead;  // what to prefetch, `lines` cache lines every four steps
};

template <int MR, int kLines, bool kPacked>
BLUEPRINT_AVX512 void tile(const TileArgs& t) {
  __m512 acc[MR][2];
  if (t.from != nullptr) {
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
      acc[r][0] = _mm512_loadu_ps(t.from + r * t.from_row);
      acc[r][1] = _mm512_loadu_ps(t.from + r * t.from_row + 16);
    }
  } else {
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
  }
  const float *a = t.a, *b = t.b;
  const char* ahead = t.ahead;
  const int64_t row = kPacked ? 1 : t.row, col = kPacked ? MR : 1;
  const auto step = [&](int k) BLUEPRINT_AVX512 __attribute__((always_inline)) {
    const __m512 b0 = _mm512_loadu_ps(b + kWidth * k), b1 = _mm512_loadu_ps(b + kWidth * k + 16);
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
      const __m512 x = _mm512_set1_ps(a[r * row + k * col]);
      acc[r][0] = _mm512_fmadd_ps(x, b0, acc[r][0]);
      acc[r][1] = _mm512_fmadd_ps(x, b1, acc[r][1]);
      asm volatile("" : "+v"(acc[r][0]), "+v"(acc[r][1]));  // each accumulator keeps its register
    }
  };
  for (int64_t k = 0; k < t.steps; k += 4) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 8
      for (int line = kLines * i / 4; line < kLines * (i + 1) / 4; ++line)
        asm volatile("prefetcht0 %0" : : "m"(ahead[64 * line]));
      step(i);
    }
    ahead += 64 * kLines;
    a += 4 * col;
    b += 4 * kWidth;
  }
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r) {
    _mm512_storeu_ps(t.to + r * t.to_row, acc[r][0]);
    _mm512_storeu_ps(t.to + r * t.to_row + 16, acc[r][1]);
  }
}

struct Shape {
  int64_t m, n, k;
};

// Rows in place, whole K per panel, own stream `distance` bytes ahead (0: none).
template <int MR, int kLines>
void in_place(const Shape& s, float* const* args, int64_t distance) {
  for (int64_t p = 0; p < s.n / kWidth; ++p) {
    const float* b = args[1] + p * s.k * kWidth;
    tile<MR, kLines, false>(
        {args[0], b, nullptr, args[2] + p * kWidth, s.k, s.k, 1, 0, s.n, reinterpret_cast<const char*>(b) + distance});
  }
}

// One row: four panels side by side are four streams, eight accumulators.
BLUEPRINT_AVX512 void one_row(const Shape& s, float* const* args, int) {
  const float* a = args[0];
  for (int64_t p = 0; p < s.n / kWidth; p += 4) {
    const float* b = args[1] + p * s.k * kWidth;
    __m512 acc[8];
    for (__m512& v : acc) v = _mm512_setzero_ps();
    const int64_t next = s.k * kWidth;
    for (int64_t k = 0; k < s.k; ++k) {
      const __m512 x = _mm512_set1_ps(a[k]);
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        acc[2 * q] = _mm512_fmadd_ps(x, _mm512_loadu_ps(b + q * next + kWidth * k), acc[2 * q]);
        acc[2 * q + 1] = _mm512_fmadd_ps(x, _mm512_loadu_ps(b + q * next + kWidth * k + 16), acc[2 * q + 1]);
      }
    }
    for (int q = 0; q < 8; ++q) _mm512_storeu_ps(args[2] + p * kWidth + 16 * q, acc[q]);
  }
}

// [k][rows] of `rows` rows of a.
void pack_rows(const float* a, int64_t rows, int64_t k, float* out) {
  constexpr int64_t kBlock = 16;
  for (int64_t k0 = 0; k0 < k; k0 += kBlock) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = k0; i < k0 + kBlock; ++i) out[i * rows + r] = a[r * k + i];
    }
  }
}

template <int MR, int kLines>
void one_pass(const Shape& s, float* const* args, float* scratch, int64_t distance) {
  pack_rows(args[0], MR, s.k, scratch);
  for (int64_t p = 0; p < s.n / kWidth; ++p) {
    const float* b = args[1] + p * s.k * kWidth;
    tile<MR, kLines, true>(
        {scratch, b, nullptr, args[2] + p * kWidth, s.k, 1, MR, 0, s.n, reinterpret_cast<const char*>(b) + distance});
  }
}

using Tile = void (*)(const TileArgs&);

// Tiles of `rows` rows each: [0] runs with its share of the next block's prefetch.
struct Tiles {
  std::vector<std::pair<int64_t, Tile>> all;
  int lines = 0;  // prefetched per four steps, by each
};

void blocked(const Shape& s, float* const* args, float* scratch, const Tiles& tiles, int64_t kc) {
  float* sums = scratch + s.m * s.k;  // [m][kWidth]
  int64_t first = 0;
  for (const auto& [rows, run] : tiles.all) {
    pack_rows(args[0] + first * s.k, rows, s.k, scratch + first * s.k);
    first += rows;
  }
  for (int64_t p = 0; p < s.n / kWidth; ++p) {
    for (int64_t k0 = 0; k0 < s.k; k0 += kc) {
      const float* b = args[1] + (p * s.k + k0) * kWidth;
      const char* next = reinterpret_cast<const char*>(b + kc * kWidth);
      const bool last = k0 + kc >= s.k;
      int64_t row = 0;
      for (const auto& [rows, run] : tiles.all) {
        float* part = sums + row * kWidth;
        float* y = args[2] + row * s.n + p * kWidth;
        run({scratch + row * s.k + k0 * rows, b, k0 > 0 ? part : nullptr, last ? y : part, kc, 1, rows, kWidth,
             last ? s.n : kWidth, next});
        next += 64 * tiles.lines * (kc / 4);
        row += rows;
      }
    }
  }
}

void pack_panels(const Shape& s, const float* w, float* out) {
  for (int64_t p = 0; p < s.n / kWidth; ++p) {
    for (int64_t k = 0; k < s.k; ++k) std::copy_n(w + k * s.n + p * kWidth, kWidth, out + (p * s.k + k) * kWidth);
  }
}

template <class Run>
void add(Cases* cases, const Shape& s, bool cold, Run run) {
  Case c;
  c.name = "matmul_" + std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k);
  c.op = "matmul";
  c.inputs = {{"x", {s.m, s.k}}, {"w", {s.k, s.n}, true}};
  c.result = {s.m, s.n};
  c.cold = cold;
  c.flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  c.bytes = 4.0 * static_cast<double>(s.n * s.k + s.m * s.k);
  c.scratch_floats = s.m * s.k + s.m * kWidth;
  c.prepared_floats = s.n * s.k + 64 * kWidth * 512;  // prefetches of the block after the last stay inside
  c.prepare = [s](const float* w, float* out) { pack_panels(s, w, out); };
  c.run = [s, run](float* const* args, float* scratch) { run(s, args, scratch); };
  cases->push_back(std::move(c));
}

}  // namespace

void add_matmul_cases(Cases* cases) {
  constexpr int64_t kN = 4096;
  add(cases, {1, kN, kN}, true, [](const Shape& s, float* const* args, float*) { one_row(s, args, 0); });
  add(cases, {4, kN, kN}, true, [](const Shape& s, float* const* args, float*) { in_place<4, 8>(s, args, 8 << 10); });
  add(cases, {8, kN, kN}, true, [](const Shape& s, float* const* args, float*) { in_place<8, 8>(s, args, 16 << 10); });
  add(cases, {14, kN, kN}, true,
      [](const Shape& s, float* const* args, float* scratch) { one_pass<14, 8>(s, args, scratch, 16 << 10); });
  add(cases, {16, kN, kN}, true, [](const Shape& s, float* const* args, float* scratch) {
    blocked(s, args, scratch, {{{8, tile<8, 4, true>}, {8, tile<8, 4, true>}}, 4}, 512);
  });
  add(cases, {24, kN, kN}, true, [](const Shape& s, float* const* args, float* scratch) {
    blocked(s, args, scratch, {{{12, tile<12, 4, true>}, {12, tile<12, 4, true>}}, 4}, 512);
  });
  add(cases, {32, kN, kN}, true, [](const Shape& s, float* const* args, float* scratch) {
    blocked(s, args, scratch, {{{11, tile<11, 3, true>}, {11, tile<11, 3, true>}, {10, tile<10, 3, true>}}, 3}, 512);
  });
  add(cases, {64, kN, kN}, true, [](const Shape& s, float* const* args, float* scratch) {
    constexpr Tile kTall = tile<13, 2, true>;
    blocked(s, args, scratch, {{{13, kTall}, {13, kTall}, {13, kTall}, {13, kTall}, {12, tile<12, 2, true>}}, 2}, 512);
  });
}

}  // namespace lathe::blueprints

#else

namespace lathe::blueprints {
void add_matmul_cases(Cases*) {}
}  // namespace lathe::blueprints

#endif
