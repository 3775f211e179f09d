// Lathe's own strategy, its ablations and the published ones that it is compared with, by name. A replay, a live
// comparison and the tests walk the table; the library has its own strategy only.
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "search/strategy/strategy.h"

namespace lathe::bench {

struct StrategyInfo {
  const char* name;  // "lathe", "random", "annealing", ...
  std::unique_ptr<search::Strategy> (*make)();
};
const std::vector<StrategyInfo>& strategies();  // Lathe's own first
const StrategyInfo* find_strategy(std::string_view name);

}  // namespace lathe::bench
