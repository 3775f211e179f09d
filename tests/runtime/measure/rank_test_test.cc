// The rank test is exact: its figure is the share of orders that a count of all of them gives, and it holds its level
// whatever the noise.
#include "runtime/measure/rank_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace lathe::runtime {
namespace {

// c and r: times of candidate and other, by stage.
std::vector<Reading> readings(std::initializer_list<std::vector<std::pair<char, double>>> stages) {
  std::vector<Reading> out;
  int stage = 0;
  for (const auto& s : stages) {
    for (const auto& [who, us] : s) out.push_back({us, who == 'c', stage});
    ++stage;
  }
  return out;
}

TEST(RankTest, WithoutOverlapOneOrderOfAll) {
  EXPECT_NEAR(rank_test(readings({{{'c', 90}, {'r', 100}, {'c', 91}, {'r', 101}, {'r', 102}, {'c', 92}}}), 1), 1.0 / 20,
              1e-12);
  EXPECT_NEAR(rank_test(readings({{{'r', 90}, {'c', 100}, {'r', 91}, {'c', 101}}}), 1), 1, 1e-12) << "the worst order";
  EXPECT_NEAR(rank_test(readings({{{'c', 90}, {'r', 100}}, {{'r', 101}, {'c', 91}}}), 1), 1.0 / 4, 1e-12)
      << "drawn anew in each stage";
  EXPECT_NEAR(rank_test(readings({{{'c', 99.8}, {'r', 100}, {'c', 99.8}, {'r', 100}}}), 1.005), 1, 1e-12)
      << "not by the margin";
  EXPECT_EQ(rank_test({}, 1), 1);
  EXPECT_NEAR(rank_test(readings({{{'c', 90}, {'c', 80}}}), 1), 1, 1e-12);
  EXPECT_NEAR(rank_test(readings({{{'c', 5}, {'r', 5}, {'c', 5}, {'r', 5}}}), 1), 1, 1e-12) << "a clock that stands";
}

// All labels that the stages could have had: the n-th best has a share of n over their number.
TEST(RankTest, IsTheShareOfAllOrders) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<Reading> given;
    for (int i = 0; i < 10; ++i) given.push_back({100.0 + static_cast<double>(random() % 40), false, i / 6});
    std::vector<std::vector<Reading>> all;
    for (unsigned labels = 0; labels < 1024; ++labels) {
      if (__builtin_popcount(labels & 63) != 3 || __builtin_popcount(labels >> 6) != 2) continue;
      for (size_t i = 0; i < 10; ++i) given[i].candidate = labels >> i & 1;
      all.push_back(given);
    }
    std::vector<double> shares;
    for (const std::vector<Reading>& one : all) shares.push_back(rank_test(one, 1));
    std::sort(shares.begin(), shares.end());
    // Ties together.
    for (size_t n = 0; n < shares.size(); ++n) {
      const auto last = std::upper_bound(shares.begin(), shares.end(), shares[n]) - shares.begin();
      EXPECT_NEAR(shares[n], static_cast<double>(last) / static_cast<double>(shares.size()), 1e-9);
    }
  }
}

// Noise that a test on pairs would take for a gain: every other sample is slow, or the machine slows down as it goes.
TEST(RankTest, HoldsItsLevelUnderAnyNoise) {
  const std::vector<std::function<double(int)>> machines = {[](int t) { return t % 2 ? 100.0 + t : 150.0 + t; },
                                                            [](int t) { return 100.0 * (1 + t); },
                                                            [](int t) { return t % 5 == 0 ? 40.0 : 100.0 + t; }};
  for (size_t m = 0; m < machines.size(); ++m) {
    std::mt19937 random(5);
    int claimed = 0;
    for (int run = 0; run < 2000; ++run) {
      std::vector<Reading> all(12);
      for (size_t i = 0; i < all.size(); ++i) all[i].candidate = i < 6;
      std::shuffle(all.begin(), all.end(), random);
      for (size_t i = 0; i < all.size(); ++i) all[i].us = machines[m](static_cast<int>(i));
      claimed += rank_test(all, 1) <= 0.05;
    }
    EXPECT_LE(claimed, 125) << "machine " << m << ": 5 % of 2000, and three deviations";
  }
}

TEST(RankTest, ABurstCostsLittle) {
  // A third of the readings of both are disturbed; the others are 10 % apart.
  std::vector<Reading> all;
  for (int i = 0; i < 14; ++i) {
    const bool mine = i % 3 == 0, theirs = i % 3 == 1;
    all.push_back({90.0 + i * 0.1 + (mine ? 60 : 0), true, 0});
    all.push_back({100.0 + i * 0.1 + (theirs ? 60 : 0), false, 0});
  }
  EXPECT_LT(rank_test(all, 1.01), 0.01);
}

}  // namespace
}  // namespace lathe::runtime
