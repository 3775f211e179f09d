// See prior.h.
#include "search/prior.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "search/transfer.h"

namespace lathe::search {

namespace {
constexpr double kNearShare = 0.3;  // of near tasks in the prior, the rest is the ranker's
constexpr double kRankedSpread = 0.2, kAnalyticSpread = 0.3, kHotNoise = 0.02, kColdNoise = 0.08, kLikeReach = 3;  // log2 of time; distance
}

std::vector<double> prior_shares(const SearchProblem& problem, std::span<const int> points, bool ranker, bool near) {
  const bool ranked = ranker && problem.model != nullptr && problem.model->trusted();
  std::vector<double> out;
  for (const int p : points) {
    const SpacePoint& at = problem.space->at(p);
    out.push_back(ranked ? problem.model->score(at.features).score : -std::log2(std::max(at.estimate_us, 1e-6)));
  }
  if (!ranked || !near || problem.history == nullptr) return out;
  std::vector<Knobs> settings;
  for (const int p : points) settings.push_back(problem.space->at(p).knobs);
  const std::vector<double> expected = expected_shares(*problem.history, *problem.problem, settings);
  for (size_t i = 0; i < expected.size(); ++i) out[i] += kNearShare * (expected[i] - out[i]);
  return out;
}

SurrogateParams surrogate_params(const SearchProblem& problem, bool ranked) {
  return {ranked ? kRankedSpread : kAnalyticSpread, problem.problem->cold ? kColdNoise : kHotNoise, kLikeReach};
}

std::vector<double> believed(const SearchProblem& problem, std::span<const MeasuredPoint> measured) {
  Surrogate beliefs(surrogate_params(problem, problem.model != nullptr && problem.model->trusted()));
  std::vector<int> points;
  for (const MeasuredPoint& m : measured) points.push_back(m.point);
  const std::vector<double> prior = prior_shares(problem, points);
  for (size_t i = 0; i < measured.size(); ++i) beliefs.observe(beliefs.add(problem.space->at(points[i]), prior[i]), measured[i].us);
  std::vector<double> out;
  for (size_t i = 0; i < measured.size(); ++i) out.push_back(beliefs.of(static_cast<int>(i)).mean);
  return out;
}

int best_guess(const SearchProblem& problem) {
  const int standard = problem.space->default_index();
  if (problem.model == nullptr || !problem.model->trusted()) {
    if (problem.history == nullptr) return standard;
    const std::vector<Knobs> winner = nearest(*problem.history, *problem.problem, 1);
    const int point = winner.empty() ? -1 : problem.space->nearest(winner[0]);
    return point < 0 ? standard : point;
  }
  std::vector<int> all(static_cast<size_t>(problem.space->size()));
  std::iota(all.begin(), all.end(), 0);
  const std::vector<double> expected = prior_shares(problem, all);
  return static_cast<int>(std::max_element(expected.begin(), expected.end()) - expected.begin());
}

}  // namespace lathe::search
