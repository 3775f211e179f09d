// Sums up to each element of a row, on a GPU: a block's threads have some neighbours each, add them up, and start from
// what the threads before them have. A row goes on from turn to turn.
//
//   for b: a = 0; for n: {a += x[b, n]; y[b, n] = f(a)}
//     -> for b @grid: a = 0; for turns: for t @block: p[t] = 0; for v: p[t] += x
//                               for t @block: q = a; for u: q += p[u] if u < t; for v: {q += x; y = f(q)}
//                               for t @block: a += p[t]
#pragma once
#include "search/gpu/general_kernel.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// sizes: see chain_schedule.h. UNSUPPORTED: it is no such row.
ir::Result<Scheduled> scan_schedule(const GeneralKernel& general, const ir::SymbolValues& sizes);
bool is_scan(const Schedule& schedule);
// What the moves of such a Schedule start from: the Kernel in parts of as many threads and neighbours as its knobs say.
// The general Kernel itself where these are none.
ir::Kernel kernel_of_scan(const GeneralKernel& general, const Schedule& schedule);

}  // namespace lathe::search
