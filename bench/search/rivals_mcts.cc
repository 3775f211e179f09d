// Monte Carlo tree search over the knobs in their order: a node is a prefix of settings, a roll-out completes it at
// random and is measured, its reward goes up the path.
#include <cmath>
#include <map>

#include "bench/search/rivals.h"

namespace lathe::bench {
using namespace search;  // NOLINT: strategies for its spaces

namespace {

class Mcts : public StrategyBase {
  static constexpr double kExplore = 0.3;
  static constexpr int kTries = 32;
  using Path = std::vector<int>;  // index of the value chosen for each knob so far
  struct Node {
    int visits = 0;
    double reward = 0;
  };
  void on_start() override {
    nodes_.clear();
    paths_.clear();
    first_us_ = 0;
  }
  std::optional<Proposal> pick() override {
    const std::vector<KnobDomain>& domains = space().domains();
    for (int tries = 0; tries < kTries && !domains.empty(); ++tries) {
      Path path;
      Knobs k;
      bool inside = true;  // the tree; below it the roll-out is random
      for (const KnobDomain& d : domains) {
        int pick = static_cast<int>(below(d.values.size()));
        if (inside) {
          const int parent = nodes_[path].visits;
          double most = -1;
          bool fresh = false;
          // Unvisited children first, in random rotation.
          const int from = pick;
          for (size_t i = 0; i < d.values.size(); ++i) {
            const int child = static_cast<int>((static_cast<size_t>(from) + i) % d.values.size());
            Path next = path;
            next.push_back(child);
            const auto it = nodes_.find(next);
            if (it == nodes_.end() || it->second.visits == 0) {
              pick = child;
              fresh = true;
              break;
            }
            const double n = it->second.visits;
            const double value = it->second.reward / n + kExplore * std::sqrt(std::log(std::max(2, parent)) / n);
            if (value > most) {
              most = value;
              pick = child;
            }
          }
          inside = !fresh;
        }
        path.push_back(pick);
        k[d.name] = d.values[static_cast<size_t>(pick)];
      }
      const int p = space().nearest(k);
      if (p < 0) continue;
      if (seen(p)) {
        visit(path, 0);  // known already: nothing new below
        continue;
      }
      paths_[p] = path;
      return Proposal{p, "rollout", 0, 0};
    }
    return Proposal{random_unseen(), "random", 0, 0};
  }
  void visit(const Path& path, double reward) {
    for (size_t n = 0; n <= path.size(); ++n) {
      Node& node = nodes_[Path(path.begin(), path.begin() + static_cast<long>(n))];
      ++node.visits;
      node.reward += reward;
    }
  }
  void on_tell(const Tell& t) override {
    const bool timed = t.kind == Outcome::timed && t.us > 0;
    if (timed && first_us_ == 0) first_us_ = t.us;
    const auto it = paths_.find(t.point);
    if (it != paths_.end()) visit(it->second, timed ? first_us_ / t.us / 2 : 0);
  }
  std::map<Path, Node> nodes_;
  std::map<int, Path> paths_;
  double first_us_ = 0;
};

}  // namespace

std::unique_ptr<Strategy> make_mcts() { return std::make_unique<Mcts>(); }

}  // namespace lathe::bench
