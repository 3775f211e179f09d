// The Structure of the transpose recipe's configurations: squares of one vector's width, shared out by the outermost scope.
#include <algorithm>

#include "search/structure.h"

namespace lathe::search {

Structure transpose_structure(KnobReader& knobs, const ProblemFacts& facts, const ir::Target& target) {
  Structure s = facts.naive;
  s.tile_rows = target.lanes;
  s.registers = std::min<double>(2.0 * target.lanes, target.vector_registers);
  s.block_columns = target.lanes;
  if (knobs.get("parallel", 0) != 0 && !s.loops.empty()) {
    s.parallel = s.loops[0].axis == Axis::none ? Axis::rows : s.loops[0].axis;
    s.tasks = s.loops[0].trips;
    s.imbalance = imbalance_of(s.tasks, facts.threads);
  }
  return s;
}

}  // namespace lathe::search
