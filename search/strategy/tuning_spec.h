// Tuning specs: text that says which Schedule operators of given dimensions get, without a search. The first entry that
// matches wins (docs/tuning_specs.md):
//
//   spec 1
//   match matmul n=4864 k=896 m=1..8 cache=cold     ; exact values, ranges, multiples (k=%64) of what scopes of a role
//                                                   run over
//   use panel mr=4 nr=32                            ; knobs by name or symbol; the others are the default's
//   match softmax threads=1 isa=avx512 name=probs
//   use schedule
//   | tile_scope col 16 tail=mask as c0,c1
//
// Pure and thread-safe; a spec is a plain value. Whoever applies one verifies the Schedule as any other.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "search/sketches/recipe.h"

namespace lathe::search {

struct SpecClause {
  std::string role;  // of scopes ("m", "n", "k", "batch", "row", "col"), or "threads"
  int64_t lo = 0, hi = INT64_MAX, multiple = 1;
};

struct SpecEntry {
  int line = 0;  // of `match`
  std::string family;
  std::string kernel, isa, cache;  // name, level, "hot" or "cold"; empty: any
  std::vector<SpecClause> clauses;
  std::string recipe;  // without version; empty: `schedule` is used
  Knobs knobs;         // by symbol
  Schedule schedule;
};

struct TuningSpec {
  std::string file = "tuning spec";  // where it was read, for errors
  std::vector<SpecEntry> entries;
};

// INVALID: the line and what was expected there.
ir::Result<TuningSpec> parse_tuning_spec(std::string_view text);

// The first entry that matches; null: none.
const SpecEntry* find_entry(const TuningSpec& spec, const Problem& problem, const ir::Target& target);
// The entry's Schedule for the problem. UNSUPPORTED: another recipe serves it, or the knobs or moves are refused; names
// the entry's line.
ir::Result<Schedule> expand(const SpecEntry& entry, const Problem& problem, const ir::Target& target);

// What the scopes of a role run over, at the problem's dims: the product along the deepest path that has them; null: no
// such scope.
std::optional<int64_t> role_extent(const Problem& problem, std::string_view role);

}  // namespace lathe::search
