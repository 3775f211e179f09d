// From a measured table to history: the rows of a task that are worth keeping (the best few, a spread of the others) as
// a record, and the starter pack made of such records.
#pragma once
#include "bench/search/measured_table.h"

namespace lathe::bench {

constexpr int kPackBest = 12, kPackRows = 56;

// The default first. Rows: at most `rows`, the `best` fastest and the rest evenly by rank, failures among them in
// proportion.
search::TaskRecord thinned(const MeasuredTask& task, int best = kPackBest, int rows = kPackRows);

}  // namespace lathe::bench
