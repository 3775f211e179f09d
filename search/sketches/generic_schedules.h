// Schedules for Kernels that no recipe knows, by general rules. Every Schedule returned replays on the problem's Kernel
// and cuts into leaves; whether it is fast, and whether a code generator takes its leaves, is for others to find out.
// Thread-safe.
#pragma once
#include <vector>

#include "search/sketches/recipe.h"

namespace lathe::search {

// Schedules for a Kernel that no recipe matches, most promising first, distinct; families and roles are not looked at.
// Producers are joined to their consumers, products are blocked rows x vectors with their sums in registers, copies
// across the unit stride go through registers, unit-stride scopes are vectors, temporaries go next to where they are
// used, the outermost scopes are parallel. Empty if no rule applies.
std::vector<Schedule> generic_schedules(const Problem& problem, const ir::Target& target, int at_most);

}  // namespace lathe::search
