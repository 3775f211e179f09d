// Chains that the tests of GPUs share, as text.
#pragma once
#include <algorithm>
#include <string>

#include "ir/core/text_form.h"
#include "search/sketches/recipe.h"

namespace lathe::test {

// One run of memory.
inline const char kFlat[] =
    "kernel silu(e0: f32[N] in, y: f32[N] out) family elementwise where N in 0..1000000\n"
    "  for j < N [col]:\n"
    "    y[j] = e0[j] * sigmoid(e0[j])\n";
// Rows with a vector along them, and a value for each row; strides of the caller's.
inline const char kRows[] =
    "kernel rows(e0: f32[M, 96] in strides [128, 1], e1: f32[96] in, e2: f32[M, 1] in, y: f32[M, 96] out) "
    "family elementwise where M in 0..5000\n"
    "  for i0 < M [row]:\n"
    "    for j < 96 [col]:\n"
    "      y[i0, j] = max(e0[i0, j] + e1[j], e2[i0, 0])\n";
// Three dimensions, a step along the last, and two results.
inline const char kTurned[] =
    "kernel turned(e0: f32[A, B, C] in strides [1, 2000, 400000], y: f32[A, B, C] out, t0: f32[A, B, C] out) "
    "family elementwise where A in 1..2000, B in 1..200, C in 1..100\n"
    "  for i0 < A [row]:\n"
    "    for i1 < B [row]:\n"
    "      for j < C [col]:\n"
    "        t0[i0, i1, j] = exp(e0[i0, i1, j])\n"
    "        y[i0, i1, j] = exp(e0[i0, i1, j]) - 1.0\n";

// Products of matrices, the second operand by terms or by columns first, with a bias.
inline const char kProduct[] =
    "kernel product(a: f32[M, K] in, b: f32[K, N] in, e: f32[N] in, y: f32[M, N] out) "
    "family matmul where M in 0..5000, N in 0..5000, K in 0..5000\n"
    "  c: f32[M, N] heap\n"
    "  for m < M [m]:\n    for n < N [n]:\n      c[m, n] = 0.0\n      for k < K [k]:\n"
    "        c[m, n] += a[m, k] * b[k, n]\n      y[m, n] = max(c[m, n] + e[n], 0.0)\n";
inline const char kTurnedProduct[] =
    "kernel product(a: f32[M, K] in, b: f32[N, K] in, e: f32[N] in, y: f32[M, N] out) "
    "family matmul where M in 0..5000, N in 0..5000, K in 0..5000\n"
    "  c: f32[M, N] heap\n"
    "  for m < M [m]:\n    for n < N [n]:\n      c[m, n] = 0.0\n      for k < K [k]:\n"
    "        c[m, n] += a[m, k] * b[n, k]\n      y[m, n] = max(c[m, n] + e[n], 0.0)\n";

inline ir::Kernel kernel_of(const std::string& text) { return ir::parse_kernel(text).value(); }
// For calls of at most these sizes, as a hint's range has them.
inline ir::Kernel up_to(const ir::Kernel& kernel, const ir::SymbolValues& most) {
  ir::SymbolRanges ranges;
  for (const auto& [name, value] : most) ranges[name] = {std::min<int64_t>(value, 1), value};
  return search::restrict_symbols(kernel, ranges);
}

}  // namespace lathe::test
