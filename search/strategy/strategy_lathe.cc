// The default strategy: cheap knowledge first, then models, then the neighbourhood (docs/search_replay.md).
//
//   slot 0      the default
//   slots 1-7   with a trusted ranker: most expected gain, by ranker, estimate and what was measured here
//   otherwise   neighbours of the best two and, in turns, most expected gain; without a ranker and before eight
//               measurements the analytic estimate, spread by knob distance, instead of expected gain
//   every 5th   uniform over the space; every 8th with a ranker
//
// A stream with nothing to say gives its slot to the next one.
#include "search/strategy/strategy_lathe.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "search/strategy/prior.h"
#include "search/strategy/strategy_base.h"
#include "search/strategy/surrogate.h"

namespace lathe::search {

namespace {

constexpr int kRankedSlots = 7, kExploreEvery = 5, kExploreRanked = 8;
constexpr int kPool = 1024;  // points that beliefs are kept of
constexpr size_t kShortlist = 16;
constexpr int kBeliefsFrom = 8;  // measurements, if there is no ranker
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
  void on_start() override {
    beliefs_.reset();
    candidate_.clear();
    last_gain_ = turn_ = 0;
  }

  void on_tell(const Tell& outcome) override {
    if (outcome.kind != Outcome::timed) return;
    if (measured().size() == 1 || outcome.us < (1 - kSettled) * settled_us_) {
      settled_us_ = outcome.us;
      last_gain_ = static_cast<int>(measured().size());
    }
  }

  bool ranker() const { return problem().model != nullptr && problem().model->trusted() && (streams_ & kTrees); }

  std::optional<Proposal> pick() override {
    if (problem().stop_early && done()) return std::nullopt;
    const int slot = proposed();
    const int every = ranker() ? kExploreRanked : kExploreEvery;
    if ((streams_ & kExploration) && slot % every == every - 1) {
      if (auto p = explore()) return p;
    }
    const int spoken = slot - slot / every;  // slots that were not exploration
    // Without a ranker the default's neighbours are as good a guess as the estimate's favourites.
    const bool ranked_slot = (ranker() && spoken <= kRankedSlots) || turn_++ % 2 == 1;
    for (const bool rank : {ranked_slot, !ranked_slot}) {
      auto p = rank ? ranked() : neighbour();
      if (p) return p;
    }
    return explore();
  }

  bool done() {
    const Measured* b = best();
    if (b == nullptr) return false;
    if (problem().limit_us > 0 && b->us * kNearLimit <= problem().limit_us) return true;
    if (static_cast<int>(measured().size()) < kSettledSlots) return false;
    if (static_cast<int>(measured().size()) - last_gain_ >= kSettledSlots && waiting() == 0 && neighbour_of_best() < 0)
      return true;
    if (!ranker()) return false;
    believe();
    double expected = 0;
    for (const auto& [point, candidate] : candidate_) {
      if (!seen(point)) expected = std::max(expected, beliefs_->of(candidate).expected_gain());
    }
    return expected < std::log2(1 + kNotWorth);
  }

  std::optional<Proposal> explore() {
    const int p = random_unseen();
    if (p < 0) return std::nullopt;
    return proposal(p, "random");
  }

  // Unmeasured neighbours of the best two, the one most is hoped of; -1: none.
  int neighbour_of_best() {
    int pick = -1;
    double most = 0;
    for (const Measured& m : best_few(2)) {
      for (int p : space().neighbours(m.point)) {
        if (seen(p)) continue;
        const double s = has_beliefs() ? belief(p).mean : analytic(p);
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
    return proposal(p, "neighbour");
  }

  double analytic(int point) { return -std::log2(std::max(space().at(point).estimate_us, 1e-6)); }

  // Beliefs: a prior from the analytic estimate and the ranker, bent by what was measured here.
  bool has_beliefs() const {
    return (streams_ & kTrees) && (ranker() || static_cast<int>(measured().size()) >= kBeliefsFrom);
  }

  // Measurements told since come in; for a proposal not told yet its own expectation stands.
  void believe() {
    if (!beliefs_) {
      beliefs_.emplace(make_beliefs(problem()));
      observed_ = 0;
      candidate_.clear();
      choose_pool();
    }
    if (observed_ == static_cast<int>(measured().size()) && pending_ == waiting_points()) return;
    beliefs_->forget_after(observed_);
    for (; observed_ < static_cast<int>(measured().size()); ++observed_) {
      const Measured& m = measured()[static_cast<size_t>(observed_)];
      beliefs_->observe(candidate_of(m.point), m.us);
    }
    pending_ = waiting_points();
    for (const int p : pending_) {
      if (beliefs_->observations() == 0) break;
      beliefs_->observe(candidate_of(p), best()->us * std::exp2(-beliefs_->of(candidate_of(p)).mean));
    }
  }

  Belief belief(int point) {
    believe();
    return beliefs_->of(candidate_of(point));
  }

  int candidate_of(int point) {
    const auto [it, fresh] = candidate_.emplace(point, 0);
    if (fresh) it->second = beliefs_->add(space().at(point), prior_of({point})[0]);
    return it->second;
  }

  std::vector<double> prior_of(const std::vector<int>& points) const { return prior_shares(problem(), points); }

  void choose_pool() {
    std::vector<int> pool(static_cast<size_t>(space().size()));
    for (size_t i = 0; i < pool.size(); ++i) pool[i] = static_cast<int>(i);
    if (static_cast<int>(pool.size()) > kPool) {
      const std::vector<double> score = prior_shares(problem(), pool);
      std::stable_sort(pool.begin(), pool.end(),
                       [&](int a, int b) { return score[static_cast<size_t>(a)] > score[static_cast<size_t>(b)]; });
      pool.resize(kPool);
    }
    const std::vector<double> prior = prior_of(pool);
    for (size_t i = 0; i < pool.size(); ++i) candidate_[pool[i]] = beliefs_->add(space().at(pool[i]), prior[i]);
  }

  // The one that is expected to gain most over the best so far.
  std::optional<Proposal> ranked() {
    if (!(streams_ & kTrees)) return std::nullopt;
    if (!has_beliefs()) return by_estimate();
    believe();
    if (ranker() && !problem().model->may_lead() && proposed() == 1) return from_shortlist();
    int pick = -1;
    double most = 0;
    for (const auto& [point, candidate] : candidate_) {
      if (seen(point)) continue;
      const double value = beliefs_->of(candidate).expected_gain();
      if (pick < 0 || value > most) {
        pick = point;
        most = value;
      }
    }
    if (pick < 0) return std::nullopt;
    return proposal(pick, "trees");
  }

  // Other machines' rows name a few, the analytic estimate the first of them.
  std::optional<Proposal> from_shortlist() {
    std::vector<std::pair<double, int>> hoped;
    for (const auto& [point, candidate] : candidate_) {
      if (!seen(point)) hoped.emplace_back(-beliefs_->of(candidate).mean, point);
    }
    std::sort(hoped.begin(), hoped.end());
    hoped.resize(std::min<size_t>(hoped.size(), kShortlist));
    int pick = -1;
    for (const auto& [value, point] : hoped) {
      if (pick < 0 || analytic(point) > analytic(pick)) pick = point;
    }
    if (pick < 0) return std::nullopt;
    return proposal(pick, "trees");
  }

  // Before there are beliefs: the analytic estimate, less what is near to the ones already measured.
  std::optional<Proposal> by_estimate() {
    int pick = -1;
    double most = 0;
    for (int p = 0; p < space().size(); ++p) {
      if (seen(p)) continue;
      const double value = analytic(p) - kDiversity * closeness(p);
      if (pick < 0 || value > most) {
        pick = p;
        most = value;
      }
    }
    if (pick < 0) return std::nullopt;
    return proposal(pick, "analytic");
  }

  double closeness(int point) {
    int least = 1 << 20;
    for (const Measured& m : measured()) least = std::min(least, hamming(space().at(m.point), space().at(point)));
    return measured().empty() ? 0 : std::exp(-least / kHammingScale);
  }

  Proposal proposal(int point, const char* stream) {
    if (!has_beliefs()) return {point, stream, 0, 0};
    const Belief b = belief(point);
    return {point, stream, b.mean, b.sigma};
  }

  const unsigned streams_;
  std::optional<Surrogate> beliefs_;
  std::map<int, int> candidate_;  // of beliefs_, by point
  std::vector<int> pending_;      // proposals that stand as expected in beliefs_
  int observed_ = 0;              // measurements in beliefs_
  int last_gain_ = 0, turn_ = 0;
  double settled_us_ = 0;
};

}  // namespace

std::unique_ptr<Strategy> make_lathe_strategy(unsigned streams) { return std::make_unique<LatheStrategy>(streams); }

}  // namespace lathe::search
