// Strategies that walk: simulated annealing, PerfDojo's search over sequences of moves, Droplet's coordinate descent.
#include <algorithm>
#include <cmath>

#include "bench/search/rivals.h"

namespace lathe::bench {
using namespace search;  // NOLINT: strategies for its spaces

namespace {

// One chain: a random neighbour of where it stands is measured, and taken if faster or with the probability of its
// temperature.
class Annealing : public StrategyBase {
  static constexpr double kStart = 0.5, kCooling = 0.93;  // log2 of time
  void on_start() override {
    at_ = space().default_index();
    at_us_ = 0;
    temperature_ = kStart;
  }
  std::optional<Proposal> pick() override {
    const std::vector<int> around = space().neighbours(at_);
    std::vector<int> fresh;
    for (int p : around) {
      if (!seen(p)) fresh.push_back(p);
    }
    if (!fresh.empty()) return Proposal{fresh[below(fresh.size())], "annealing", 0, 0};
    return Proposal{random_unseen(), "restart", 0, 0};  // everything around is known
  }
  void on_tell(const Tell& t) override {
    if (t.kind != Outcome::timed) return;
    const double worse = at_us_ > 0 ? std::log2(t.us / at_us_) : -1;
    if (worse <= 0 || unit() < std::exp(-worse / temperature_)) {
      at_ = t.point;
      at_us_ = t.us;
    }
    temperature_ *= kCooling;
  }
  int at_ = -1;
  double at_us_ = 0, temperature_ = kStart;
};

// Sequences of moves grown from the best few so far: a parent by rank, one to four random steps, then measured.
class PerfDojo : public StrategyBase {
  static constexpr int kBudget = 1000, kParents = 10, kSteps = 4, kTries = 64;
  int budget() const override { return std::min(problem().budget, kBudget); }
  std::optional<Proposal> pick() override {
    const std::vector<Measured> parents = best_few(kParents);
    for (int tries = 0; tries < kTries && !parents.empty(); ++tries) {
      const double u = unit();
      int p = parents[static_cast<size_t>(u * u * static_cast<double>(parents.size()))].point;
      const int steps = 1 + static_cast<int>(below(kSteps));
      for (int s = 0; s < steps && p >= 0; ++s) p = random_neighbour(space(), p, below(1u << 30));
      if (p >= 0 && !seen(p)) return Proposal{p, "moves", 0, 0};
    }
    return Proposal{random_unseen(), "restart", 0, 0};
  }
};

// Droplet: one knob at a time, both directions; where a step helps it is repeated; a round over all knobs without gain
// ends the descent, and another one starts from a random point.
class Coordinate : public StrategyBase {
  void on_start() override { restart(space().default_index()); }
  void restart(int from) {
    at_ = from;
    at_us_ = 0;
    knob_ = 0;
    direction_ = 1;
    idle_ = 0;
    asked_ = -1;
  }
  std::optional<Proposal> pick() override {
    const std::vector<KnobDomain>& domains = space().domains();
    if (domains.empty()) return Proposal{random_unseen(), "restart", 0, 0};
    const int turns = 2 * static_cast<int>(domains.size());
    for (; idle_ < turns; turn()) {
      const KnobDomain& d = domains[static_cast<size_t>(knob_)];
      Knobs k = space().at(at_).knobs;
      const auto value = std::find(d.values.begin(), d.values.end(), k[d.name]);
      const auto next = (value - d.values.begin()) + direction_;
      if (value == d.values.end() || next < 0 || next >= static_cast<long>(d.values.size())) continue;
      k[d.name] = d.values[static_cast<size_t>(next)];
      const int p = space().nearest(k);
      if (p < 0 || seen(p)) continue;
      asked_ = p;
      return Proposal{p, "descent", 0, 0};
    }
    restart(random_unseen());
    asked_ = at_;
    return Proposal{at_, "restart", 0, 0};
  }
  void turn() {
    ++idle_;
    direction_ = -direction_;
    if (direction_ > 0) knob_ = (knob_ + 1) % static_cast<int>(space().domains().size());
  }
  void on_tell(const Tell& t) override {
    const bool better = t.kind == Outcome::timed && (at_us_ == 0 || t.us < at_us_);
    if (better) {
      at_ = t.point;
      at_us_ = t.us;
      idle_ = 0;
    } else if (t.point == asked_ && !space().domains().empty()) {
      turn();
    }
  }
  int at_ = -1, knob_ = 0, direction_ = 1, idle_ = 0, asked_ = -1;
  double at_us_ = 0;
};

}  // namespace

std::unique_ptr<Strategy> make_annealing() { return std::make_unique<Annealing>(); }
std::unique_ptr<Strategy> make_perfdojo() { return std::make_unique<PerfDojo>(); }
std::unique_ptr<Strategy> make_coordinate() { return std::make_unique<Coordinate>(); }

}  // namespace lathe::bench
