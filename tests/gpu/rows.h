// Rows that the tests of GPUs share, as ops writes them.
#pragma once
#include <string>

namespace lathe::test {

// n: their length, a number or N. type: of operands and results.
inline std::string softmax_rows(const std::string& n, const std::string& type = "f32") {
  const std::string x = type == "f32" ? "s[b, n]" : "f32(s[b, n])", x1 = type == "f32" ? "s[b, n1]" : "f32(s[b, n1])";
  const std::string y = type == "f32" ? "e[b, n2] * r[b]" : type + "(e[b, n2] * r[b])";
  return "kernel softmax(s: " + type + "[B, " + n + "] in, d: " + type + "[B, " + n +
         "] out) family row where B in 0..65536, N in 1..1000000\n"
         "  m: f32[B] heap\n  a: f32[B] heap\n  r: f32[B] heap\n  e: f32[B, " +
         n +
         "] heap\n"
         "  for b < B [row]:\n    m[b] = -inf\n"
         "    for n < " +
         n + " [col]:\n      m[b] fmax= " + x +
         "\n"
         "    a[b] = 0.0\n"
         "    for n1 < " +
         n + " [col]:\n      e[b, n1] = exp2((" + x1 +
         " - m[b]) * 1.442695)\n      a[b] += e[b, n1]\n"
         "    r[b] = 1.0 / a[b]\n"
         "    for n2 < " +
         n + " [col]:\n      d[b, n2] = " + y + "\n";
}

inline std::string layernorm_rows(const std::string& n) {
  return "kernel layernorm(s: f32[B, " + n + "] in, g: f32[" + n + "] in, h: f32[" + n + "] in, d: f32[B, " + n +
         "] out) family row where B in 0..65536, N in 1..1000000\n"
         "  u: f32[B] heap\n  v: f32[B] heap\n  r: f32[B] heap\n"
         "  for b < B [row]:\n    u[b] = 0.0\n"
         "    for n < " +
         n + " [col]:\n      u[b] += s[b, n]\n    u[b] = u[b] / 1000.0\n    v[b] = 0.0\n    for n1 < " + n +
         " [col]:\n      v[b] += (s[b, n1] - u[b]) * (s[b, n1] - u[b])\n"
         "    r[b] = rsqrt(v[b] / 1000.0 + 0.001)\n    for n2 < " +
         n + " [col]:\n      d[b, n2] = (s[b, n2] - u[b]) * r[b] * g[n2] + h[n2]\n";
}

inline const char kSumRows[] =
    "kernel sum(s: f32[B, N] in, d: f32[B] out) family row where B in 0..65536, N in 0..1000000\n"
    "  a: f32[B] heap\n"
    "  for b < B [row]:\n    a[b] = 0.0\n    for n < N [col]:\n      a[b] += s[b, n]\n    d[b] = a[b] / f32(N)\n";

}  // namespace lathe::test
