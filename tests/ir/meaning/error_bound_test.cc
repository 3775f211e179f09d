// The interpreter's error-bound arithmetic: native results lie within the bound of the real ones,
// and the bound is not idle.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ir/core/text_form.h"
#include "ir/meaning/interpreter.h"

namespace lathe::ir {
namespace {

std::vector<double> run(const Kernel& k, std::map<std::string, Tensor> tensors, Arithmetic arithmetic) {
  InterpreterOptions options;
  options.arithmetic = arithmetic;
  const Status status = interpret(k, {}, tensors, options);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return tensors["y"].data;
}

TEST(ErrorBound, NativeLiesWithinAndABoundIsNearWhatHappens) {
  const char* const kernels[] = {
      "kernel f(x: f32[64, 32] in, z: f32[64, 32] in, y: f32[64, 32] out)\n  for i < 64:\n    for "
      "j < 32:\n"
      "      y[i, j] = 0.5 * x[i, j] * (1.0 + erf(z[i, j] * 0.70710677)) / (2.0 + abs(x[i, j]))\n",
      "kernel f(x: f32[64, 32] in, z: f32[64, 32] in, y: f32[64, 64] out)\n  for i < 64:\n    for "
      "j < 64:\n      y[i, j] = 0.0\n"
      "      for k < 32:\n        y[i, j] += x[i, k] * z[j, k]\n",
      "kernel f(x: f32[64, 32] in, z: f32[64, 32] in, y: f32[64] out)\n  for i < 64:\n    y[i] = "
      "-inf\n    for k < 32:\n"
      "      y[i] fmax= x[i, k] * z[i, k] - exp(z[i, k])\n",
  };
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::map<std::string, Tensor> tensors;
  for (const char* name : {"x", "z"}) {
    Tensor t{{64, 32}, {}};
    for (int i = 0; i < 64 * 32; ++i) t.data.push_back(normal(random));
    tensors[name] = t;
  }
  for (const char* text : kernels) {
    const Kernel k = std::move(parse_kernel(text)).value();
    const std::vector<double> real = run(k, tensors, Arithmetic::real), native = run(k, tensors, Arithmetic::native),
                              bound = run(k, tensors, Arithmetic::error_bound);
    double largest = 0;
    for (size_t i = 0; i < real.size(); ++i) {
      ASSERT_LE(std::abs(native[i] - real[i]), bound[i]) << text << i;
      largest = std::max(largest, std::abs(native[i] - real[i]) / bound[i]);
      ASSERT_LT(bound[i], 1e-4);
    }
    EXPECT_GT(largest, 0.02) << text;
  }
}

// 2^-126 is sigmoid(-87.3): below it a function may give 0, above it nothing changes.
TEST(ErrorBound, AFunctionBelowTheLeastNormalMayBeNothing) {
  const char* text =
      "kernel f(x: f32[2] in, z: f32[2] in, y: f32[2] out)\n  for i < 2:\n    y[i] = x[i] * sigmoid(z[i])\n";
  const Kernel k = std::move(parse_kernel(text)).value();
  const std::map<std::string, Tensor> tensors = {{"x", {{2}, {14, 14}}}, {"z", {{2}, {-88, -87}}}};
  const std::vector<double> real = run(k, tensors, Arithmetic::real), bound = run(k, tensors, Arithmetic::error_bound);
  EXPECT_GE(bound[0], real[0]);
  EXPECT_LE(bound[0], 1.001 * real[0]);
  EXPECT_LE(bound[1], 1e-4 * real[1]);
}

// Half of the least step, where rounding keeps no bits of a number, and nothing of what is 0.
TEST(ErrorBound, RoundingToANarrowTypeIsNoFinerThanItsLeastStep) {
  for (const auto& [type, least] : {std::pair{"f16", 0x1p-25}, {"bf16", 0x1p-134}}) {
    const std::string start = "kernel f(x: f32[4] in, y: f32[4] out)\n  for i < 4:\n    y[i] = f32(",
                      text = start + type + "(x[i]))\n";
    const Kernel k = std::move(parse_kernel(text)).value();
    const std::map<std::string, Tensor> tensors = {{"x", {{4}, {0, 1.4 * least, least / 3, 1.3}}}};
    const std::vector<double> real = run(k, tensors, Arithmetic::real), native = run(k, tensors, Arithmetic::native),
                              bound = run(k, tensors, Arithmetic::error_bound);
    for (size_t i = 0; i < real.size(); ++i) EXPECT_LE(std::abs(native[i] - real[i]), bound[i]) << type << i;
    EXPECT_EQ(bound[0], 0);
    EXPECT_EQ(bound[1], least);
    EXPECT_EQ(bound[2], least);
    EXPECT_LT(bound[3], 0.01);
  }
}

// Softmax as attention has it: the maximum starts from the least number, and what is masked is exactly minus infinity.
TEST(ErrorBound, AMaximumIsAsNearAsWhatItIsTakenFrom) {
  const char* text = R"(
kernel f(x: f32[4, 32] in, y: f32[4, 32] out)
  m: f32[4] heap
  s: f32[4, 32] heap
  for i < 4:
    m[i] = -3.4028235e+38
    for j < 32:
      s[i, j] = select(j < 20 + i, x[i, j] * 0.35, -inf)
      m[i] fmax= s[i, j]
    for n < 32:
      y[i, n] = exp2((s[i, n] - m[i]) * 1.442695)
)";
  const Kernel k = std::move(parse_kernel(text)).value();
  Tensor x{{4, 32}, {}};
  for (int i = 0; i < 4 * 32; ++i) x.data.push_back(static_cast<float>(std::sin(i)));
  const std::vector<double> bound = run(k, {{"x", x}}, Arithmetic::error_bound);
  for (size_t i = 0; i < bound.size(); ++i) {
    if (static_cast<int>(i % 32) < 20 + static_cast<int>(i / 32)) {
      EXPECT_GT(bound[i], 0) << i;
      EXPECT_LT(bound[i], 1e-5) << i;
    } else {
      EXPECT_EQ(bound[i], 0) << i;
    }
  }
}

TEST(ErrorBound, WhatDoesNotRoundHasNone) {
  const Kernel k =
      std::move(parse_kernel("kernel f(x: f32[4] in, y: f32[4] out)\n  for i < 4:\n    y[i] = max(-x[i], 0.0)\n"))
          .value();
  for (const double e : run(k, {{"x", {{4}, {1.5, -2.25, 3, 1e30}}}}, Arithmetic::error_bound)) EXPECT_EQ(e, 0);
}

}  // namespace
}  // namespace lathe::ir
