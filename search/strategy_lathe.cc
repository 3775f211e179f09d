// The default strategy: cheap knowledge first, then models, then the neighbourhood; see docs/search.md.
//
//   slot 0      the default
//   slots 1-2   portfolio: what covers the records of the family, near ones weighing more
//   slots 3-4   winners of the nearest tasks
//   slots 5-7   ranker, spread by knob distance
//   from 8 on   neighbours of the best two, ranker, in turns
//   every 5th   uniform over the space
//
// A stream with nothing to say gives its slot to the next one.
#include "search/strategy_lathe.h"

#include <algorithm>
#include <cmath>

#include "search/transfer.h"

namespace lathe::search {

namespace {

constexpr int kPortfolioSlots = 2, kNearestSlots = 2, kTreeSlots = 3, kExploreEvery = 5;
constexpr double kReach = 2;      // of a portfolio, in task distance
constexpr int kPool = 512;        // points the ranker looks at
constexpr int kRescoreEvery = 3;  // measurements between two rankings
constexpr double kDiversity = 0.5, kHammingScale = 4;
constexpr double kSettled = 0.01, kNotWorth = 0.005, kNearLimit = 0.97;
constexpr int kSettledSlots = 8;

int hamming(const SpacePoint& a, const SpacePoint& b) {
  int d = a.extra.size() == b.extra.size() ? 0 : 1;
  for (const auto& [name, value] : a.knobs) {
    const auto it = b.knobs.find(name);
    d += it == b.knobs.end() || it->second != value;
  }
  return d;
}

class LatheStrategy : public StrategyBase {
 public:
  explicit LatheStrategy(unsigned streams) : streams_(streams) {}

 private:
  struct Scored {
    int point;
    double score, sigma;
  };

  void on_start() override {
    coverage_.reset();
    nearest_.clear();
    scored_.clear();
    pool_.clear();
    scored_at_ = -1;
    last_gain_ = 0;
    turn_ = 0;
    model_ = problem().model != nullptr ? *problem().model : CostModel();
    const std::vector<TaskRecord>* history = problem().history;
    if (history != nullptr && !history->empty()) {
      if (streams_ & kPortfolio) {
        coverage_.emplace(*history, problem().problem, kReach);
        coverage_->have(space().at(space().default_index()).knobs);
      }
      if (streams_ & kNearest) map(search::nearest(*history, *problem().problem, 8), &nearest_);
    }
  }

  void map(const std::vector<Knobs>& settings, std::vector<int>* points) {
    for (const Knobs& k : settings) {
      const int p = space().nearest(k);
      if (p >= 0 && std::find(points->begin(), points->end(), p) == points->end()) points->push_back(p);
    }
  }

  void on_tell(const Tell& outcome) override {
    if (outcome.kind != OutcomeKind::timed) return;
    if (coverage_) coverage_->observe(space().at(outcome.point).knobs, outcome.us);
    if (measured().size() == 1 || outcome.us < (1 - kSettled) * settled_us_) {
      settled_us_ = outcome.us;
      last_gain_ = static_cast<int>(measured().size());
    }
  }

  std::optional<Proposal> pick() override {
    if (problem().stop_early && done()) return std::nullopt;
    const int slot = proposed();
    if ((streams_ & kExploration) && slot % kExploreEvery == kExploreEvery - 1) {
      if (auto p = explore()) return p;
    }
    // The streams in the order of the slots; one that is spent passes its slot on.
    const int spoken = slot - slot / kExploreEvery;  // slots that were not exploration
    if (spoken <= kPortfolioSlots) {
      if (auto p = covering()) return p;
    }
    if (spoken <= kPortfolioSlots + kNearestSlots) {
      if (auto p = from_nearest()) return p;
    }
    const bool ranked_slot = spoken <= kPortfolioSlots + kNearestSlots + kTreeSlots || turn_++ % 2 == 1;
    for (const bool rank : {ranked_slot, !ranked_slot}) {
      auto p = rank ? ranked() : neighbour();
      if (p) return p;
    }
    if (auto p = covering()) return p;
    if (auto p = from_nearest()) return p;
    return explore();
  }

  bool done() {
    const Measured* b = best();
    if (b == nullptr) return false;
    if (problem().limit_us > 0 && b->us * kNearLimit <= problem().limit_us) return true;
    if (static_cast<int>(measured().size()) < kSettledSlots) return false;
    if (static_cast<int>(measured().size()) - last_gain_ >= kSettledSlots && waiting() == 0 && neighbour_of_best() < 0) return true;
    if (!model_.trusted()) return false;
    rescore();
    double expected = 0;  // E[max(0, score)] under a normal: the best of what is left over the best so far
    for (const Scored& s : scored_) {
      if (seen(s.point)) continue;
      const double sigma = std::max(s.sigma, 1e-3), z = s.score / sigma;
      const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * 3.14159265358979323846);
      const double tail = 0.5 * std::erfc(-z / std::sqrt(2.0));
      expected = std::max(expected, s.score * tail + sigma * density);
    }
    return expected < std::log2(1 + kNotWorth);
  }

  std::optional<Proposal> covering() {
    while (coverage_) {
      const std::optional<Knobs> k = coverage_->next();
      if (!k) break;
      const int p = space().nearest(*k);
      if (p >= 0 && !seen(p)) return Proposal{p, "portfolio", 0, 0};
    }
    return std::nullopt;
  }

  std::optional<Proposal> from_nearest() const {
    const int p = first_unseen(nearest_);
    if (p < 0) return std::nullopt;
    return Proposal{p, "nearest", 0, 0};
  }

  std::optional<Proposal> explore() {
    const int p = random_unseen();
    if (p < 0) return std::nullopt;
    return Proposal{p, "random", 0, 0};
  }

  // Unmeasured neighbours of the best two, the one the ranker likes most; -1: none.
  int neighbour_of_best() {
    int pick = -1;
    double most = 0;
    for (const Measured& m : best_few(2)) {
      for (int p : space().neighbours(m.point)) {
        if (seen(p)) continue;
        const double s = opinion(p);
        if (pick < 0 || s > most) {
          pick = p;
          most = s;
        }
      }
      if (pick >= 0) break;
    }
    return pick;
  }

  std::optional<Proposal> neighbour() {
    if (!(streams_ & kNeighbours)) return std::nullopt;
    const int p = neighbour_of_best();
    if (p < 0) return std::nullopt;
    return Proposal{p, "neighbour", 0, 0};
  }

  bool has_opinion() const { return model_.trusted() || static_cast<int>(measured().size()) >= 8; }
  double opinion(int point) {
    const SpacePoint& p = space().at(point);
    return has_opinion() && (streams_ & kTrees) ? model_.score(p.features).score : -std::log2(std::max(p.estimate_us, 1e-6));
  }

  void adapt() {
    std::vector<TrainRow> rows;
    for (const Measured& m : measured()) {
      const float share = static_cast<float>(best()->us / m.us);
      rows.push_back({space().at(m.point).features, std::max(-5.6f, std::log2(share)), 0.2f + share});
    }
    model_.adapt(rows, problem().seed);
  }

  void rescore() {
    const int now = static_cast<int>(measured().size());
    if (scored_at_ >= 0 && now - scored_at_ < kRescoreEvery) return;
    if (now > 0) adapt();
    scored_at_ = now;
    if (pool_.empty()) choose_pool();
    scored_.clear();
    for (int p : pool_) {
      if (seen(p)) continue;
      const CostModel::Score s = model_.score(space().at(p).features);
      scored_.push_back({p, s.score, s.sigma});
    }
  }

  void choose_pool() {
    pool_.resize(static_cast<size_t>(space().size()));
    for (size_t i = 0; i < pool_.size(); ++i) pool_[i] = static_cast<int>(i);
    if (static_cast<int>(pool_.size()) <= kPool) return;
    if (model_.trusted()) {
      std::vector<double> score(pool_.size());
      for (size_t i = 0; i < pool_.size(); ++i) score[i] = model_.score(space().at(static_cast<int>(i)).features).score;
      std::stable_sort(pool_.begin(), pool_.end(), [&](int a, int b) { return score[static_cast<size_t>(a)] > score[static_cast<size_t>(b)]; });
    } else {
      for (size_t i = pool_.size() - 1; i > 0; --i) std::swap(pool_[i], pool_[below(i + 1)]);
    }
    pool_.resize(kPool);
  }

  // The best score less what is near to the ones this stream already proposed.
  std::optional<Proposal> ranked() {
    if (!(streams_ & kTrees)) return std::nullopt;
    if (!has_opinion()) return by_estimate();
    rescore();
    const Scored* pick = nullptr;
    double most = 0;
    for (const Scored& s : scored_) {
      if (seen(s.point)) continue;
      const double value = s.score - kDiversity * closeness(s.point);
      if (pick == nullptr || value > most) {
        pick = &s;
        most = value;
      }
    }
    if (pick == nullptr) return std::nullopt;
    return Proposal{pick->point, "trees", pick->score, pick->sigma};
  }

  // Before there is a ranker: the analytic estimate, spread alike.
  std::optional<Proposal> by_estimate() {
    int pick = -1;
    double most = 0;
    for (int p = 0; p < space().size(); ++p) {
      if (seen(p)) continue;
      const double value = -std::log2(std::max(space().at(p).estimate_us, 1e-6)) - kDiversity * closeness(p);
      if (pick < 0 || value > most) {
        pick = p;
        most = value;
      }
    }
    if (pick < 0) return std::nullopt;
    return Proposal{pick, "analytic", 0, 0};
  }

  double closeness(int point) {
    int least = 1 << 20;
    for (const Measured& m : measured()) least = std::min(least, hamming(space().at(m.point), space().at(point)));
    return measured().empty() ? 0 : std::exp(-least / kHammingScale);
  }

  const unsigned streams_;
  CostModel model_;
  std::optional<Coverage> coverage_;
  std::vector<int> nearest_, pool_;
  std::vector<Scored> scored_;
  int scored_at_ = -1, last_gain_ = 0, turn_ = 0;
  double settled_us_ = 0;
};

}  // namespace

std::unique_ptr<Strategy> make_lathe_strategy(unsigned streams) { return std::make_unique<LatheStrategy>(streams); }

}  // namespace lathe::search
