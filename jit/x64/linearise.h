// First half of register allocation: a leaf program as a list of items with regions, the choice of memory operands, and
// the live interval of every value. Chooses no registers.
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

using Intervals = std::pmr::vector<Interval>;

struct Analysis {
  explicit Analysis(std::pmr::memory_resource* memory)
      : vectors(memory), constants(memory), masks(memory), general(memory) {}

  Intervals vectors;    // like Allocation::vector; start < 0: needs no register
  Intervals constants;  // per virtual register: where a register would help it; start < 0: nowhere
  Intervals masks;      // AVX-512
  Intervals general;    // like Allocation::general, in whole items doubled
  Interval spread;      // where Allocation::spread would help; start < 0: nowhere
};

// Fills items, regions and info of `out`. Loads with several uses that would sit in a register for at least so many
// items are read again at each use, where they can be.
inline constexpr int kNeverReread = INT_MAX;
// pairs: stores of bf16 go in pairs where they can.
ir::Result<Analysis> analyse(const LeafProgram& program, const Shape& shape, int least_reread, bool pairs,
                             Allocation& out);

}  // namespace lathe::jit::x64
