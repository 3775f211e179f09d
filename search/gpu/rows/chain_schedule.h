// A nest of plain assignments on a GPU, such as an elementwise chain, a transpose or a gather: a thread takes four
// neighbouring elements of a row of the result, a block 256 threads or as many as there is work for, in rows and
// columns.
//
//   for i < D0: for j < D1: y = f(x, ...)
//     -> for ib @grid: for jb @grid: for it @block: for jt @block: for v < 4 @vector: y = f(x, ...)
#pragma once
#include "search/gpu/general_kernel.h"
#include "search/moves/schedule.h"

namespace lathe::search {

inline constexpr int64_t kChainBlock = 256;

// UNSUPPORTED: it is more than one perfect nest around plain assignments, or iterations depend on each other.
// sizes: of the general Kernel's symbols, those that most calls have: they choose the shape of the block, of at most so
// many threads, a power of two.
ir::Result<Scheduled> chain_schedule(const GeneralKernel& chain, const ir::SymbolValues& sizes, int64_t block);
inline ir::Result<Scheduled> chain_schedule(const GeneralKernel& chain, const ir::SymbolValues& sizes) {
  return chain_schedule(chain, sizes, kChainBlock);
}

}  // namespace lathe::search
