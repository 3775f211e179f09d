// Columns of a matmul that are summed along K: vectors of A's rows times vectors of a column of B, a sum of lanes at
// the end. One column beyond whole vectors would take as many multiply-adds as a whole vector otherwise. The matmul
// recipe's knob `dk`.
#pragma once
#include <cstdint>

#include "ir/base/target.h"
#include "search/sketches/matmul_parts.h"
#include "search/sketches/recipe.h"

namespace lathe::search {

// What may be summed along K, the last columns or the only ones; 0 columns: nothing may. `whole` columns stay.
struct Dots {
  int64_t columns = 0, whole = 0;
};
Dots matmul_dots(const MatmulParts& parts, const Problem& problem, const ir::Target& target);

struct DotsWork {
  double m = 1, columns = 1, k = 1;
  bool copied = false;   // B's columns are copied together first
  double a_element = 0;  // bytes of one
  double b_bytes = 0;    // of all of B
};
double dots_cycles(const DotsWork& work, const ir::Target& target);

// Whether B's columns have to be copied for that.
bool dots_copy(const MatmulParts& parts, const ir::Kernel& kernel);

// Takes the columns out of the scope n, into a nest of their own after it that the sums' buffer is split for; the name
// of the scope of those that stay, empty if none do.
std::string split_dots(Script& s, const MatmulParts& parts, const Dots& dots);

// Rows of A that are summed side by side, at most: as many sums as half of the registers hold.
int64_t most_dot_rows(const Dots& dots, const ir::Target& target);

// Schedules the nest of split_dots(). tile_rows: of A side by side. block_rows: rows of a parallel block, 0: all are
// one; for a nest that stands alone. ahead: bytes that each row of A is prefetched ahead; 0: not.
void schedule_dots(Script& s, const MatmulParts& parts, const Dots& dots, int64_t tile_rows, int64_t block_rows,
                   int64_t ahead, const ir::Target& target);

}  // namespace lathe::search
