// The Structure of the transpose recipe's configurations: squares of one vector's width in blocks, shared out by the
// outermost scope.
#include <algorithm>
#include <cmath>

#include "search/sketches/structure.h"

namespace lathe::search {

Structure transpose_structure(KnobReader& knobs, const ProblemFacts& facts, const ir::Target& target) {
  Structure s = facts.naive;
  s.tile_rows = target.lanes;
  s.registers = std::min<double>(2.0 * target.lanes, target.vector_registers);
  s.block_columns = static_cast<double>(knobs.get("bt", 0));
  s.block_rows = static_cast<double>(knobs.get("bf", 0));
  const double across = s.block_columns > 0 ? std::ceil(s.columns / s.block_columns) : 1,
               down = s.block_rows > 0 ? std::ceil(s.rows / s.block_rows) : 1;
  s.calls = across * down;
  if (knobs.get("parallel", 0) != 0 && !s.loops.empty()) {
    s.parallel = s.loops[0].axis == Axis::none ? Axis::rows : s.loops[0].axis;
    s.tasks = s.calls > 1 ? std::max(across, down) : s.loops[0].trips;
    s.imbalance = imbalance_of(s.tasks, facts.threads);
  }
  return s;
}

}  // namespace lathe::search
