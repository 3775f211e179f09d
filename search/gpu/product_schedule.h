// Products of matrices on a GPU, with what is fused around them: a block of threads has a tile of the result, whose
// operands it stages in shared memory step by step; a thread has rows and vectors of columns of it in registers.
//
//   for m: for n: c = 0; for k: c += a[m, k] * b[k, n]; y = f(c)
//     -> for mb @grid: for nb @grid: c[..] = 0
//          for k0: {a_r = a; b_r = b; a_s = a_r; b_s = b_r; for threads: for k1: c[..] += a_s * b_s}
//          {the same of the last terms}
//          for threads: y = f(c)
#pragma once
#include "search/gpu/general_kernel.h"
#include "search/gpu/product_tiles.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// UNSUPPORTED: it is no sum of products of two matrices. sizes: see chain_schedule.h.
ir::Result<Scheduled> product_schedule(const GeneralKernel& general, const ir::SymbolValues& sizes);
// The same with a tile of the caller's choice.
ir::Result<Scheduled> product_schedule(const GeneralKernel& general, const ProductTile& tile);

}  // namespace lathe::search
