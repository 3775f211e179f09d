// Reductions of rows and what normalises by them, on a GPU: softmax, norms, sums, means, maxima. Some threads share a
// row and reduce it together; a block has 256 threads, or more where a row needs them. Where a row fits into the
// registers of its threads, each input is read once, else in every pass.
//
//   for b < B: m[b] = 0; for n < N: m[b] += f(x[b, n]); ...
//     -> for bb @grid: for br < R @block: m[] = 0; for nt < T @block: for ni: for nv < 4 @vector: m[] += ...
#pragma once
#include "search/gpu/general_kernel.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// sizes: of the general Kernel's symbols, those that most calls have. UNSUPPORTED: there are no rows with loops of
// statements in each, one of which reduces.
ir::Result<Scheduled> rows_schedule(const GeneralKernel& rows, const ir::SymbolValues& sizes);
// What the moves of such a Schedule start from: the general Kernel with what is known of the lengths of rows, to which
// the Schedule's knobs add the longest that its registers hold. The general Kernel itself for any other Schedule. The
// lengths of all calls are within, whoever wrote the knobs.
ir::Kernel kernel_of_rows(const GeneralKernel& general, const Schedule& schedule);

}  // namespace lathe::search
