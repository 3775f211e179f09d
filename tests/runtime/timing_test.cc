// The selection on an injected clock: the fastest for certain wins, noise and broken clocks do not.
#include "runtime/timing.h"

#include <gtest/gtest.h>

#include <random>

namespace lathe::runtime {
namespace {

// Candidates of stated speed on a clock of its own, with noise.
struct Bench {
  std::vector<double> us;
  std::mt19937_64 random{1};
  double now_us = 1e6;
  double spread = 0;  // of each call, relative, exponential
  double bursts = 0;  // probability of a call 4x as long
  std::function<double(double)> clock = [](double t) { return t; };

  TimingResult run(TimingOptions options = {}) {
    options.now_ns = [this] { return static_cast<int64_t>(clock(now_us) * 1e3); };
    std::vector<std::function<void()>> calls;
    for (const double t : us) {
      calls.emplace_back([this, t] {
        std::exponential_distribution<double> more(1);
        std::uniform_real_distribution<double> u(0, 1);
        now_us += t * (1 + spread * more(random)) * (u(random) < bursts ? 4 : 1);
      });
    }
    return time_candidates(calls, options);
  }
};

TEST(Timing, PicksTheFastest) {
  for (const bool cold : {false, true}) {
    Bench b{{100, 120, 90, 95, 300}};
    TimingOptions options;
    options.cold = cold;
    const TimingResult r = b.run(options);
    EXPECT_EQ(r.winner, 2);
    EXPECT_FALSE(r.tie);
    EXPECT_NEAR(r.rows[2].gain_lo, 10, 0.1);
    EXPECT_NEAR(r.default_us, 100, 0.1);
    EXPECT_NEAR(r.best_us, 90, 0.1);
    EXPECT_EQ(r.rows[4].rounds, 1) << "hopeless after one sample";
    EXPECT_FALSE(r.rows[4].finalist);
  }
}

TEST(Timing, LessThanOnePerCentIsATie) {
  Bench b{{100, 99.5, 100.5}};
  const TimingResult r = b.run();
  EXPECT_EQ(r.winner, 0);
  EXPECT_TRUE(r.tie);
  EXPECT_TRUE(r.rows[1].finalist);
}

TEST(Timing, EqualCandidatesTieUnderNoise) {
  int claimed = 0;
  for (int seed = 0; seed < 200; ++seed) {
    Bench b{{100, 100, 100, 100, 100}};
    b.random.seed(static_cast<uint64_t>(seed));
    b.spread = 0.15;
    b.bursts = 0.05;
    TimingOptions options;
    options.seed = static_cast<uint64_t>(seed);
    claimed += !b.run(options).tie;
  }
  EXPECT_LE(claimed, 6) << "of 200 with four equal rivals";
}

TEST(Timing, ASlowerOneNeverWinsUnderNoise) {
  for (int seed = 0; seed < 200; ++seed) {
    Bench b{{100, 103, 105, 103, 102, 104}};
    b.random.seed(static_cast<uint64_t>(seed));
    b.spread = 0.1;
    b.bursts = 0.05;
    EXPECT_EQ(b.run().winner, 0) << "seed " << seed;
  }
}

TEST(Timing, AClockThatStandsGoesBackOrJumpsPicksNothingSlower) {
  std::vector<std::function<double(double)>> clocks = {
      [](double) { return 5.0; },
      [](double t) { return -t; },
      [n = 0](double t) mutable { return ++n % 7 == 0 ? t - 1e5 : t; },
      [n = 0](double t) mutable { return ++n % 5 == 0 ? t + 1e5 * n : t; },
      [n = 0, at = 0.0, last = 1e6](double t) mutable {
        at += (t - last) * (++n % 4 == 0 ? 0.3 : 1);
        last = t;
        return at;
      },
  };
  for (size_t i = 0; i < clocks.size(); ++i) {
    Bench b{{100, 110, 130, 120}};
    b.clock = clocks[i];
    const TimingResult r = b.run();
    EXPECT_EQ(r.winner, 0) << "clock " << i;
    EXPECT_TRUE(r.tie) << "clock " << i;
  }
}

TEST(Timing, ShortCallsAreRepeatedInASample) {
  Bench b{{0.5, 0.4}};
  const TimingResult r = b.run();
  EXPECT_EQ(r.winner, 1);
  EXPECT_NEAR(r.best_us, 0.4, 0.01);
}

TEST(Timing, TheBudgetSkipsCandidates) {
  Bench b{std::vector<double>(50, 1000)};
  TimingOptions options;
  options.budget_ms = 60;
  const TimingResult r = b.run(options);
  EXPECT_EQ(r.rows[49].rounds, 0);
  EXPECT_GT(r.rows[1].rounds, 0);
  EXPECT_EQ(r.winner, 0);
  EXPECT_LT(b.now_us - 1e6, 120e3);
}

TEST(Timing, NoCandidatesAndOne) {
  EXPECT_TRUE(time_candidates({}, {}).rows.empty());
  Bench b{{100}};
  const TimingResult r = b.run();
  EXPECT_TRUE(r.tie);
  EXPECT_NEAR(r.default_us, 100, 0.1);
}

TEST(Timing, IntervalOfTheMedian) {
  EXPECT_EQ(median_interval({1, 2, 3, 4, 5, 6}), (std::pair<double, double>{1, 6}));
  // n = 9: P(X <= 1) = 10 / 512 < 2.5 %: second from either end.
  EXPECT_EQ(median_interval({9, 1, 2, 3, 4, 5, 6, 7, 8}), (std::pair<double, double>{2, 8}));
  EXPECT_EQ(median_of({3, 1, 2}), 2);
  EXPECT_EQ(median_of({4, 1, 2, 3}), 2.5);
}

}  // namespace
}  // namespace lathe::runtime
