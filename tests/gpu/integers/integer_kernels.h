// Kernels of integers that the tests of GPUs share, as ops writes them; and the compile matrix of a set of Kernels.
#pragma once
#include <gtest/gtest.h>

#include "ir/analysis/analysis.h"
#include "jit/cuda/text/cuda_text.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/choice/device_schedules.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/counted_kernels.h"

namespace lathe::test {

// y = f(x), of those types.
inline std::string converting(const char* from, const char* to, const std::string& value) {
  return std::string("kernel convert(x: ") + from + "[N] in, y: " + to +
         "[N] out) family elementwise where N in 0..1000000\n  for j < N [col]:\n    y[j] = " + value + "\n";
}

inline const char kMasked[] =
    "kernel masked(c: b8[M, N] in, x: f32[M, N] in, z: bf16[N] in, y: f32[M, N] out) family elementwise "
    "where M in 0..5000, N in 0..5000\n"
    "  for i0 < M [row]:\n    for j < N [col]:\n      y[i0, j] = select(c[i0, j], x[i0, j], f32(z[j]))\n";
inline const char kBits[] =
    "kernel bits(x: u8[N] in, z: i32[N] in, y: i32[N] out) family elementwise where N in 0..1000000\n"
    "  for j < N [col]:\n"
    "    y[j] = (i32(x[j]) >> 4*(j % 2) & 15:i32) * z[j] - max(z[j], -3:i32) | (z[j] << 3 & 56:i32)\n";
inline const char kArgmax[] =
    "kernel argmax(s: f32[B, N] in, d: i64[B] out) family row where B in 0..65536, N in 0..1000000\n"
    "  a: f32[B] heap\n  i: i32[B] heap\n"
    "  for b < B [row]:\n    a[b] = -inf\n    for n < N [col]:\n      a[b] max= s[b, n]\n    i[b] = 2147483647:i32\n"
    "    for n1 < N [col]:\n"
    "      i[b] min= select(s[b, n1] == a[b] or s[b, n1] != s[b, n1], i32(n1), 2147483647:i32)\n"
    "    d[b] = i64(i[b] | i[b] + 1:i32 >> 31)\n";
inline const char kSumOfI32[] =
    "kernel sums(s: i32[B, N] in, d: i32[B] out) family row where B in 0..65536, N in 0..1000000\n"
    "  a: i32[B] heap\n"
    "  for b < B [row]:\n    a[b] = 0:i32\n    for n < N [col]:\n      a[b] += s[b, n]\n    d[b] = a[b]\n";
inline const char kCumsum[] =
    "kernel cumsum(s: f32[B, N] in, d: f32[B, N] out) family scan where B in 0..65536, N in 0..1000000\n"
    "  a: f32[B] heap\n"
    "  for b < B [row]:\n    a[b] = 0.0\n    for n < N [col]:\n      a[b] += s[b, n]\n      d[b, n] = a[b]\n";
// Nested loops in each row, which a thread goes through alone.
inline const char kNested[] =
    "kernel nested(s: f32[B, 8, 8] in, d: f32[B] out) family row where B in 0..65536\n"
    "  a: f32[B] heap\n"
    "  for b < B [row]:\n    a[b] = 0.0\n    for i < 8:\n      for j < 8 [col]:\n        a[b] += s[b, i, j] * s[b, j, "
    "i]\n"
    "    d[b] = a[b]\n";
// The k largest of a row and their indices.
inline std::string top_k(const std::string& k, const std::string& type = "f32") {
  const bool is_f32 = type == "f32";
  const auto x = [&](const char* n) { return is_f32 ? fmt::format("s[b, {}]", n) : fmt::format("f32(s[b, {}])", n); };
  const auto number = [](const char* n) { return fmt::format("f32(i32({}))", n); };
  const auto after = [&](const char* n) {
    return fmt::format("({0} < a[b] or {0} == a[b] and j[b] < {1})", x(n), number(n));
  };
  return fmt::format(
      "kernel top_k(s: {0}[B, N] in, t0: i32[B, {1}] out, d: {0}[B, {1}] out) family selection "
      "where B in 0..65536, N in 0..1000000\n"
      "  a: f32[B] heap\n  j: f32[B] heap\n  m: f32[B] heap\n  f: f32[B] heap\n"
      "  for b < B [row]:\n    a[b] = inf\n    j[b] = -1.0\n    for o < {1} [rank]:\n      m[b] = -inf\n"
      "      for n < N [col]:\n        m[b] fmax= select({2}, {3}, -inf)\n      f[b] = -inf\n"
      "      for n1 < N [col]:\n        f[b] fmax= select({4} and {5} == m[b], -{6}, -inf)\n"
      "      a[b] = m[b]\n      j[b] = -f[b]\n      d[b, o] = {7}\n"
      "      t0[b, o] = i32(select(j[b] < inf, j[b], -1.0))\n",
      type, k, after("n"), x("n"), after("n1"), x("n1"), number("n1"), is_f32 ? "m[b]" : type + "(m[b])");
}
inline std::string moved(const char* type) {
  return std::string("kernel turned(s: ") + type + "[M, N] in, d: " + type +
         "[N, M] out) family transpose where M in 0..5000, N in 0..5000\n"
         "  for i < N [row]:\n    for j < M [col]:\n      d[i, j] = s[j, i]\n";
}

inline ir::Result<search::Scheduled> best_of(const search::GeneralKernel& general, const ir::SymbolValues& dims,
                                             const char* gpu = "h200") {
  ir::SymbolValues sizes;
  for (const auto& [name, size] : general.sizes) sizes.emplace_back(name, ir::evaluate(size, dims).value());
  return search::device_schedule(general, sizes, *ir::find_gpu_target(gpu));
}

struct MatrixForm {
  std::string text;
  ir::SymbolValues dims;
  // Of 16 bytes or 8 at least so many loads, where it is compiled.
  int wide = 0;
};

// By the real compiler, for each architecture of the table: no spills, no warnings. Counts what it did.
class KernelMatrix : public CountedKernels<testing::TestWithParam<const char*>> {
 protected:
  void compile_all(const std::vector<MatrixForm>& forms) {
    const char* gpu = GetParam();
    const ir::GpuTarget target = *ir::find_gpu_target(gpu);
    for (const MatrixForm& form : forms) {
      const search::GeneralKernel general = search::general_kernel(kernel_of(form.text));
      const auto made = best_of(general, form.dims, gpu);
      ASSERT_TRUE(made.ok()) << made.status().to_string() << form.text;
      const auto cut = search::cut_launches(made->kernel);
      ASSERT_TRUE(cut.ok()) << cut.status().to_string();
      int wide = 0;
      for (const ir::Leaf& leaf : cut->leaves) {
        const auto code = compiled(leaf, target, leaf.text);
        if (code) wide += code->loads.bits128 + code->loads.bits64;
      }
      expect_predicted(wide >= form.wide,
                       fmt::format("{} wide loads of {} on {}\n{}", wide, form.wide, gpu, form.text));
    }
  }
};

}  // namespace lathe::test
