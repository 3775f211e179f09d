// A function of vector_math as a leaf of its own, its reference in double precision, and the distance between the two.
#pragma once
#include <string>
#include <vector>

#include "tests/jit/lower/leaf_case.h"

namespace lathe::jit {

inline double reference(const std::string& f, double x) {
  if (f == "exp") return std::exp(x);
  if (f == "exp2" || f == "exp2_bf16") return std::exp2(x);
  if (f == "log") return std::log(x);
  if (f == "tanh") return std::tanh(x);
  if (f == "erf") return std::erf(x);
  if (f == "sqrt") return std::sqrt(x);
  if (f == "rsqrt") return 1 / std::sqrt(x);
  if (f == "sigmoid") return 1 / (1 + std::exp(-x));
  if (f == "normal_cdf") return 0.5 * std::erfc(-x / std::sqrt(2.0));
  if (f == "sin") return std::sin(x);
  if (f == "cos") return std::cos(x);
  if (f == "floor") return std::floor(x);
  return std::nearbyint(x);
}

// Units in the last place of `want` rounded to float, or of `least` if that is larger; below 2^-126 the unit is 2^-149.
inline double error_ulp(float got, double want, double least = 0) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  const float rounded = static_cast<float>(want);
  if (got == rounded) return 0;
  if (std::isnan(got) || std::isinf(rounded) || std::isinf(got)) {
    // Overflow may set in half a unit early or late.
    return std::isinf(rounded) && std::abs(got) > 3.4028e38f ? 1
           : std::isinf(got) && std::abs(want) > 3.4028e38   ? 1
                                                             : INFINITY;
  }
  int exponent;
  std::frexp(std::max(std::abs(want), least), &exponent);
  return std::abs(got - want) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

// Whether the result may be 0 (docs/operators.md): of sigmoid below 2^-126, on AVX2 of exp2 and normal_cdf, too; times
// x in silu and gelu.
inline bool may_be_zero(const std::string& f, ir::IsaLevel level, double want) {
  const bool times_x = f.find("{0} * normal_cdf") == 0;
  const bool on_avx2 = f.starts_with("exp2") || f == "normal_cdf" || times_x;
  return (f == "sigmoid" || (on_avx2 && level == ir::IsaLevel::avx2)) && std::abs(want) < (times_x ? 14 : 1) * 0x1p-126;
}

// Of a name, or of an expression in which {0} stands for the argument.
class Function {
 public:
  Function(const std::string& f, const ir::Target& target) {
    const char* const argument = "p0[16*i0 + i1]";
    const std::string value =
        f.find('{') == std::string::npos ? f + "(" + argument + ")" : fmt::format(fmt::runtime(f), argument);
    auto k = ir::parse_kernel(
        "kernel leaf(p0: f32[_] in strides [1], p1: f32[_] out strides [1]) family leaf where e0 "
        "in 0..9223372036854775807\n"
        "  for i0 < ceildiv(e0, 16):\n    for i1 < min(16, e0 - 16*i0) @vector:\n      p1[16*i0 + "
        "i1] = " +
        value + "\n");
    EXPECT_TRUE(k.ok()) << k.status().to_string();
    auto p = lower_leaf(*k, target);
    EXPECT_TRUE(p.ok()) << p.status().to_string();
    if (p.ok()) program_ = *p;
  }
  void run(std::vector<float>& x, std::vector<float>& y) const {
    y.resize(x.size());
    ir::LeafArgs a{};
    a.op[0].ptr = reinterpret_cast<char*>(x.data());
    a.op[1].ptr = reinterpret_cast<char*>(y.data());
    a.extent[0] = static_cast<int64_t>(x.size());
    execute_portable(program_, a);
  }
  const LeafProgram& program() const { return program_; }

 private:
  LeafProgram program_;
};

}  // namespace lathe::jit
