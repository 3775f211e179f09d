// The states of a candidate: every pair of states, allowed or refused; the judge of real calls; the CPU budget on an
// injected clock.
#include "runtime/live/promotion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "runtime/live/cpu_budget.h"
#include "runtime/live/trial_judge.h"

namespace lathe::runtime {
namespace {

using S = PromotionState;

S state_at(int i) { return static_cast<S>(i); }

const std::map<S, std::set<S>>& allowed(bool trials) {
  static const std::map<S, std::set<S>> kPlain = {{S::proposed, {S::verified, S::rejected, S::tie, S::quarantined}},
                                                  {S::verified, {S::faster, S::rejected, S::tie}},
                                                  {S::faster, {S::active, S::rejected}},
                                                  {S::shadow, {S::canary, S::rejected, S::quarantined}},
                                                  {S::canary, {S::active, S::rejected, S::tie, S::rolled_back}},
                                                  {S::active, {S::rolled_back}}};
  static const std::map<S, std::set<S>> kTrials = [] {
    std::map<S, std::set<S>> out = kPlain;
    out[S::faster] = {S::shadow, S::rejected};
    return out;
  }();
  return trials ? kTrials : kPlain;
}

// The shortest way to a state, by breadth.
std::vector<S> way_to(S to, bool trials) {
  std::vector<std::vector<S>> ways = {{S::proposed}};
  for (size_t i = 0; i < ways.size(); ++i) {
    if (ways[i].back() == to) return ways[i];
    for (int n = 0; n < kPromotionStates; ++n) {
      if (!may_follow(ways[i].back(), state_at(n), trials)) continue;
      ways.push_back(ways[i]);
      ways.back().push_back(state_at(n));
    }
  }
  return {};
}

TEST(Promotion, every_pair_of_states_is_allowed_or_refused) {
  for (const bool trials : {false, true}) {
    for (int f = 0; f < kPromotionStates; ++f) {
      const S from = state_at(f);
      const std::vector<S> way = way_to(from, trials);
      if (!trials && (from == S::shadow || from == S::canary)) {
        EXPECT_TRUE(way.empty());
        continue;
      }
      ASSERT_FALSE(way.empty()) << promotion_name(from);
      for (int t = 0; t < kPromotionStates; ++t) {
        const S to = state_at(t);
        Promotion p(trials, 10);
        for (size_t i = 1; i < way.size(); ++i) ASSERT_TRUE(p.advance(way[i], 20).ok());
        const auto row = allowed(trials).find(from);
        const bool wanted = row != allowed(trials).end() && row->second.count(to) != 0;
        const size_t steps = p.steps().size();
        const ir::Status status = p.advance(to, 30, "because");
        EXPECT_EQ(status.ok(), wanted) << promotion_name(from) << " -> " << promotion_name(to) << " trials " << trials;
        EXPECT_EQ(p.state(), wanted ? to : from);
        EXPECT_EQ(p.steps().size(), steps + (wanted ? 1 : 0));
        EXPECT_EQ(status.code(), wanted ? ir::Code::kOK : ir::Code::kSTATE);
      }
    }
  }
}

TEST(Promotion, a_final_state_has_no_followers_and_others_have) {
  for (const bool trials : {false, true}) {
    for (int f = 0; f < kPromotionStates; ++f) {
      bool any = false;
      for (int t = 0; t < kPromotionStates; ++t) any |= may_follow(state_at(f), state_at(t), trials);
      EXPECT_EQ(any, !promotion_final(state_at(f))) << promotion_name(state_at(f));
    }
  }
}

TEST(Promotion, time_never_runs_back) {
  Promotion p(false, 100);
  ASSERT_TRUE(p.advance(S::verified, 40, "oracle").ok());
  EXPECT_EQ(p.steps().back().entered_ns, 100);
  EXPECT_EQ(p.steps().back().reason, "oracle");
}

TEST(TrialJudge, a_candidate_twice_as_fast_wins_after_the_least_number_of_calls) {
  TrialJudge judge;
  for (int i = 0; i < 66; ++i) {
    judge.add(50, 100);
    EXPECT_EQ(judge.verdict(), TrialVerdict::undecided) << judge.calls();
  }
  judge.add(50, 100);
  EXPECT_EQ(judge.calls(), 201);
  EXPECT_EQ(judge.verdict(), TrialVerdict::better);
  EXPECT_EQ(judge.median(), 0.5);
}

TEST(TrialJudge, a_slow_one_loses_long_before) {
  TrialJudge judge;
  while (judge.verdict() == TrialVerdict::undecided && judge.pairs() < 100) judge.add(110, 100);
  EXPECT_EQ(judge.verdict(), TrialVerdict::worse);
  EXPECT_LE(judge.pairs(), 12);
}

TEST(TrialJudge, one_per_cent_slower_is_a_tie_and_three_per_cent_is_worse) {
  TrialJudge tie, worse;
  for (int i = 0; i < 250; ++i) {
    tie.add(101, 100);
    worse.add(103, 100);
  }
  EXPECT_EQ(tie.verdict(), TrialVerdict::tie);
  EXPECT_EQ(worse.verdict(), TrialVerdict::worse);
}

TEST(TrialJudge, noise_does_not_promote_the_same_kernel_under_two_names) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> noise(0, 0.05);
  int better = 0;
  for (int run = 0; run < 300; ++run) {
    TrialJudge judge;
    for (int i = 0; i < 200; ++i) judge.add(100 * noise(random), 100 * noise(random));
    better += judge.verdict() == TrialVerdict::better;
  }
  EXPECT_LE(better, 3);
}

TEST(TrialJudge, times_that_are_none_count_for_nothing) {
  TrialJudge judge;
  judge.add(0, 100);
  judge.add(100, -1);
  judge.add(NAN, 1);
  EXPECT_EQ(judge.pairs(), 0);
  EXPECT_EQ(judge.median(), 1);
}

constexpr int64_t kMs = 1'000'000;

TEST(CpuBudget, debt_is_paid_at_the_share) {
  CpuBudget budget(0.02, 0, 0);
  EXPECT_EQ(budget.wait_ns(0), 0);
  budget.charge(0, 10 * kMs);
  EXPECT_NEAR(static_cast<double>(budget.wait_ns(0)), 500e6, 10);
  EXPECT_NEAR(static_cast<double>(budget.wait_ns(400 * kMs)), 100e6, 10);
  EXPECT_EQ(budget.wait_ns(501 * kMs), 0);
}

TEST(CpuBudget, savings_are_limited) {
  CpuBudget budget(0.5, 5 * kMs, 0);
  EXPECT_EQ(budget.wait_ns(1000 * kMs), 0);
  budget.charge(1000 * kMs, 6 * kMs);
  EXPECT_NEAR(static_cast<double>(budget.wait_ns(1000 * kMs)), 2e6, 10);
}

TEST(CpuBudget, whoever_waits_keeps_to_the_share_over_any_long_time) {
  std::mt19937_64 random(3);
  CpuBudget budget(0.02, 20 * kMs, 0);
  int64_t now = 0, used = 0;
  for (int i = 0; i < 2000; ++i) {
    now += budget.wait_ns(now);
    const auto work = static_cast<int64_t>(random() % (30 * kMs));
    now += work;
    used += work;
    budget.charge(now, work);
  }
  EXPECT_EQ(budget.used_ns(), used);
  EXPECT_LE(static_cast<double>(used), 0.02 * static_cast<double>(now) + 50e6);
  EXPECT_GE(static_cast<double>(used), 0.019 * static_cast<double>(now));
}

TEST(CpuBudget, a_clock_that_goes_back_earns_nothing) {
  CpuBudget budget(0.5, 0, 100 * kMs);
  budget.charge(100 * kMs, 10 * kMs);
  EXPECT_GT(budget.wait_ns(50 * kMs), 0);
  EXPECT_GT(budget.wait_ns(60 * kMs), 0);
}

}  // namespace
}  // namespace lathe::runtime
