// Products of matrices on a GPU, with what is fused around them: a block of threads has a tile of the result, whose
// operands it stages in shared memory step by step; a thread has rows and vectors of columns of it in registers.
//
//   for m: for n: c = 0; for k: c += a[m, k] * b[k, n]; y = f(c)
//     -> for mb @grid: for nb @grid: c[..] = 0
//          for k0: {a_r = a; b_r = b; a_s = a_r; b_s = b_r; for threads: for k1: c[..] += a_s * b_s}
//          {the same of the last terms}
//          for threads: y = f(c)
#pragma once
#include "ir/base/gpu_target.h"
#include "search/gpu/general_kernel.h"
#include "search/gpu/product_tiles.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// Tiles for it, the best first. sizes: see chain_schedule.h. UNSUPPORTED: it is no sum of products of two matrices.
ir::Result<std::vector<ProductTile>> tiles_of_product(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                                      const ir::GpuTarget& target);
// By the best tile.
ir::Result<Scheduled> product_schedule(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                       const ir::GpuTarget& target);
// By a tile of the caller's choice.
ir::Result<Scheduled> product_schedule(const GeneralKernel& general, const ProductTile& tile);

// The same of integers of 8 bits, whose sums are i32: with the nests that sum rows and columns for zero points.
ir::Result<std::vector<ProductTile>> tiles_of_integers(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                                       const ir::GpuTarget& target);
ir::Result<Scheduled> integer_schedule(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                       const ir::GpuTarget& target);
ir::Result<Scheduled> integer_schedule(const GeneralKernel& general, const ProductTile& tile);

}  // namespace lathe::search
