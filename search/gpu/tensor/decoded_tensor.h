// Products of rows of bf16 with a weight of few bits on tensor cores: a block decodes the weights of a step into shared
// memory, each as the sum of two or three numbers of bf16 (the move split_factor), whose products with the rows are
// those of its f32. The warps of the block multiply what is there. Blocks share sums where there are few of them
// (split_sum.h). A caller who allows it has both factors rounded to bf16 instead (round_factors): rows may be of f32,
// and a weight is one number. Groups of rows that integers divide have weights of their own (DecodedForm).
//
//   for n: for k: w[n, k] = f(q);  for m: for n: c = 0; for k: c += f32(a[m, k]) * w[n, k]; y = f(c)
//     -> for mb @grid: for nb @grid: c[..] = 0
//          for k0: {a_s = a; q_r = q; w_r = f(q_r); for p: w_s[p] = part p of w_r;
//                   for warps: for kk: for p: c[..] += a_s * w_s[p] @tensor(mma_bf16)}
//          y = f(c)
#pragma once
#include <vector>

#include "ir/base/gpu_target.h"
#include "search/gpu/general_kernel.h"
#include "search/gpu/tensor/tensor_tiles.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// Tiles for it, the best first. sizes: see chain_schedule.h. rounded: both factors are rounded. UNSUPPORTED: it is no
// product of rows of bf16, or of f32 that are rounded, with a decoded weight; its terms are no whole blocks; it has as
// few rows as other Schedules are better at.
ir::Result<std::vector<TensorTile>> decoded_tiles_of(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                                     const ir::GpuTarget& target, bool rounded = false);
// By the best tile.
ir::Result<Scheduled> decoded_tensor(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                     const ir::GpuTarget& target, bool rounded = false);
// By a tile of the caller's choice, of steps of 32 terms.
ir::Result<Scheduled> decoded_tensor(const GeneralKernel& general, const TensorTile& tile, bool rounded = false);

}  // namespace lathe::search
