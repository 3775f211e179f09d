// The strategy of searches, and what is left of it when parts are taken away: slots of several streams
// (docs/search.md).
#pragma once
#include "search/strategy/strategy.h"

namespace lathe::search {

// Which streams there are, as bits.
enum Stream : unsigned {
  kPortfolio = 1,
  kNearest = 2,
  kTrees = 4,
  kNeighbours = 8,
  kExploration = 16,
  kAllStreams = 31,
};

std::unique_ptr<Strategy> make_lathe_strategy(unsigned streams = kAllStreams);

}  // namespace lathe::search
