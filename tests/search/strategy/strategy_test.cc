// Every strategy on synthetic spaces: the contract of ask and tell, planted optima, and the ways in which published
// searches lost what they had measured.
#include "search/strategy/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "bench/search/strategies.h"
#include "ir/core/text_form.h"
#include "tests/common/machines.h"

namespace lathe::search {
namespace {

using bench::find_strategy;
using bench::StrategyInfo;
using ::testing::Ge;
using ::testing::Le;

Problem matmul_problem(int64_t m, int64_t n, int64_t k) {
  Problem p;
  p.kernel =
      ir::parse_kernel(
          fmt::format("kernel matmul(a: f32[{0}, {2}] in, b: f32[{2}, {1}] const, y: f32[{0}, {1}] out) family matmul\n"
                      "  c: f32[{0}, {1}] heap\n"
                      "  for m < {0} [m]:\n"
                      "    for n < {1} [n]:\n"
                      "      c[m, n] = 0.0\n"
                      "      for k < {2} [k]:\n"
                      "        c[m, n] += a[m, k] * b[k, n]\n"
                      "      y[m, n] = c[m, n]\n",
                      m, n, k))
          .value();
  return p;
}

// A grid of three knobs with one valley; the optimum is planted.
class Grid : public Space {
 public:
  Grid(int64_t a, int64_t b, int64_t c, bool estimates = true) : best_{{"a", a}, {"b", b}, {"c", c}} {
    domains_ = {{"a", {1, 2, 4, 8, 16, 32}}, {"b", {16, 32, 48, 64, 96, 128}}, {"c", {0, 512, 1024, 2048, 4096}}};
    for (int64_t x : domains_[0].values) {
      for (int64_t y : domains_[1].values) {
        for (int64_t z : domains_[2].values) {
          SpacePoint p;
          p.knobs = {{"a", x}, {"b", y}, {"c", z}};
          index_[p.knobs] = static_cast<int>(points_.size());
          p.features[0] = static_cast<float>(std::log2(us_of(p.knobs)));
          p.features[1] = static_cast<float>(std::log2(static_cast<double>(x)));
          p.features[2] = static_cast<float>(std::log2(static_cast<double>(y)));
          p.estimate_us = estimates ? 100 + static_cast<double>(x + y) : 1;
          points_.push_back(p);
        }
      }
    }
  }
  double us_of(const Knobs& k) const { return 100 * std::exp2(0.3 * knob_distance(k, best_)); }
  double us(int i) const { return us_of(at(i).knobs); }
  int best() const { return index_.at(best_); }

  int size() const override { return static_cast<int>(points_.size()); }
  const SpacePoint& at(int i) const override { return points_[static_cast<size_t>(i)]; }
  int default_index() const override { return 7; }
  int nearest(const Knobs& knobs) override {
    int pick = -1;
    for (int i = 0; i < size(); ++i) {
      if (pick < 0 || knob_distance(at(i).knobs, knobs) < knob_distance(at(pick).knobs, knobs)) pick = i;
    }
    return pick;
  }
  std::vector<int> neighbours(int i) override {
    std::vector<int> out;
    for (const KnobDomain& d : domains_) {
      Knobs k = at(i).knobs;
      const auto v = std::find(d.values.begin(), d.values.end(), k[d.name]);
      for (const long step : {1L, -1L}) {
        const long to = v - d.values.begin() + step;
        if (to < 0 || to >= static_cast<long>(d.values.size())) continue;
        k[d.name] = d.values[static_cast<size_t>(to)];
        out.push_back(index_.at(k));
      }
    }
    return out;
  }
  const std::vector<KnobDomain>& domains() const override { return domains_; }

 private:
  const Knobs best_;
  std::vector<SpacePoint> points_;
  std::map<Knobs, int> index_;
  std::vector<KnobDomain> domains_;
};

using Outcomes = std::function<Tell(int point)>;

struct Trace {
  std::vector<Proposal> proposals;
  double best = 1e30;
  int timed = 0;
};

Trace drive(const StrategyInfo& info, SearchProblem problem, const Outcomes& outcome, int batch = 1) {
  Trace t;
  const std::unique_ptr<Strategy> s = info.make();
  s->start(problem);
  std::vector<Proposal> out(static_cast<size_t>(batch));
  for (int n; (n = s->next(out)) > 0;) {
    for (int i = 0; i < n; ++i) {
      t.proposals.push_back(out[static_cast<size_t>(i)]);
      const Tell tell = outcome(out[static_cast<size_t>(i)].point);
      if (tell.kind == Outcome::timed) {
        ++t.timed;
        t.best = std::min(t.best, tell.us);
      }
      s->tell(tell);
    }
    if (t.proposals.size() > 5000) break;
  }
  return t;
}

class EveryStrategy : public ::testing::TestWithParam<const char*> {
 protected:
  EveryStrategy() : grid_(8, 48, 1024), problem_(matmul_problem(16, 512, 512)) {
    search_.problem = &problem_;
    search_.target = &target_;
    search_.space = &grid_;
    search_.stop_early = false;
  }
  const StrategyInfo& info() const { return *find_strategy(GetParam()); }
  Tell timed(int p) { return {p, Outcome::timed, grid_.us(p)}; }

  Grid grid_;
  Problem problem_;
  ir::Target target_ = test::this_machine().target;
  SearchProblem search_;
};

TEST_P(EveryStrategy, starts_with_the_default_and_proposes_nothing_twice) {
  for (const int batch : {1, 4}) {
    const Trace t = drive(info(), search_, [&](int p) { return timed(p); }, batch);
    ASSERT_FALSE(t.proposals.empty());
    EXPECT_EQ(t.proposals[0].point, grid_.default_index());
    std::set<int> seen;
    for (const Proposal& p : t.proposals) {
      EXPECT_TRUE(p.point >= 0 && p.point < grid_.size());
      EXPECT_TRUE(seen.insert(p.point).second) << p.point;
    }
  }
}

TEST_P(EveryStrategy, same_seed_and_outcomes_same_proposals) {
  search_.budget = 40;
  const auto points = [&](uint64_t seed) {
    search_.seed = seed;
    std::vector<int> out;
    for (const Proposal& p : drive(info(), search_, [&](int q) { return timed(q); }).proposals) out.push_back(p.point);
    return out;
  };
  EXPECT_EQ(points(5), points(5));
}

TEST_P(EveryStrategy, spends_what_it_may_and_no_more) {
  for (const int budget : {1, 2, 3, 16}) {
    search_.budget = budget;
    const Trace t = drive(info(), search_, [&](int p) { return timed(p); });
    if (std::string(GetParam()) == "exhaustive") {
      EXPECT_EQ(t.timed, grid_.size());
    } else if (std::string(GetParam()) == "heuristic") {
      EXPECT_EQ(t.timed, 1);
    } else {
      EXPECT_EQ(t.timed, budget);  // no quota rounds to nothing
    }
  }
}

TEST_P(EveryStrategy, failures_cost_no_measurement_and_never_block) {
  search_.budget = 12;
  const Outcome kinds[] = {Outcome::wrong, Outcome::crashed, Outcome::refused, Outcome::hung, Outcome::skipped};
  int n = 0;
  const Trace half = drive(info(), search_, [&](int p) { return ++n % 2 == 0 ? timed(p) : Tell{p, kinds[n % 5], 0}; });
  if (std::string(GetParam()) != "heuristic") {
    EXPECT_THAT(half.timed, Ge(12));
  }
  const Trace none = drive(info(), search_, [&](int p) { return Tell{p, Outcome::crashed, 0}; });
  EXPECT_EQ(none.timed, 0);
  EXPECT_THAT(none.proposals.size(), Le(static_cast<size_t>(grid_.size())));
}

TEST_P(EveryStrategy, reaches_every_point_in_the_end) {
  if (std::string(GetParam()) == "heuristic") GTEST_SKIP() << "one evaluation by definition";
  search_.budget = grid_.size();
  const Trace t = drive(info(), search_, [&](int p) { return timed(p); });
  EXPECT_EQ(static_cast<int>(t.proposals.size()), grid_.size()) << "a point was marked as visited and never measured";
  EXPECT_DOUBLE_EQ(t.best, grid_.us(grid_.best()));
}

std::vector<const char*> names() {
  std::vector<const char*> out;
  for (const StrategyInfo& s : bench::strategies()) out.push_back(s.name);
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, EveryStrategy, ::testing::ValuesIn(names()), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
});

class LatheStrategyTest : public EveryStrategy {};
INSTANTIATE_TEST_SUITE_P(Default, LatheStrategyTest, ::testing::Values("lathe"));

TEST_P(LatheStrategyTest, finds_a_planted_best_without_a_model) {
  search_.budget = 64;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    search_.seed = seed;
    EXPECT_DOUBLE_EQ(drive(info(), search_, [&](int p) { return timed(p); }).best, grid_.us(grid_.best())) << seed;
  }
}

TEST_P(LatheStrategyTest, every_stream_gets_a_slot) {
  std::set<std::string> streams;
  for (const Proposal& p : drive(info(), search_, [&](int q) { return timed(q); }).proposals) streams.insert(p.stream);
  for (const char* s : {"default", "analytic", "trees", "neighbour", "random"}) EXPECT_EQ(streams.count(s), 1u) << s;
}

TEST_P(LatheStrategyTest, an_incumbent_is_not_lost_behind_slower_ones) {
  search_.budget = 40;
  const int incumbent = grid_.default_index();
  const Trace t =
      drive(info(), search_, [&](int p) { return Tell{p, Outcome::timed, p == incumbent ? 1.0 : 100.0 + p}; });
  std::set<int> proposed;
  for (const Proposal& p : t.proposals) proposed.insert(p.point);
  for (int p : grid_.neighbours(incumbent))
    EXPECT_EQ(proposed.count(p), 1u) << "a neighbour of the best was never tried";
}

TEST_P(LatheStrategyTest, predictions_are_against_the_best_so_far_not_an_older_one) {
  search_.budget = 60;
  const std::unique_ptr<Strategy> s = info().make();
  s->start(search_);
  double best = 1e30;
  int opinions = 0;
  Proposal p;
  for (int n = 0; s->next({&p, 1}) == 1; ++n) {
    // All times fall to a quarter after 20: labels that were not recomputed would be off by 2.
    const double us = grid_.us(p.point) * (n < 20 ? 4 : 1);
    if (n >= 44 && std::string(p.stream) == "trees") {
      EXPECT_THAT(p.predicted, Le(1.0)) << n;
      ++opinions;
    }
    best = std::min(best, us);
    s->tell({p.point, Outcome::timed, us});
  }
  EXPECT_THAT(opinions, Ge(1));
}

// A ranker that knows this grid: the first feature is its time.
CostModel knowing(Grid& grid, int local_tasks) {
  std::vector<TrainRow> rows;
  for (int i = 0; i < grid.size(); ++i)
    rows.push_back({grid.at(i).features, label_of(grid.us(grid.best()), grid.us(i)), 1});
  return CostModel(BoostedTrees::train(rows, {}), {5, local_tasks, 300});
}

TEST_P(LatheStrategyTest, a_trusted_ranker_leads_and_another_machine_s_makes_a_shortlist) {
  search_.budget = 8;
  const CostModel own = knowing(grid_, 3), foreign = knowing(grid_, 0);
  search_.model = &own;
  const Trace led = drive(info(), search_, [&](int p) { return timed(p); });
  EXPECT_LT(grid_.us(led.proposals[1].point), 1.5 * grid_.us(grid_.best()));
  EXPECT_LT(led.best, 1.2 * grid_.us(grid_.best()));
  for (size_t i = 1; i < led.proposals.size(); ++i) {
    if (std::string(led.proposals[i].stream) != "trees") continue;
    EXPECT_GT(led.proposals[i].sigma, 0) << "an opinion says how sure it is";
  }
  // The estimate of this grid likes small a and b: it decides within the few that the ranker names.
  search_.model = &foreign;
  const Trace hinted = drive(info(), search_, [&](int p) { return timed(p); });
  EXPECT_LE(grid_.at(hinted.proposals[1].point).estimate_us, grid_.at(led.proposals[1].point).estimate_us);
  EXPECT_LT(grid_.us(hinted.proposals[1].point), 3 * grid_.us(grid_.best()));
}

TEST_P(LatheStrategyTest, a_batch_is_spread_over_different_candidates) {
  search_.budget = 16;
  const CostModel own = knowing(grid_, 3);
  search_.model = &own;
  const Trace t = drive(info(), search_, [&](int p) { return timed(p); }, 4);
  EXPECT_LT(t.best, 1.2 * grid_.us(grid_.best()));
  EXPECT_EQ(t.timed, 16);
}

TEST_P(LatheStrategyTest, stops_early_only_where_more_is_not_worth_it) {
  search_.stop_early = true;
  search_.budget = 64;
  search_.limit_us = 99;  // the planted best is within 3 % of it
  const CostModel own = knowing(grid_, 3);
  search_.model = &own;
  EXPECT_THAT(drive(info(), search_, [&](int p) { return timed(p); }).timed, Le(16));
  search_.model = nullptr;
  search_.limit_us = 0;
  const Trace flat = drive(info(), search_, [&](int p) { return Tell{p, Outcome::timed, 100.0}; });
  EXPECT_THAT(flat.timed, Ge(8));
}

}  // namespace
}  // namespace lathe::search
