// See prior.h.
#include "search/strategy/prior.h"

#include <algorithm>
#include <cmath>

namespace lathe::search {

namespace {

constexpr double kSpread = 0.3, kHotNoise = 0.02, kColdNoise = 0.08;  // log2 of time
constexpr double kReach = 3;                                          // knob distance
constexpr double kRankerShare = 0.3;                                  // of the prior, the rest is the analytic estimate

double logged(double us) { return -std::log2(std::max(us, 1e-6)); }

}  // namespace

std::vector<double> prior_shares(const SearchProblem& problem, std::span<const int> points) {
  const double share = problem.model != nullptr && problem.model->trusted() ? kRankerShare : 0;
  std::vector<double> out;
  for (const int p : points) {
    const SpacePoint& at = problem.space->at(p);
    out.push_back((1 - share) * logged(at.estimate_us) + (share > 0 ? share * problem.model->score(at.features) : 0));
  }
  return out;
}

Surrogate make_beliefs(const SearchProblem& problem) {
  return Surrogate({.spread = kSpread, .noise = problem.problem->cold ? kColdNoise : kHotNoise, .reach = kReach});
}

std::vector<double> believed(const SearchProblem& problem, std::span<const MeasuredPoint> measured) {
  Surrogate beliefs = make_beliefs(problem);
  std::vector<int> points;
  for (const MeasuredPoint& m : measured) points.push_back(m.point);
  const std::vector<double> prior = prior_shares(problem, points);
  std::vector<int> candidates;
  for (size_t i = 0; i < measured.size(); ++i) {
    candidates.push_back(beliefs.add(problem.space->at(points[i]), prior[i]));
    beliefs.observe(candidates.back(), measured[i].us);
  }
  std::vector<double> out;
  for (const int c : candidates) out.push_back(beliefs.of(c).mean);
  return out;
}

}  // namespace lathe::search
