// The strategy of searches, and what is left of it when parts are taken away: slots of several streams
// (docs/search_replay.md).
#pragma once
#include "search/strategy/strategy.h"

namespace lathe::search {

// Which streams there are, as bits.
enum Stream : unsigned {
  kTrees = 1,
  kNeighbours = 2,
  kExploration = 4,
  kAllStreams = 7,
};

std::unique_ptr<Strategy> make_lathe_strategy(unsigned streams = kAllStreams);

}  // namespace lathe::search
