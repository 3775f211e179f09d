// The Structure of row recipes' configurations: the naive nest stands, knobs say how columns are unrolled and rows
// shared out.
#include <algorithm>
#include <cmath>

#include "search/sketches/structure.h"

namespace lathe::search {

Structure row_structure(KnobReader& knobs, const ProblemFacts& facts, const ir::Target& target) {
  Structure s = facts.naive;
  const double lanes = target.lanes;
  s.unroll = static_cast<double>(std::max<int64_t>(1, knobs.get("unroll", 1)));
  s.tile_vectors = s.unroll;
  s.registers = s.unroll * 3 + 2;
  s.padded = std::ceil(s.columns / lanes) * lanes / std::max(s.columns, 1.0);
  // A sum or a maximum waits for the one before: four cycles, two of them at once.
  const bool reduces = s.accesses.size() > 3;
  s.slowdown = reduces ? std::max(1.0, 4 / s.unroll) : 1;
  const double grain = static_cast<double>(knobs.get("grain", 0));
  s.block_rows = grain;
  s.tile_rows = static_cast<double>(std::max<int64_t>(1, knobs.get("rows", 1)));
  s.calls = s.rows;
  if (grain > 0) {
    s.parallel = s.rows > 1 ? Axis::rows : Axis::columns;
    s.tasks = std::ceil(s.rows > 1 ? s.rows / grain : s.columns / (1024 * grain));
    s.imbalance = imbalance_of(s.tasks, facts.threads);
  }
  return s;
}

}  // namespace lathe::search
