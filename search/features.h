// What the cost model sees of a candidate: the numbers of features.def (docs/search.md), log2(1 + x) unless a ratio. Pure and
// thread-safe; microseconds each, no replay.
#pragma once
#include <array>
#include <cstdint>

#include "search/recipe.h"

namespace lathe::search {

enum class Feature : uint8_t {
#define LATHE_FEATURE(id, group, text) k_##id,
#include "search/features.def"
#undef LATHE_FEATURE
  kCount
};
constexpr int kFeatures = static_cast<int>(Feature::kCount);
using Features = std::array<float, kFeatures>;

// Measured once per machine (runtime's machine profile fills it). GB/s of one thread, GFLOP/s of one thread, microseconds.
struct MachineRates {
  double flops = 100, l1 = 400, l2 = 150, l3 = 60, dram = 20;
  double call_us = 0.05, task_us = 0.3, barrier_us = 2;
  static MachineRates assumed(const ir::Target& target);  // from the target alone: no measurement at hand
};

Features features(const Problem& problem, const ir::Target& target, const MachineRates& rates, const Recipe* recipe, const Knobs& knobs);
// Stage A: max(compute, memory) + 0.3 min(compute, memory) + overhead, microseconds; the same traffic as the features.
double analytic_us(const Problem& problem, const ir::Target& target, const MachineRates& rates, const Recipe* recipe, const Knobs& knobs);

}  // namespace lathe::search
