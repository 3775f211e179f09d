// Strategies that follow a fixed order: random, as enumerated, the default alone, by the formula, by IREE's keys, by
// the ranker.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "bench/search/rivals.h"

namespace lathe::bench {
using namespace search;  // NOLINT: strategies for its spaces

namespace {

class Random : public StrategyBase {
  std::optional<Proposal> pick() override { return Proposal{random_unseen(), "random", 0, 0}; }
};

class Heuristic : public StrategyBase {
  std::optional<Proposal> pick() override { return std::nullopt; }
};

// Points in an order fixed at the start.
class Ordered : public StrategyBase {
 protected:
  virtual std::vector<int> order() = 0;
  static std::vector<int> all(const Space& space) {
    std::vector<int> out(static_cast<size_t>(space.size()));
    std::iota(out.begin(), out.end(), 0);
    return out;
  }
  // By key, the least first; ties as enumerated.
  template <class F>
  static std::vector<int> by(const Space& space, F&& key) {
    std::vector<std::pair<decltype(key(0)), int>> keyed;
    for (int i = 0; i < space.size(); ++i) keyed.emplace_back(key(i), i);
    std::sort(keyed.begin(), keyed.end());
    std::vector<int> out;
    for (const auto& [k, i] : keyed) out.push_back(i);
    return out;
  }

 private:
  void on_start() override {
    order_ = order();
    at_ = 0;
  }
  std::optional<Proposal> pick() override {
    while (at_ < order_.size() && seen(order_[at_])) ++at_;
    if (at_ == order_.size()) return std::nullopt;
    return Proposal{order_[at_], "order", 0, 0};
  }
  std::vector<int> order_;
  size_t at_ = 0;
};

class Enumeration : public Ordered {
  std::vector<int> order() override { return all(space()); }
};

class Exhaustive : public Enumeration {
  int budget() const override { return std::max(problem().budget, space().size()); }
};

class Formula : public Ordered {
  std::vector<int> order() override {
    return by(space(), [&](int i) { return space().at(i).estimate_us; });
  }
};

// The keys of IREE's tuner for contractions, on a register tile: mr, nr and kc stand for the tile sizes. As shipped,
// two keys are the negation of a number that is never zero, so they never order anything.
class Iree : public Ordered {
 public:
  explicit Iree(bool repaired) : repaired_(repaired) {}

 private:
  std::vector<int> order() override {
    const double lanes = problem().target->lanes;
    const Problem& p = *problem().problem;
    const auto extent = [&](const char* role) {
      const std::vector<const ir::Stmt*> s = scopes_with_role(p.kernel, role);
      return s.empty() ? 1.0 : static_cast<double>(std::max<int64_t>(1, extent_at(s[0]->extent, p)));
    };
    const double m = extent("m"), n = extent("n"), k = extent("k");
    const auto knob = [](const Knobs& knobs, const char* name, double otherwise) {
      const auto it = knobs.find(name);
      return it == knobs.end() || it->second <= 0 ? otherwise : static_cast<double>(it->second);
    };
    return by(space(), [&, this](int i) {
      const Knobs& at = space().at(i).knobs;
      const double mr = knob(at, "mr", 1), nr = knob(at, "nr", lanes), kc = knob(at, "kc", k);
      const bool power = std::has_single_bit(static_cast<uint64_t>(kc));
      const bool simd = std::fmod(mr * nr, lanes * problem().target->vector_registers / 2) == 0;
      const double intensity = 2 * mr * nr / (mr + nr);
      const double tiles = std::ceil(m / mr) * std::ceil(n / nr), threads = std::max(1, p.threads);
      const double waves = std::ceil(tiles / threads) * threads / tiles * (std::ceil(m / mr) * mr / m);
      const double ratio = std::abs(std::log2(mr / nr) - std::log2(m / n));
      return std::vector<double>{!power ? 1.0 : 0.0, !simd ? 1.0 : 0.0, repaired_ ? -intensity : 0.0, waves,
                                 repaired_ ? ratio : 0.0};
    });
  }
  const bool repaired_;
};

}  // namespace

std::unique_ptr<Strategy> make_random() { return std::make_unique<Random>(); }
std::unique_ptr<Strategy> make_heuristic() { return std::make_unique<Heuristic>(); }
std::unique_ptr<Strategy> make_enumeration() { return std::make_unique<Enumeration>(); }
std::unique_ptr<Strategy> make_exhaustive() { return std::make_unique<Exhaustive>(); }
std::unique_ptr<Strategy> make_formula() { return std::make_unique<Formula>(); }
std::unique_ptr<Strategy> make_iree() { return std::make_unique<Iree>(false); }
std::unique_ptr<Strategy> make_iree_repaired() { return std::make_unique<Iree>(true); }

}  // namespace lathe::bench
