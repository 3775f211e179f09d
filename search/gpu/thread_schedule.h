// What no other Schedule for GPUs fits: a thread has whole rows of the scopes around each nest, and does what is inside
// in order, such as sums of what comes before each element. Nests are launches, which hand each other temporaries.
//
//   for b: a = 0; for n: {a += x[b, n]; y[b, n] = a}
//     -> for bb @grid: for bt < 64 @block: a[] = 0; for n: {a[] += x[b, n]; y[b, n] = a[]}
//
// Integers that are neighbours are summed by a warp, 16 at a time.
#pragma once
#include "search/gpu/general_kernel.h"
#include "search/gpu/move_list.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// UNSUPPORTED: there is no scope around a nest, rows depend on each other, or a temporary of one nest has more than one
// element of a row.
ir::Result<Scheduled> thread_schedule(const GeneralKernel& rows, const ir::SymbolValues& sizes);

// The moves of all its nests but the last. UNSUPPORTED: as above.
ir::Status share_out_before(MoveList& list, const ir::Kernel& kernel);

}  // namespace lathe::search
