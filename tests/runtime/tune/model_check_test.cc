// The check of the whole workload, on a simulated machine.
#include "runtime/tune/model_check.h"

#include <gtest/gtest.h>

#include <random>

namespace lathe::runtime {
namespace {

// A machine that takes what it is told, with 1 % of noise; `slow` operators make the ones after them slower (power,
// caches).
struct Machine {
  std::mt19937 random{7};
  double factor = 1;  // of everything that follows in this pass
  double noise() { return 1 + 0.01 * std::uniform_real_distribution<double>(-1, 1)(random); }
};

ModelCall call(Machine& m, double by_default, double tuned, double side_effect = 1, double weight = 1) {
  ModelCall c;
  c.weight = weight;
  c.by_default = [&m, by_default] { return by_default * m.factor * m.noise(); };
  c.tuned = [&m, tuned, side_effect] {
    const double us = tuned * m.factor * m.noise();
    m.factor *= side_effect;
    return us;
  };
  return c;
}

// Resets the machine at the head of each pass.
ModelCall head(Machine& m) {
  ModelCall c;
  c.tuned_differs = false;
  c.by_default = [&m] { return m.factor = 1; };
  c.tuned = c.by_default;
  return c;
}

TEST(ModelCheck, WinsThatAddUpAreKept) {
  Machine m;
  const ModelCheck r = check_model({head(m), call(m, 100, 80), call(m, 200, 150), call(m, 50, 49)});
  EXPECT_TRUE(r.valid);
  EXPECT_TRUE(r.dropped.empty());
  EXPECT_NEAR(r.gain, 1 - 280.0 / 351, 0.02);
  EXPECT_EQ(r.comparisons, 1);
}

TEST(ModelCheck, AnOperatorWinThatSlowsTheRestIsDropped) {
  Machine m;
  // Call 2 is 10 % faster alone and makes what follows 30 % slower.
  const ModelCheck r =
      check_model({head(m), call(m, 100, 95), call(m, 100, 90, 1.3), call(m, 400, 380), call(m, 100, 99)});
  EXPECT_EQ(r.dropped, std::vector<int>{2});
  EXPECT_GT(r.gain, 0.02);
}

TEST(ModelCheck, ALoserCountsByItsWeight) {
  Machine m;
  const ModelCheck r = check_model({head(m), call(m, 10, 12, 1, 50), call(m, 100, 70, 1, 1)});
  EXPECT_EQ(r.dropped, std::vector<int>{1});
}

TEST(ModelCheck, NothingTunedIsNothingDropped) {
  Machine m;
  ModelCall same = call(m, 100, 100);
  same.tuned_differs = false;
  const ModelCheck r = check_model({head(m), same});
  EXPECT_TRUE(r.valid);
  EXPECT_TRUE(r.dropped.empty());
  EXPECT_EQ(r.comparisons, 0);
  EXPECT_TRUE(check_model({}).valid);
}

TEST(ModelCheck, AMachineThatDriftsIsSaidSo) {
  Machine m;
  double clock = 100;
  ModelCall c;
  c.by_default = [&] { return clock *= 1.01; };
  c.tuned = [&] { return 0.9 * (clock *= 1.01); };
  const ModelCheck r = check_model({c});
  EXPECT_FALSE(r.valid);
  EXPECT_TRUE(r.dropped.empty());
}

}  // namespace
}  // namespace lathe::runtime
