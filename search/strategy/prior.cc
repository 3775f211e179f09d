// See prior.h.
#include "search/strategy/prior.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "search/strategy/transfer.h"

namespace lathe::search {

namespace {

// log2 of time, but reaches, which are distances.
constexpr double kRankedSpread = 0.2, kAnalyticSpread = 0.3, kHotNoise = 0.02, kColdNoise = 0.08, kReach = 3;
// With rows of near tasks: what those share with the task at hand and what they do not, and how far they are heard.
constexpr double kSharedSpread = 0.2, kOwnSpread = 0.1, kNearReach = 6, kTaskReach = 3;
constexpr size_t kNearRows = 336, kNearTasks = 12;
constexpr double kRankerShare = 0.3;  // of the prior, the rest is the analytic estimate
constexpr double kDoubt = 1;          // sigmas that a guess has to be better by than the default

bool ranked(const SearchProblem& problem) { return problem.model != nullptr && problem.model->trusted(); }

double logged(double us) { return -std::log2(std::max(us, 1e-6)); }

// The rows of the nearest tasks that have any, each against its own analytic estimate. share: of that in the prior; the
// ranker, which has the rest, has seen them already.
void learn_near(const SearchProblem& problem, double share, Surrogate* beliefs) {
  const MachineRates rates = problem.rates != nullptr ? *problem.rates : MachineRates::assumed(*problem.target);
  std::vector<NearRecord> near;
  size_t rows = 0;
  for (NearRecord& n : near_records(*problem.history, *problem.problem)) {
    if (near.size() == kNearTasks || rows >= kNearRows) break;
    rows += n.rows.size();
    near.push_back(std::move(n));
  }
  const size_t count = near.size() + 1;
  std::vector<std::vector<double>> alike(count, std::vector<double>(count, 1));
  const auto trusted = [&](size_t i) { return i == 0 ? 1 : std::exp(-distrust(*near[i - 1].record) / kTaskReach); };
  const auto task = [&](size_t i) -> const Problem& { return i == 0 ? *problem.problem : near[i - 1].record->problem; };
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < i; ++j)
      alike[i][j] = alike[j][i] = trusted(i) * trusted(j) * std::exp(-task_distance(task(i), task(j)) / kTaskReach);
  }
  beliefs->set_tasks(std::move(alike));
  size_t learned = 0;
  for (size_t i = 0; i < near.size(); ++i) {
    const std::string& recipe = near[i].rows[0].row->recipe;
    const Featurizer featurizer(task(i + 1), *problem.target, rates, find_recipe(task(i + 1)));
    for (const RankedRow& r : near[i].rows) {
      if (r.row->recipe != recipe || learned++ >= kNearRows) continue;
      SpacePoint point;
      point.knobs = r.row->knobs;
      beliefs->learn(static_cast<int>(i) + 1, point, share * logged(featurizer.of(r.row->knobs).us),
                     std::pow(r.us, share));
    }
  }
}

}  // namespace

std::vector<double> prior_shares(const SearchProblem& problem, std::span<const int> points, bool ranker, bool near) {
  const bool heard = near && problem.history != nullptr && !problem.history->empty();
  const double share = !ranker || !ranked(problem) ? 0 : heard ? kRankerShare : 1;
  std::vector<double> out;
  for (const int p : points) {
    const SpacePoint& at = problem.space->at(p);
    out.push_back((1 - share) * logged(at.estimate_us) + (share > 0 ? share * problem.model->score(at.features) : 0));
  }
  return out;
}

Surrogate make_beliefs(const SearchProblem& problem, bool ranker, bool near) {
  const double noise = problem.problem->cold ? kColdNoise : kHotNoise;
  const bool with_ranker = ranker && ranked(problem);
  if (!near || problem.history == nullptr || problem.history->empty()) {
    return Surrogate({.spread = with_ranker ? kRankedSpread : kAnalyticSpread, .noise = noise, .reach = kReach});
  }
  Surrogate out({.spread = kSharedSpread, .noise = noise, .reach = kNearReach, .own = kOwnSpread});
  learn_near(problem, with_ranker ? 1 - kRankerShare : 1, &out);
  return out;
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

std::vector<double> cautious_shares(const SearchProblem& problem, std::span<const int> points) {
  Surrogate beliefs = make_beliefs(problem);
  const int standard[] = {problem.space->default_index()};
  // As if the default had been measured: whatever its time, the others are believed in relation to it.
  beliefs.observe(beliefs.add(problem.space->at(standard[0]), prior_shares(problem, standard)[0]), 1);
  const std::vector<double> prior = prior_shares(problem, points);
  std::vector<double> out;
  for (size_t i = 0; i < points.size(); ++i) {
    const Belief b = beliefs.of(beliefs.add(problem.space->at(points[i]), prior[i]));
    out.push_back(points[i] == standard[0] ? 0 : b.mean - kDoubt * b.sigma);
  }
  return out;
}

int best_guess(const SearchProblem& problem) {
  if (problem.history == nullptr || problem.history->empty()) return problem.space->default_index();
  std::vector<int> all(static_cast<size_t>(problem.space->size()));
  std::iota(all.begin(), all.end(), 0);
  const std::vector<double> shares = cautious_shares(problem, all);
  const auto best = std::max_element(shares.begin(), shares.end());
  return *best > 0 ? static_cast<int>(best - shares.begin()) : problem.space->default_index();
}

}  // namespace lathe::search
