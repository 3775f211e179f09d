// The few bodies that serve every length of one operator: its tuned lengths as they were measured, the others as near
// tasks let count on. Chosen jointly. Pure; measures and builds nothing.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "search/strategy/strategy.h"
#include "search/strategy/transfer.h"

namespace lathe::search {

struct ServedLength {
  int64_t length = 0;
  // Measured settings with their times, the default's first; of a length that was not tuned none, but the search that
  // would be made there.
  std::vector<std::pair<Knobs, double>> measured;
  SearchProblem search;
};

struct BodyPlan {
  std::vector<BodyRule> rules;  // body_for() names a setting
  std::vector<Knobs> settings;  // the first is empty: the default of the length
};
// At most k bodies for these lengths (ascending); one that a length does not accept stands there for the nearest
// setting that it does.
BodyPlan plan_bodies(const std::vector<ServedLength>& lengths, int k);

}  // namespace lathe::search
