// Attention whose products have a factor in registers (wgmma_held), of numbers that give the same bytes on every GPU:
// scores are multiples of 128, so keys of the largest score of a query have the weight 1 and all others 0.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "bench/gpu/products.h"
#include "search/gpu/attention/tensor_attention.h"

namespace lathe::bench {

struct HeldCase {
  const char *name, *type;
  int64_t queries, keys;
  search::AttentionTile tile;
};
// Of one block of keys and of several; weights as they are, and in three numbers, which gives products of three.
inline const HeldCase kHeldCases[] = {
    {"held factors", "bf16", 70, 200, {64, 64, 2, false, false, 0, true}},
    {"held factors of two groups", "bf16", 136, 328, {128, 64, 2, false, false, 0, true}},
    {"held factors in three numbers", "bf16", 130, 56, {128, 64, 2, true, false, 0, true}},
    {"held factors of f16", "f16", 64, 264, {64, 64, 3, false, false, 0, true}},
};
inline constexpr int64_t kHeldDepth = 64;

inline std::string held_text(const HeldCase& c) {
  const std::string t = c.type, rows = "[B, 1, S, 64]", keys = "[B, 1, T, 64]";
  return "kernel attention(q: " + t + rows + " in, k: " + t + keys + " in, v: " + t + keys + " in, y: " + t + rows +
         " out) family attention where B in 0..64, S in 0..4096, T in 0..8192\n"
         "  m: f32[B, 1, S] heap\n  a: f32[B, 1, S] heap\n  r: f32[B, 1, S] heap\n"
         "  c: f32[B, 1, S, T] heap\n  s: f32[B, 1, S, T] heap\n  o: f32[B, 1, S, 64] heap\n"
         "  for t0 < B [batch]:\n    for t1 < 1 [batch]:\n      for i < S [row]:\n"
         "        m[t0, t1, i] = -3.4028235e+38\n        for j < T [key]:\n          c[t0, t1, i, j] = 0.0\n"
         "          for d < 64 [k]:\n"
         "            c[t0, t1, i, j] += f32(q[t0, t1, i, d]) * f32(k[t0, 0, j, d])\n"
         "          s[t0, t1, i, j] = c[t0, t1, i, j] * 0.125\n"
         "          m[t0, t1, i] fmax= s[t0, t1, i, j]\n        a[t0, t1, i] = 0.0\n        for j1 < T [key]:\n"
         "          s[t0, t1, i, j1] = exp2((s[t0, t1, i, j1] - m[t0, t1, i]) * 1.442695)\n"
         "          a[t0, t1, i] += s[t0, t1, i, j1]\n"
         "        r[t0, t1, i] = select(a[t0, t1, i] == 0.0, 0.0, 1.0 / a[t0, t1, i])\n"
         "        for n < 64 [n]:\n          o[t0, t1, i, n] = 0.0\n          for j2 < T [key]:\n"
         "            o[t0, t1, i, n] += s[t0, t1, i, j2] * f32(v[t0, 0, j2, n])\n"
         "          y[t0, t1, i, n] = " +
         t + "(o[t0, t1, i, n] * r[t0, t1, i])\n";
}

// Whole numbers times 32.
inline std::vector<uint16_t> whole_scores(const std::string& type, int64_t count, uint64_t state) {
  std::vector<uint16_t> out = whole_numbers(type, count, state);
  for (uint16_t& bits : out) bits = static_cast<uint16_t>(bits == 0 ? 0 : bits + (type == "bf16" ? 5 << 7 : 5 << 10));
  return out;
}

}  // namespace lathe::bench
