// Products of matrices by each way that tensor cores have, and what threads do together in rows, of whole numbers whose
// sums f32 holds exactly: in whatever order hardware adds them, results have the same bytes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "search/gpu/product_schedule.h"
#include "search/gpu/tensor/hopper_schedule.h"
#include "search/gpu/tensor/tensor_schedule.h"

namespace lathe::bench {

struct ProductCase {
  const char *name, *type;
  bool turn_a, turn_b;
  int64_t m, n, k;
  search::GroupTile tile;         // of four warps, on Hopper
  search::TensorTile warps = {};  // with rows: of a warp instead, on every GPU
};
inline constexpr int kHopper = 90;  // compute capability
// By mma.sync and ldmatrix: factors as they lie and turned, by asynchronous copies where lines begin at multiples of 16
// bytes, with fewer rows than columns, and with results that go through shared memory.
inline const ProductCase kWarpCases[] = {
    {"warps", "bf16", false, true, 70, 66, 203, {}, {32, 64, 32, 16, 32}},
    {"warps of turned factors", "f16", true, false, 70, 66, 203, {}, {64, 32, 32, 32, 16}},
    {"warps of asynchronous copies", "bf16", false, false, 72, 136, 264, {}, {64, 64, 32, 32, 32, 3}},
    {"warps of few rows", "f16", false, true, 9, 72, 136, {}, {32, 16, 32, 16, 16, 2, true}},
    {"warps of staged results", "bf16", false, true, 72, 136, 136, {}, {64, 64, 32, 32, 32, 2, false, 0, true}},
    {"warps of swizzled lines", "bf16", false, true, 72, 136, 264, {}, {64, 64, 32, 32, 32, 3, false, 0, false, true}},
    {"warps of swizzled panels", "f16", true, false, 72, 136, 203, {}, {128, 32, 64, 64, 16, 1, false, 0, false, true}},
};
inline constexpr search::TilePairs kBelow = search::TilePairs::below, kBeside = search::TilePairs::beside,
                                   kAlone = search::TilePairs::none;
// Sizes are no whole tiles. Lines that begin at multiples of 16 bytes are copied in boxes, others by threads.
inline const ProductCase kProductCases[] = {
    {"wgmma", "bf16", false, true, 130, 70, 203, {128, 64, 64}},
    {"wgmma of turned factors", "f16", true, false, 130, 70, 203, {128, 64, 64}},
    {"boxes", "bf16", false, true, 136, 72, 456, {128, 64, 64, 3}},
    {"boxes of turned factors", "f16", true, false, 136, 72, 456, {128, 128, 128, 3}},
    {"boxes fewer than places", "bf16", false, false, 72, 264, 72, {64, 256, 256, 4}},
    {"roles", "bf16", false, true, 264, 520, 456, {128, 256, 256, 4, 8, true}},
    {"roles of turned factors", "f16", true, false, 264, 136, 328, {128, 128, 128, 6, 0, true}},
    {"roles of three groups", "bf16", true, true, 200, 136, 328, {192, 128, 128, 5, 0, true}},
    {"blocks that go through several tiles", "bf16", false, true, 1160, 1000, 136, {128, 64, 64, 4, 8, true, true}},
    {"roles whose threads copy", "bf16", false, true, 130, 70, 203, {128, 128, 128, 6, 0, true}},
    {"clusters of columns", "bf16", false, true, 392, 264, 328, {128, 256, 256, 4, 8, true, false, false, kBelow}},
    {"clusters of rows", "f16", true, false, 264, 392, 328, {192, 128, 128, 4, 0, true, false, true, kBeside}},
    {"clusters that go on", "bf16", true, true, 840, 680, 72, {64, 64, 64, 4, 8, true, true, false, kBelow}},
    {"clusters whose threads copy", "bf16", false, true, 130, 70, 203, {128, 64, 64, 4, 0, true, true, false, kBeside}},
    {"swapped groups", "bf16", false, true, 24, 264, 328, {128, 24, 24, 4, 0, true, false, false, kAlone, true}},
    {"swapped groups of turned factors",
     "f16",
     true,
     false,
     72,
     136,
     136,
     {64, 64, 64, 4, 0, true, true, false, kAlone, true}},
    {"lines of 64 bytes", "bf16", false, false, 136, 200, 328, {128, 96, 96, 4, 0, true}},
    {"lines of 64 bytes that threads copy", "f16", false, false, 70, 66, 203, {64, 32, 32}},
    {"lines of 64 bytes of clusters",
     "bf16",
     false,
     false,
     136,
     200,
     328,
     {64, 160, 160, 4, 0, true, false, false, kBelow}},
    {"lines of 32 bytes", "bf16", false, false, 136, 104, 328, {64, 48, 48, 4, 0, true}},
    {"lines of 32 bytes of swapped groups",
     "f16",
     true,
     true,
     24,
     136,
     136,
     {64, 16, 16, 4, 0, true, false, false, kAlone, true}},
};

inline ir::Result<search::Scheduled> scheduled(const ProductCase& c, const search::GeneralKernel& general) {
  return c.warps.rows > 0 ? search::tensor_schedule(general, c.warps) : search::hopper_schedule(general, c.tile);
}

// Products of f32 by asynchronous copies: of 4 bytes each where neighbours are terms, of 16 where they are not.
struct FloatCase {
  const char* name;
  bool turn_a, turn_b;
  int64_t m, n, k;
  search::ProductTile tile;
};
inline const FloatCase kFloatCases[] = {
    {"copies of 4 bytes", false, true, 70, 66, 203, {64, 64, 16, 8, 8}},
    {"copies of 16 bytes", true, false, 72, 136, 203, {64, 64, 16, 8, 8}},
};

// One value a row: shuffles, and shared memory where a row has more threads than a warp.
struct RowCase {
  const char *name, *first, *update;
  int64_t rows, columns;
};
inline const RowCase kRowCases[] = {{"sums of short rows", "0.0", "+=", 37, 133},
                                    {"sums of long rows", "0.0", "+=", 5, 9001},
                                    {"largest of rows", "-inf", "max=", 5, 4099}};
inline std::string row_text(const RowCase& c) {
  return std::string("kernel rows(s: f32[M, N] in, d: f32[M] out) family row where M in 0..5000, N in 1..20000\n") +
         "  a: f32[M] heap\n  for m < M [row]:\n    a[m] = " + c.first + "\n    for n < N [col]:\n      a[m] " +
         c.update + " s[m, n]\n    d[m] = a[m]\n";
}

inline std::string product_text(const std::string& type, bool turn_a, bool turn_b) {
  const std::string a = turn_a ? "[K, M]" : "[M, K]", b = turn_b ? "[N, K]" : "[K, N]",
                    at = turn_a ? "[k, m]" : "[m, k]", bt = turn_b ? "[n, k]" : "[k, n]";
  const auto cast = [&](const std::string& to, const std::string& value) {
    return type == "f32" ? value : to + "(" + value + ")";
  };
  return "kernel product(a: " + type + a + " in, b: " + type + b + " in, y: " + type +
         "[M, N] out) family matmul where M in 0..5000, N in 0..5000, K in 0..5000\n"
         "  c: f32[M, N] heap\n  for m < M [m]:\n    for n < N [n]:\n      c[m, n] = 0.0\n      for k < K [k]:\n"
         "        c[m, n] += " +
         cast("f32", "a" + at) + " * " + cast("f32", "b" + bt) + "\n      y[m, n] = " + cast(type, "c[m, n]") + "\n";
}

// Elements of the type, from -2 to 2.
inline std::vector<uint16_t> whole_numbers(const std::string& type, int64_t count, uint64_t state) {
  constexpr uint16_t kBf16[] = {0xc000, 0xbf80, 0, 0x3f80, 0x4000}, kF16[] = {0xc000, 0xbc00, 0, 0x3c00, 0x4000};
  std::vector<uint16_t> out;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    out.push_back((type == "bf16" ? kBf16 : kF16)[(state >> 33) % 5]);
  }
  return out;
}

}  // namespace lathe::bench
