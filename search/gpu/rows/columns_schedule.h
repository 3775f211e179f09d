// Rows with several loops over columns in each, such as rope's: threads share out the columns of each loop, four
// neighbouring elements each, and a block takes as many rows as it has threads for.
//
//   for i < D0: {for p < 64: y = f(x, ...)}; {for q < 32: y = g(x, ...)}
//     -> for ib @grid: for it @block: {for pb: for pt @block: for v < 4 @vector: y = f(x, ...)}; {the same of q}
#pragma once
#include "search/gpu/general_kernel.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// UNSUPPORTED: it is anything else, or iterations depend on each other. sizes: see chain_schedule.h.
ir::Result<Scheduled> columns_schedule(const GeneralKernel& rows, const ir::SymbolValues& sizes);

}  // namespace lathe::search
