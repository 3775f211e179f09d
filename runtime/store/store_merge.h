// Brings the objects of one store into another: what shards of a warm-up found on several machines or in several
// processes. A union; where both have a decision, the better founded one stays, then the one of the smaller hash, so
// that the order of merging does not matter.
#pragma once
#include <map>
#include <string>

#include "runtime/store/store.h"

namespace lathe::runtime {

struct MergeReport {
  int copied = 0, same = 0, replaced = 0, kept = 0;  // kept: the target's own was better
  std::map<std::string, int> refused;                // by reason: damaged, untrusted, could not be written
};

// Machine profiles are not merged: each store has its own machine's.
MergeReport merge_store(Store& from, Store& into);

}  // namespace lathe::runtime
