// Two Schedules of one Kernel as a host runs them: in a process of its own, on memory of its own at places that no
// search has seen, call by call in turns. What a search's winner is worth there beside the default.
#pragma once
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "search/sketches/recipe.h"

namespace lathe::bench {

// Time of `candidate` over that of `reference` at each of so many placements, each on fresh pages: the median of pairs.
// Forks: no threads are running.
ir::Result<std::vector<double>> service_pairs(const search::Problem& problem, const ir::Target& target,
                                              const std::string& reference, const std::string& candidate,
                                              int placements);

}  // namespace lathe::bench
