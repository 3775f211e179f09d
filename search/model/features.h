// What the cost model sees of a candidate: the numbers of features.def (docs/search.md), log2(1 + x) unless a ratio;
// and the analytic stage, which is one of them. Pure and thread-safe; microseconds each, no replay.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "search/sketches/recipe.h"
#include "search/sketches/structure.h"

namespace lathe::search {

enum class Feature : uint8_t {
#define LATHE_FEATURE(id, group, text) k_##id,
#include "search/model/features.def"
#undef LATHE_FEATURE
  kCount
};
constexpr int kFeatures = static_cast<int>(Feature::kCount);
using Features = std::array<float, kFeatures>;

struct FeatureInfo {
  const char *name, *group, *text;
};
const std::array<FeatureInfo, kFeatures>& feature_table();
// Of ids and groups, in order: models trained on other features do not load. 16 hex digits.
std::string feature_hash();

// Measured once per machine (runtime's machine profile fills it). GB/s of one thread, GFLOP/s of one thread,
// microseconds.
struct MachineRates {
  double flops = 100, l1 = 400, l2 = 150, l3 = 60, dram = 20;
  double call_us = 0.05, task_us = 0.3, barrier_us = 2;
  static MachineRates assumed(const ir::Target& target);  // from the target alone: no measurement at hand
};

// The analytic stage's parts, microseconds.
struct AnalyticCost {
  double compute = 0, l1 = 0, l2 = 0, l3 = 0, dram = 0, overhead = 0;
  double calls = 0, tasks = 0, barriers = 0;  // what overhead counts
  // max(compute, memory) + 0.3 min(compute, memory) + overhead; memory: the slowest level.
  double total() const;
};

// The features of all candidates of one problem: what they share is looked at once.
class Featurizer {
 public:
  // recipe: null for kernels without one. Problem and target are copied.
  Featurizer(const Problem& problem, const ir::Target& target, const MachineRates& rates, const Recipe* recipe);
  struct Result {
    Features x{};
    double us = 0;  // analytic
    AnalyticCost cost;
  };
  Result of(const Knobs& knobs) const;
  // The recipe's moves for these knobs, if there are any, and then others; none: the moves are refused.
  std::optional<Result> of(const Knobs& knobs, const std::vector<Move>& extra) const;
  // A scheduled kernel, whatever made it.
  Result of(const ir::Kernel& scheduled) const;
  // The recipe's configuration with moves appended: of(knobs), plus what the moves changed between the two scheduled
  // kernels.
  Result of(const Knobs& knobs, const ir::Kernel& without, const ir::Kernel& with) const;
  const ProblemFacts& facts() const { return facts_; }

 private:
  // What the sketch refers to stays where it is when the Featurizer moves.
  struct Task {
    Problem problem;
    ir::Target target;
  };
  struct Named {
    Feature feature;
    int64_t value;
  };
  Result of(const Structure& s, std::span<const Named> knobs) const;
  std::vector<Named> named(const Knobs& knobs) const;  // what the structure does not say
  std::shared_ptr<const Task> task_;
  std::shared_ptr<const Sketch> sketch_;
  std::vector<Knob> table_;
  MachineRates rates_;
  ProblemFacts facts_;
};

// For one candidate; many of a problem go through a Featurizer.
Features features(const Problem& problem, const ir::Target& target, const MachineRates& rates, const Recipe* recipe,
                  const Knobs& knobs);
// Stage A: max(compute, memory) + 0.3 min(compute, memory) + overhead, microseconds; the same traffic as the features.
double analytic_us(const Problem& problem, const ir::Target& target, const MachineRates& rates, const Recipe* recipe,
                   const Knobs& knobs);

}  // namespace lathe::search
