// First half of register allocation: a leaf program as a list of items with regions, the choice of memory operands, and the
// live interval of every value. Chooses no registers.
#pragma once
#include <climits>
#include <vector>

#include "jit/x64/registers.h"

namespace lathe::jit::x64 {

// Where a value is needed, in half positions: 2 * item for reading, 2 * item + 1 for writing.
struct Interval {
  int start = -1, end = -1;
  int weight = 0;  // uses, each loop around one counting eightfold
};

struct Analysis {
  std::vector<Interval> vectors;   // like Allocation::vector; start < 0: needs no register
  std::vector<Interval> constants; // per virtual register: where a register would help it; start < 0: nowhere
  std::vector<Interval> masks;     // AVX-512
  std::vector<Interval> general;   // like Allocation::general, in whole items doubled
};

// Fills items, regions and info of `out`. reread: loads with several uses are read again at each use instead of sitting in a
// register, where they can be.
ir::Result<Analysis> analyse(const LeafProgram& program, const Shape& shape, bool reread, Allocation& out);

}  // namespace lathe::jit::x64
