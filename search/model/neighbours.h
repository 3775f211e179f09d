// Where a search goes from a Schedule: those that are one step away. Every Schedule returned replays on the problem's
// Kernel and cuts into leaves; whether it is fast, and whether a code generator takes its leaves, is for others to find
// out. Nothing here is random but for the seed. Thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "search/sketches/recipe.h"

namespace lathe::search {

struct Neighbour {
  Schedule schedule;
  std::string why;  // "+ unroll_scope n0", "- prefetch w k ..."
};

// At most `at_most` distinct Schedules one atomic move from `from`: one changed (sizes doubled, halved, a vector more
// or less; the tail's mode), left out or put in (parameters from a small table; stream_stores only where may_stream()
// says so), in an order drawn from the seed. None is of a recipe any more; steps of a knob are RecipeSpace's.
std::vector<Neighbour> neighbours(const Problem& problem, const ir::Target& target, const Schedule& from, int at_most,
                                  uint64_t seed);

}  // namespace lathe::search
