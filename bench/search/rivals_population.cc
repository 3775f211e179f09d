// Strategies that let a model choose among many: Ansor's evolution, beam search.
#include <algorithm>
#include <cmath>

#include "bench/search/rivals.h"

namespace lathe::bench {
using namespace search;  // NOLINT: strategies for its spaces

static constexpr size_t kResidualFrom = 8, kResidualRows = 64;
static constexpr int kCopies = 4;

void Opinion::start(const SearchProblem& problem) {
  model_ = problem.model;
  seed_ = problem.seed;
  residual_.clear();
}

void Opinion::adapt(Space& space, std::span<const std::pair<int, double>> measured) {
  double best = 0;
  for (const auto& [point, us] : measured) best = best == 0 || us < best ? us : best;
  std::vector<TrainRow> rows;
  for (const auto& [point, us] : measured) {
    const float share = static_cast<float>(best / us);
    rows.push_back({space.at(point).features, std::max(-5.6f, std::log2(share)), 0.2f + share});
  }
  train(rows);
}

void Opinion::train(std::span<const TrainRow> measured) {
  residual_.clear();
  if (measured.size() < kResidualFrom) return;
  const auto last = measured.last(std::min(measured.size(), kResidualRows));
  std::vector<TrainRow> rows(last.begin(), last.end());
  for (TrainRow& r : rows) r.label -= model_ != nullptr ? static_cast<float>(model_->score(r.x)) : 0;
  for (int copy = 0; copy < kCopies; ++copy) {
    TreeParams params;
    params.trees = 40;
    params.depth = 3;
    params.bins = 8;
    params.min_leaf = 3;
    params.columns = 0.4f;
    params.seed = seed_ * kCopies + static_cast<uint64_t>(copy) + 1;
    residual_.push_back(BoostedTrees::train(rows, params));
  }
}

double Opinion::score(Space& space, int point) const {
  const SpacePoint& p = space.at(point);
  if (!learned()) return -std::log2(std::max(p.estimate_us, 1e-6));
  double sum = 0;
  for (const BoostedTrees& copy : residual_) sum += copy.predict(p.features);
  const double base = model_ != nullptr ? model_->score(p.features) : 0;
  return residual_.empty() ? base : base + sum / static_cast<double>(residual_.size());
}

namespace {

class Modelled : public StrategyBase {
 protected:
  static constexpr int kAdaptEvery = 8;
  void refresh() {
    if (static_cast<int>(measured().size()) - adapted_ < kAdaptEvery) return;
    adapted_ = static_cast<int>(measured().size());
    std::vector<std::pair<int, double>> rows;
    for (const Measured& m : measured()) rows.emplace_back(m.point, m.us);
    opinion_.adapt(space(), rows);
  }
  void on_start() override {
    opinion_.start(problem());
    adapted_ = 0;
    queue_.clear();
  }
  std::optional<Proposal> from_queue(const char* stream) {
    while (!queue_.empty()) {
      const int p = queue_.front();
      queue_.erase(queue_.begin());
      if (!seen(p)) return Proposal{p, stream, 0, 0};
    }
    return std::nullopt;
  }
  // Distinct points, best first.
  void rank(std::vector<int>* points) {
    std::sort(points->begin(), points->end());
    points->erase(std::unique(points->begin(), points->end()), points->end());
    std::vector<std::pair<double, int>> scored;
    for (int p : *points) scored.emplace_back(-opinion_.score(space(), p), p);
    std::sort(scored.begin(), scored.end());
    for (size_t i = 0; i < scored.size(); ++i) (*points)[i] = scored[i].second;
  }
  Opinion opinion_;
  int adapted_ = 0;
  std::vector<int> queue_;
};

// Random until the model has learned from enough rows; then rounds: a population of random points and the measured best
// lives four generations of mutation and crossover of knobs, and the best by the model are measured, with a share of
// random ones.
class Evolutionary : public Modelled {
  static constexpr int kPopulation = 2048, kGenerations = 4, kRound = 16, kRandomUntil = 100;
  static constexpr double kMutation = 0.85, kEpsilon = 0.05;
  std::optional<Proposal> pick() override {
    refresh();
    const bool trusted = problem().model != nullptr && problem().model->trusted();
    if (!trusted && static_cast<int>(measured().size()) < kRandomUntil)
      return Proposal{random_unseen(), "random", 0, 0};
    if (unit() < kEpsilon) return Proposal{random_unseen(), "random", 0, 0};
    if (auto p = from_queue("evolution")) return p;
    evolve();
    if (auto p = from_queue("evolution")) return p;
    return Proposal{random_unseen(), "random", 0, 0};
  }
  void evolve() {
    const int size = std::min(kPopulation, 2 * space().size());
    std::vector<int> population;
    for (const Measured& m : best_few(size / 20 + 1)) population.push_back(m.point);
    while (static_cast<int>(population.size()) < size)
      population.push_back(static_cast<int>(below(static_cast<uint64_t>(space().size()))));
    std::vector<int> ever = population;
    for (int g = 0; g < kGenerations; ++g) {
      rank(&population);
      const std::vector<int> parents(
          population.begin(), population.begin() + static_cast<long>(std::max<size_t>(2, population.size() / 4)));
      population.clear();
      for (int n = 0; n < size / 4; ++n) {
        const int child = unit() < kMutation ? mutated(parents[below(parents.size())])
                                             : crossed(parents[below(parents.size())], parents[below(parents.size())]);
        if (child >= 0) population.push_back(child);
      }
      population.insert(population.end(), parents.begin(), parents.end());
      ever.insert(ever.end(), population.begin(), population.end());
    }
    rank(&ever);
    for (int p : ever) {
      if (static_cast<int>(queue_.size()) == kRound) break;
      if (!seen(p)) queue_.push_back(p);
    }
  }
  int mutated(int parent) {
    const std::vector<KnobDomain>& domains = space().domains();
    if (domains.empty()) return random_neighbour(space(), parent, below(1u << 30));
    Knobs k = space().at(parent).knobs;
    const KnobDomain& d = domains[below(domains.size())];
    k[d.name] = d.values[below(d.values.size())];
    return space().nearest(k);
  }
  int crossed(int a, int b) {
    Knobs k = space().at(a).knobs;
    for (const auto& [name, value] : space().at(b).knobs) {
      if (below(2) == 0) k[name] = value;
    }
    return space().domains().empty() ? a : space().nearest(k);
  }
};

// Five passes over a beam of 32 by the model alone, from the default; its survivors are measured, best first; then the
// beam goes on from the measured best.
class Beam : public Modelled {
  static constexpr int kWidth = 32, kPasses = 5;
  std::optional<Proposal> pick() override {
    refresh();
    if (auto p = from_queue("beam")) return p;
    std::vector<int> beam;
    for (const Measured& m : best_few(kWidth / 4)) beam.push_back(m.point);
    if (beam.empty()) beam.push_back(space().default_index());
    for (int pass = 0; pass < kPasses; ++pass) {
      std::vector<int> wider = beam;
      for (int p : beam) {
        const std::vector<int> around = space().neighbours(p);
        wider.insert(wider.end(), around.begin(), around.end());
      }
      rank(&wider);
      if (static_cast<int>(wider.size()) > kWidth) wider.resize(kWidth);
      beam = std::move(wider);
    }
    for (int p : beam) {
      if (!seen(p) && queue_.size() < 8) queue_.push_back(p);
    }
    if (auto p = from_queue("beam")) return p;
    // Its survivors are all known: the measured best's own surroundings, then anything.
    for (const Measured& m : best_few(kWidth)) {
      const int p = first_unseen(space().neighbours(m.point));
      if (p >= 0) return Proposal{p, "greedy", 0, 0};
    }
    return Proposal{random_unseen(), "random", 0, 0};
  }
};

}  // namespace

std::unique_ptr<Strategy> make_evolutionary() { return std::make_unique<Evolutionary>(); }
std::unique_ptr<Strategy> make_beam() { return std::make_unique<Beam>(); }

}  // namespace lathe::bench
