// Makers of the strategies that Lathe's own is compared with; strategies.cc says how each was mapped. Private to
// rivals_*.cc and strategies.cc.
#pragma once
#include "search/strategy/strategy_base.h"

namespace lathe::bench {

std::unique_ptr<search::Strategy> make_random();
std::unique_ptr<search::Strategy> make_heuristic();
std::unique_ptr<search::Strategy> make_enumeration();
std::unique_ptr<search::Strategy> make_exhaustive();
std::unique_ptr<search::Strategy> make_formula();
std::unique_ptr<search::Strategy> make_iree();
std::unique_ptr<search::Strategy> make_iree_repaired();
std::unique_ptr<search::Strategy> make_annealing();
std::unique_ptr<search::Strategy> make_perfdojo();
std::unique_ptr<search::Strategy> make_coordinate();
std::unique_ptr<search::Strategy> make_evolutionary();
std::unique_ptr<search::Strategy> make_beam();
std::unique_ptr<search::Strategy> make_mcts();

// The model as these use it: the family's trees and, from 8 measurements of the task at hand on, a residual that is
// trained on the last 64 of them.
class Opinion {
 public:
  void start(const search::SearchProblem& problem);
  void adapt(search::Space& space, std::span<const std::pair<int, double>> measured);
  // Higher is faster; by the analytic estimate while nothing was learned.
  double score(search::Space& space, int point) const;
  bool learned() const { return (model_ != nullptr && model_->trusted()) || !residual_.empty(); }

 private:
  void train(std::span<const search::TrainRow> measured);

  const search::CostModel* model_ = nullptr;
  std::vector<search::BoostedTrees> residual_;  // bagged copies, their mean counts
  uint64_t seed_ = 0;
};

}  // namespace lathe::bench
