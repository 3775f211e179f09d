// Makers of the strategies that are there for comparison; strategy.cc says how each was mapped. Private to
// strategy*.cc.
#pragma once
#include "search/strategy/strategy_base.h"

namespace lathe::search {

std::unique_ptr<Strategy> make_random();
std::unique_ptr<Strategy> make_heuristic();
std::unique_ptr<Strategy> make_enumeration();
std::unique_ptr<Strategy> make_exhaustive();
std::unique_ptr<Strategy> make_formula();
std::unique_ptr<Strategy> make_iree();
std::unique_ptr<Strategy> make_iree_repaired();
std::unique_ptr<Strategy> make_annealing();
std::unique_ptr<Strategy> make_perfdojo();
std::unique_ptr<Strategy> make_coordinate();
std::unique_ptr<Strategy> make_evolutionary();
std::unique_ptr<Strategy> make_beam();
std::unique_ptr<Strategy> make_mcts();

// The model as these use it: their own copy, the residual refitted on what they measured. Trusted: history carries it.
class Opinion {
 public:
  void start(const SearchProblem& problem);
  void adapt(Space& space, std::span<const std::pair<int, double>> measured);
  // Higher is faster; by the analytic estimate while nothing was learned.
  double score(Space& space, int point) const;
  bool learned() const { return model_.trusted() || rows_ >= 8; }

 private:
  CostModel model_;
  uint64_t seed_ = 0;
  int rows_ = 0;
};

}  // namespace lathe::search
