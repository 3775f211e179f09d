// Every function of vector_math.def on a dense sample of all floats (every 97th bit pattern and all
// specials), at every level, against the C library in double precision; the largest error is
// printed and held to the table.
#include <bit>
#include <limits>

#include "tests/jit/lower/vector_function.h"

namespace lathe::jit {
namespace {

struct Row {
  const char* name;
  double ulp, bound, least;
};
constexpr Row kRows[] = {
#define LATHE_VECTOR_MATH(op, ulp, bound, least) {#op, ulp, bound, least},
#include "jit/lower/vector_math.def"
#undef LATHE_VECTOR_MATH
};

constexpr int64_t kBatch = 4096;

TEST(VectorMath, DenseSampleWithinBudget) {
  for (const ir::Target& target : {test_target(ir::IsaLevel::avx512), test_target(ir::IsaLevel::avx2)}) {
    std::vector<Function> functions;
    for (const Row& row : kRows) functions.emplace_back(row.name, target);
    std::vector<double> worst(std::size(kRows)), at(std::size(kRows));
    std::vector<float> x, y;
    // A coarser stride at the second level keeps the test to seconds.
    const uint64_t stride = target.level == ir::IsaLevel::avx2 ? 1009 : 997;
    for (uint64_t pattern = 0; pattern < (uint64_t{1} << 32);) {
      x.clear();
      for (; static_cast<int64_t>(x.size()) < kBatch && pattern < (uint64_t{1} << 32); pattern += stride) {
        x.push_back(std::bit_cast<float>(static_cast<uint32_t>(pattern)));
      }
      for (size_t f = 0; f < functions.size(); ++f) {
        functions[f].run(x, y);
        for (size_t i = 0; i < x.size(); ++i) {
          if (std::isfinite(x[i]) && std::abs(x[i]) > kRows[f].bound) continue;
          const double want = reference(kRows[f].name, x[i]);
          if (y[i] == 0 && may_be_zero(kRows[f].name, target.level, want)) continue;
          const double e = error_ulp(y[i], want, kRows[f].least);
          if (e > worst[f]) {
            worst[f] = e;
            at[f] = x[i];
          }
        }
      }
    }
    for (size_t f = 0; f < functions.size(); ++f) {
      EXPECT_LE(worst[f], kRows[f].ulp) << kRows[f].name << " at " << fmt::format("{}", at[f]) << " "
                                        << ir::isa_name(target.level);
      RecordProperty(fmt::format("{}_{}_ulp", kRows[f].name, ir::isa_name(target.level)),
                     fmt::format("{:.2f}", worst[f]));
      fmt::print("{:8} {:8} {:.2f} ulp at {}\n", ir::isa_name(target.level), kRows[f].name, worst[f], at[f]);
    }
  }
}

// Where the functions are used: every 97th pattern with magnitude in [2^-20, 128).
TEST(VectorMath, UsualArgumentsWithinBudget) {
  const ir::Target target = test_target(ir::IsaLevel::avx512);
  for (const char* name : {"exp", "exp2", "exp2_bf16", "tanh", "erf", "sigmoid", "normal_cdf", "log", "sin", "cos"}) {
    const Function f(name, target);
    double budget = 0, worst = 0, least = 0;
    for (const Row& row : kRows) {
      if (std::string(row.name) != name) continue;
      budget = row.ulp;
      least = row.least;
    }
    std::vector<float> x, y;
    for (uint32_t p = std::bit_cast<uint32_t>(0x1p-20f); p < std::bit_cast<uint32_t>(128.0f); p += 97) {
      x.push_back(std::bit_cast<float>(p));
      if (std::string(name) != "log") x.push_back(-x.back());
    }
    f.run(x, y);
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = reference(name, x[i]);
      if (std::string_view(name) == "sigmoid" && want < 0x1p-126 && y[i] == 0) continue;  // as the table says
      worst = std::max(worst, error_ulp(y[i], want, least));
    }
    EXPECT_LE(worst, budget) << name;
  }
}

// Functions that go through a power of 2 lose a little of themselves where they are small: no more than the budget
// says.
TEST(VectorMath, WhatIsSmallKeepsItsDigits) {
  struct Case {
    const char* name;
    double from, to, relative;
  };
  for (const Case c : {Case{"sigmoid", -11.5, 0, 1e-6},
                       {"sigmoid", 0, 20, 0x1p-22},
                       {"sigmoid", -87, -11.5, 8e-6},
                       {"normal_cdf", -7, -5, 2e-3},
                       {"normal_cdf", 0, 9, 3e-7}}) {
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

// The product is made without the function: as near as the function's own error leaves it, infinities as the definition
// has them.
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
      ASSERT_LE(std::abs(y[i] - x[i] * reference("normal_cdf", x[i])), kError * std::abs(x[i]))
          << x[i] << " " << ir::isa_name(target.level);
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
  for (const Case c : {Case{"exp", inf, inf},
                       {"exp", -inf, 0},
                       {"exp", 0, 1},
                       {"exp", -0.0f, 1},
                       {"exp", NAN, NAN},
                       {"exp", 89, inf},
                       {"exp", -1000, 0},
                       {"exp", 1000, inf},
                       {"log", 0, -inf},
                       {"log", -0.0f, -inf},
                       {"log", -1, NAN},
                       {"log", inf, inf},
                       {"log", NAN, NAN},
                       {"log", 1, 0},
                       {"log", -inf, NAN},
                       {"tanh", inf, 1},
                       {"tanh", -inf, -1},
                       {"tanh", NAN, NAN},
                       {"tanh", -0.0f, -0.0f},
                       {"tanh", 1e-30f, 1e-30f},
                       {"erf", inf, 1},
                       {"erf", -inf, -1},
                       {"erf", NAN, NAN},
                       {"erf", 0, 0},
                       {"sigmoid", inf, 1},
                       {"sigmoid", -inf, 0},
                       {"sigmoid", NAN, NAN},
                       {"sigmoid", 0, 0.5f},
                       {"normal_cdf", inf, 1},
                       {"normal_cdf", -inf, 0},
                       {"normal_cdf", NAN, NAN},
                       {"normal_cdf", -1e30f, 0},
                       {"normal_cdf", 1e30f, 1},
                       {"rsqrt", 0, inf},
                       {"rsqrt", 4, 0.5f},
                       {"sqrt", -1, NAN},
                       {"sin", inf, NAN},
                       {"cos", -inf, NAN},
                       {"sin", NAN, NAN},
                       {"sin", -0.0f, 0},
                       {"cos", 0, 1},
                       {"round", 2.5f, 2},
                       {"floor", -0.5f, -1}}) {
    for (const ir::Target& target : test_targets()) {
      std::vector<float> x(3, c.x), y;
      Function(c.f, target).run(x, y);
      const bool same =
          std::isnan(c.want) ? std::isnan(y[1]) : y[1] == c.want && std::signbit(y[1]) == std::signbit(c.want);
      EXPECT_TRUE(same) << c.f << "(" << c.x << ") = " << y[1] << " " << ir::isa_name(target.level);
    }
  }
}

}  // namespace
}  // namespace lathe::jit
