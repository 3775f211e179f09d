// The table of strategies: see strategy.h.
#include "search/strategy.h"

#include "search/strategy_lathe.h"
#include "search/strategy_rivals.h"

namespace lathe::search {

template <unsigned streams>
static std::unique_ptr<Strategy> make_lathe() {
  return make_lathe_strategy(streams);
}

const std::vector<StrategyInfo>& strategies() {
  static const std::vector<StrategyInfo> kAll = {
      {"lathe", "slots of several streams: default, portfolio, nearest tasks, ranker, neighbours, exploration", make_lathe<kAllStreams>},
      {"random", "uniform over the accepted configurations", make_random},
      {"enumeration", "the order in which the recipe enumerates its configurations", make_enumeration},
      {"exhaustive", "every configuration, whatever the budget", make_exhaustive},
      {"heuristic", "the default and nothing else, as a fixed pass of heuristics", make_heuristic},
      {"perfdojo", "PerfDojo: sequences of one to four random moves grown from the ten best so far, at most 1000 evaluations", make_perfdojo},
      {"annealing", "one chain over the neighbourhood, temperature 0.5 in log2 of time, cooled by 0.93 a measurement", make_annealing},
      {"coordinate", "Droplet: one knob at a time in both directions, repeated where it helps, restarted at random", make_coordinate},
      {"evolutionary", "Ansor: populations of 2048, four generations, mutation 0.85, 5 % random; random until a model is there or 100 rows are", make_evolutionary},
      {"beam", "Halide: 32 wide, five passes on the model from the default, later from the measured best", make_beam},
      {"mcts", "QiMeng: a tree over the knobs in their order, UCT, roll-outs completed at random and measured", make_mcts},
      {"iree", "IREE's order as shipped: K tile a power of two, SIMD multiple, quantisation; two keys inert", make_iree},
      {"iree-repaired", "the same with intensity and the ratio of M to N in force", make_iree_repaired},
      {"formula", "ablation: the analytic estimate alone orders", make_formula},
      {"trees", "ablation: the ranker alone, no portfolio, neighbours or exploration", make_lathe<kTrees>},
      {"lathe-portfolio", "ablation: without the portfolio", make_lathe<kAllStreams & ~kPortfolio>},
      {"lathe-nearest", "ablation: without the nearest tasks", make_lathe<kAllStreams & ~kNearest>},
      {"lathe-trees", "ablation: without the ranker", make_lathe<kAllStreams & ~kTrees>},
      {"lathe-neighbours", "ablation: without neighbours", make_lathe<kAllStreams & ~kNeighbours>},
      {"lathe-exploration", "ablation: without exploration", make_lathe<kAllStreams & ~kExploration>},
  };
  return kAll;
}

const StrategyInfo* find_strategy(std::string_view name) {
  for (const StrategyInfo& s : strategies()) {
    if (name == s.name) return &s;
  }
  return nullptr;
}

}  // namespace lathe::search
