// Every function of vector_math.def on a dense sample of all floats (every 97th bit pattern and all
// specials), at every level, against the C library in double precision; the largest error is
// printed and held to the table.
#include <bit>

#include "tests/jit/leaf_case.h"

namespace lathe::jit {
namespace {

struct Row {
  const char* name;
  double ulp, bound, least;
};
constexpr Row kRows[] = {
#define LATHE_VECTOR_MATH(op, ulp, bound, least) {#op, ulp, bound, least},
#include "jit/vector_math.def"
#undef LATHE_VECTOR_MATH
};

double reference(const std::string& f, double x) {
  if (f == "exp") return std::exp(x);
  if (f == "exp2") return std::exp2(x);
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

// Units in the last place of `want` rounded to float, or of `least` if that is larger; below 2^-126
// the unit is that of 2^-126 and zero is right.
double error_ulp(float got, double want, double least = 0) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  const float rounded = static_cast<float>(want);
  if (got == rounded) return 0;
  if (std::abs(want) < 0x1p-126 && got == 0) return 0;
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

constexpr int64_t kBatch = 4096;

// Of a name, or of an expression in which {0} stands for the argument.
class Function {
 public:
  Function(const std::string& f, const ir::Target& target) {
    const char* const argument = "p0[16*i0 + i1]";
    const std::string value = f.find('{') == std::string::npos ? f + "(" + argument + ")" : fmt::format(fmt::runtime(f), argument);
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

 private:
  LeafProgram program_;
};

TEST(VectorMath, DenseSampleWithinBudget) {
  for (const ir::Target& target :
       {test_target(ir::IsaLevel::avx512), test_target(ir::IsaLevel::avx2)}) {
    std::vector<Function> functions;
    for (const Row& row : kRows) functions.emplace_back(row.name, target);
    std::vector<double> worst(std::size(kRows)), at(std::size(kRows));
    std::vector<float> x, y;
    // A coarser stride at the second level keeps the test to seconds.
    const uint64_t stride = target.level == ir::IsaLevel::avx2 ? 1009 : 997;
    for (uint64_t pattern = 0; pattern < (uint64_t{1} << 32);) {
      x.clear();
      for (; static_cast<int64_t>(x.size()) < kBatch && pattern < (uint64_t{1} << 32);
           pattern += stride) {
        x.push_back(std::bit_cast<float>(static_cast<uint32_t>(pattern)));
      }
      for (size_t f = 0; f < functions.size(); ++f) {
        functions[f].run(x, y);
        for (size_t i = 0; i < x.size(); ++i) {
          if (std::isfinite(x[i]) && std::abs(x[i]) > kRows[f].bound) continue;
          const double e = error_ulp(y[i], reference(kRows[f].name, x[i]), kRows[f].least);
          if (e > worst[f]) {
            worst[f] = e;
            at[f] = x[i];
          }
        }
      }
    }
    for (size_t f = 0; f < functions.size(); ++f) {
      EXPECT_LE(worst[f], kRows[f].ulp) << kRows[f].name << " at " << fmt::format("{}", at[f])
                                        << " " << ir::isa_name(target.level);
      RecordProperty(fmt::format("{}_{}_ulp", kRows[f].name, ir::isa_name(target.level)),
                     fmt::format("{:.2f}", worst[f]));
      fmt::print("{:8} {:8} {:.2f} ulp at {}\n", ir::isa_name(target.level), kRows[f].name,
                 worst[f], at[f]);
    }
  }
}

// Where the functions are used: every 97th pattern with magnitude in [2^-20, 128).
TEST(VectorMath, UsualArgumentsWithinBudget) {
  const ir::Target target = test_target(ir::IsaLevel::avx512);
  for (const char* name : {"exp", "exp2", "tanh", "erf", "sigmoid", "normal_cdf", "log", "sin", "cos"}) {
    const Function f(name, target);
    double budget = 0, worst = 0, least = 0;
    for (const Row& row : kRows) {
      if (std::string(row.name) != name) continue;
      budget = row.ulp;
      least = row.least;
    }
    std::vector<float> x, y;
    for (uint32_t p = std::bit_cast<uint32_t>(0x1p-20f); p < std::bit_cast<uint32_t>(128.0f);
         p += 97) {
      x.push_back(std::bit_cast<float>(p));
      if (std::string(name) != "log") x.push_back(-x.back());
    }
    f.run(x, y);
    for (size_t i = 0; i < x.size(); ++i)
      worst = std::max(worst, error_ulp(y[i], reference(name, x[i]), least));
    EXPECT_LE(worst, budget) << name;
  }
}

// Functions that go through a power of 2 lose a little of themselves where they are small: no more than the budget says.
TEST(VectorMath, WhatIsSmallKeepsItsDigits) {
  struct Case {
    const char* name;
    double from, to, relative;
  };
  for (const Case c : {Case{"sigmoid", -11.5, 0, 1e-6}, {"sigmoid", 0, 20, 0x1p-22}, {"sigmoid", -87, -11.5, 8e-6},
                       {"normal_cdf", -7, -5, 2e-3}, {"normal_cdf", 0, 9, 3e-7}}) {
    std::vector<float> x, y;
    for (double v = c.from; v < c.to; v += 1e-4) x.push_back(static_cast<float>(v));
    for (const ir::Target& target : test_targets()) {
      Function(c.name, target).run(x, y);
      double worst = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double want = reference(c.name, x[i]);
        worst = std::max(worst, std::abs(y[i] - want) / want);
      }
      EXPECT_LE(worst, c.relative) << c.name << " from " << c.from << " " << ir::isa_name(target.level);
    }
  }
}

// The product is made without the function: as near as the function's own error leaves it, infinities as the definition has them.
TEST(VectorMath, TimesItsOwnNormalCdf) {
  constexpr double kError = 3 * 0x1p-24 + 0x1p-24;  // the function's budget, and the product's rounding
  for (const ir::Target& target : test_targets()) {
    const Function product("{0} * normal_cdf({0})", target);
    std::vector<float> x, y;
    for (double v = -16; v < 16; v += 1e-4) x.push_back(static_cast<float>(v));
    for (const float v : {0.0f, -0.0f, 1e-30f, -1e-30f, 6.4999995f, 6.5f, 1e30f, -1e30f, 3e38f, -3e38f}) x.push_back(v);
    const size_t finite = x.size();
    constexpr float kInf = std::numeric_limits<float>::infinity();
    for (const float v : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()}) x.push_back(v);
    product.run(x, y);
    for (size_t i = 0; i < finite; ++i) {
      ASSERT_LE(std::abs(y[i] - x[i] * reference("normal_cdf", x[i])), kError * std::abs(x[i])) << x[i] << " " << ir::isa_name(target.level);
    }
    EXPECT_EQ(y[finite], kInf);
    EXPECT_TRUE(std::isnan(y[finite + 1])) << "minus infinity times 0";
    EXPECT_TRUE(std::isnan(y[finite + 2]));
  }
}

TEST(VectorMath, Specials) {
  struct Case {
    const char* f;
    float x, want;
  };
  const float inf = INFINITY;
  for (const Case c : {Case{"exp", inf, inf},  {"exp", -inf, 0},
                       {"exp", 0, 1},          {"exp", -0.0f, 1},
                       {"exp", NAN, NAN},      {"exp", 89, inf},
                       {"exp", -1000, 0},      {"exp", 1000, inf},
                       {"log", 0, -inf},       {"log", -0.0f, -inf},
                       {"log", -1, NAN},       {"log", inf, inf},
                       {"log", NAN, NAN},      {"log", 1, 0},
                       {"log", -inf, NAN},     {"tanh", inf, 1},
                       {"tanh", -inf, -1},     {"tanh", NAN, NAN},
                       {"tanh", -0.0f, -0.0f}, {"tanh", 1e-30f, 1e-30f},
                       {"erf", inf, 1},        {"erf", -inf, -1},
                       {"erf", NAN, NAN},      {"erf", 0, 0},
                       {"sigmoid", inf, 1},    {"sigmoid", -inf, 0},
                       {"sigmoid", NAN, NAN},  {"sigmoid", 0, 0.5f},
                       {"normal_cdf", inf, 1}, {"normal_cdf", -inf, 0},
                       {"normal_cdf", NAN, NAN},
                       {"normal_cdf", -1e30f, 0}, {"normal_cdf", 1e30f, 1},
                       {"rsqrt", 0, inf},      {"rsqrt", 4, 0.5f},
                       {"sqrt", -1, NAN},      {"sin", inf, NAN},
                       {"cos", -inf, NAN},     {"sin", NAN, NAN},
                       {"sin", -0.0f, -0.0f},  {"cos", 0, 1},
                       {"round", 2.5f, 2},     {"floor", -0.5f, -1}}) {
    for (const ir::Target& target : test_targets()) {
      std::vector<float> x(3, c.x), y;
      Function(c.f, target).run(x, y);
      const bool same = std::isnan(c.want) ? std::isnan(y[1]) : y[1] == c.want;
      EXPECT_TRUE(same) << c.f << "(" << c.x << ") = " << y[1] << " " << ir::isa_name(target.level);
    }
  }
}

}  // namespace
}  // namespace lathe::jit
