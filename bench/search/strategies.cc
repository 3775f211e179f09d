// The table of strategies: see strategies.h.
#include "bench/search/strategies.h"

#include "bench/search/rivals.h"
#include "search/strategy/strategy_lathe.h"

namespace lathe::bench {
using namespace search;  // NOLINT: strategies for its spaces

template <unsigned streams>
static std::unique_ptr<Strategy> make_lathe() {
  return make_lathe_strategy(streams);
}

const std::vector<StrategyInfo>& strategies() {
  static const std::vector<StrategyInfo> kAll = {
      {"lathe", make_lathe<kAllStreams>},  // slots of several streams: default, ranker, neighbours, exploration
      {"random", make_random},             // uniform over the accepted configurations
      {"enumeration", make_enumeration},   // the order in which the recipe enumerates its configurations
      {"exhaustive", make_exhaustive},     // every configuration, whatever the budget
      {"heuristic", make_heuristic},       // the default and nothing else, as a fixed pass of heuristics
      {"perfdojo",
       // PerfDojo: sequences of one to four random moves grown from the ten best so far, at most 1000 evaluations
       make_perfdojo},
      {"annealing",
       // one chain over the neighbourhood, temperature 0.5 in log2 of time, cooled by 0.93 a measurement
       make_annealing},
      {"coordinate",
       // Droplet: one knob at a time in both directions, repeated where it helps, restarted at random
       make_coordinate},
      {"evolutionary",
       // Ansor: populations of 2048, four generations, mutation 0.85, 5 % random; random until a model is there or 100
       // rows are
       make_evolutionary},
      {"beam", make_beam},  // Halide: 32 wide, five passes on the model from the default, later from the measured best
      {"mcts",
       make_mcts},  // QiMeng: a tree over the knobs in their order, UCT, roll-outs completed at random and measured
      {"iree",
       make_iree},  // IREE's order as shipped: K tile a power of two, SIMD multiple, quantisation; two keys inert
      {"iree-repaired", make_iree_repaired},  // the same with intensity and the ratio of M to N in force
      {"formula", make_formula},              // ablation: the analytic estimate alone orders
      {"trees", make_lathe<kTrees>},          // ablation: the ranker alone, no neighbours or exploration
      {"lathe-trees", make_lathe < kAllStreams & ~kTrees > },              // ablation: without the ranker
      {"lathe-neighbours", make_lathe < kAllStreams & ~kNeighbours > },    // ablation: without neighbours
      {"lathe-exploration", make_lathe < kAllStreams & ~kExploration > },  // ablation: without exploration
  };
  return kAll;
}

const StrategyInfo* find_strategy(std::string_view name) {
  for (const StrategyInfo& s : strategies()) {
    if (name == s.name) return &s;
  }
  return nullptr;
}

}  // namespace lathe::bench
