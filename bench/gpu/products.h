// Products of matrices by each way that Hopper's tensor cores have, of whole numbers whose sums f32 holds exactly: in
// whatever order hardware adds them, results have the same bytes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "search/gpu/tensor/hopper_schedule.h"

namespace lathe::bench {

struct ProductCase {
  const char *name, *type;
  bool turn_a, turn_b;
  int64_t m, n, k;
  search::GroupTile tile;
};
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
};

inline std::string product_text(const ProductCase& c) {
  const std::string type = c.type, a = c.turn_a ? "[K, M]" : "[M, K]", b = c.turn_b ? "[N, K]" : "[K, N]",
                    at = c.turn_a ? "[k, m]" : "[m, k]", bt = c.turn_b ? "[n, k]" : "[k, n]";
  return "kernel product(a: " + type + a + " in, b: " + type + b + " in, y: " + type +
         "[M, N] out) family matmul where M in 0..5000, N in 0..5000, K in 0..5000\n"
         "  c: f32[M, N] heap\n  for m < M [m]:\n    for n < N [n]:\n      c[m, n] = 0.0\n      for k < K [k]:\n"
         "        c[m, n] += f32(a" +
         at + ") * f32(b" + bt + ")\n      y[m, n] = " + type + "(c[m, n])\n";
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
