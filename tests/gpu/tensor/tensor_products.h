// Products on tensor cores that tests share, as text: bf16 and f16, every layout, batches, what is fused around them.
#pragma once
#include <string>

namespace lathe::test {

inline constexpr double kBf16 = 1.0 / 128;  // a rounding either way

// T stands for the type, A and B for the operands, AT and BT for how the term reads them.
inline std::string tensor_product(const std::string& type, bool turn_a, bool turn_b) {
  const std::string a = turn_a ? "[K, M]" : "[M, K]", b = turn_b ? "[N, K]" : "[K, N]",
                    at = turn_a ? "[k, m]" : "[m, k]", bt = turn_b ? "[n, k]" : "[k, n]";
  return "kernel product(a: " + type + a + " in, b: " + type + b + " in, y: " + type + "[M, N] out) " +
         "family matmul where M in 0..5000, N in 0..5000, K in 0..5000\n"
         "  c: f32[M, N] heap\n"
         "  for m < M [m]:\n    for n < N [n]:\n      c[m, n] = 0.0\n      for k < K [k]:\n"
         "        c[m, n] += f32(a" +
         at + ") * f32(b" + bt + ")\n      y[m, n] = " + type + "(c[m, n])\n";
}
// Batches of which one operand is shared, an operand that is made first, a bias, an activation, and a residual.
inline const char kTensorFused[] =
    "kernel fused(g: bf16[2, M, K] in, u: bf16[2, M, K] in, b: bf16[K, N] in, e: bf16[N] in, z: bf16[2, M, N] in, "
    "y: bf16[2, M, N] out) family matmul where M in 0..5000, N in 0..5000, K in 0..5000\n"
    "  a: bf16[2, M, K] heap\n"
    "  c: f32[2, M, N] heap\n"
    "  for s0 < 2:\n    for s1 < M:\n      for s2 < K:\n"
    "        a[s0, s1, s2] = bf16(max(f32(g[s0, s1, s2]), 0.0) * f32(u[s0, s1, s2]))\n"
    "  for t < 2 [batch]:\n    for m < M [m]:\n      for n < N [n]:\n        c[t, m, n] = 0.0\n        for k < K [k]:\n"
    "          c[t, m, n] += f32(a[t, m, k]) * f32(b[k, n])\n"
    "        y[t, m, n] = bf16(max(c[t, m, n] + f32(e[n]), 0.0) + f32(z[t, m, n]))\n";
// Of given operands, in batches: a bias, an activation, a residual, and another type of results.
inline const char kTensorEpilogue[] =
    "kernel epilogue(a: bf16[2, M, K] in, b: bf16[N, K] in, e: f32[N] in, z: bf16[2, M, N] in, y: f16[2, M, N] out) "
    "family matmul where M in 0..5000, N in 0..5000, K in 0..5000\n"
    "  c: f32[2, M, N] heap\n"
    "  for t < 2 [batch]:\n    for m < M [m]:\n      for n < N [n]:\n        c[t, m, n] = 0.0\n        for k < K [k]:\n"
    "          c[t, m, n] += f32(a[t, m, k]) * f32(b[n, k])\n"
    "        y[t, m, n] = f16(max(c[t, m, n] + e[n], 0.0) + f32(z[t, m, n]))\n";

}  // namespace lathe::test
