// Why a Schedule has each of its moves: the knobs whose value it follows from, found by expanding the recipe with other
// values. For people; a few dozen expansions. Pure.
#pragma once
#include <string>
#include <vector>

#include "search/sketches/recipe.h"

namespace lathe::search {

struct MoveReason {
  std::string move;     // its text
  std::string picture;  // what the move does, from the table
  std::string why;      // "mr=8, nr=32"; "recipe panel.1": whatever the knobs; "added by search"; "as written"
};
struct KnobReason {
  Knob knob;
  int64_t value;
};
// The knobs of a Schedule's recipe, in the order of its table; none without a recipe.
std::vector<KnobReason> knob_reasons(const Problem& problem, const Schedule& schedule);

std::vector<MoveReason> move_reasons(const Problem& problem, const ir::Target& target, const Schedule& schedule);

}  // namespace lathe::search
