// Products of few rows of bf16 with a weight of few bits on tensor cores: weights are the rows of the instruction, and a
// thread decodes those that it has of a factor into its registers, each as the sum of numbers of bf16 (the move
// split_factor). Nothing goes through shared memory, so no warp waits for another.
//
//   for n: for k: w[n, k] = f(q);  for m: for n: c = 0; for k: c += f32(a[m, k]) * w[n, k]; y = f(c)
//     -> for mb @grid: for nb @grid: for warps: c[..] = 0
//          for blocks of terms: {q_r = q; for 16 terms: {for lanes: w_r = f(q_r); w_f[p] = part p of w_r;
//                                                        a_f = a; for p: c[..] += a_f * w_f[p] @tensor(mma_bf16)}}
//          y = f(c)
#pragma once
#include "ir/base/gpu_target.h"
#include "search/gpu/general_kernel.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// Outputs of a block, 16 for each warp; rows; blocks of terms on their way at a time; terms of a part of the sums, which
// blocks share; 0: a block sums all of them.
struct FewTile {
  int64_t outputs = 64, rows = 16, at_once = 4, terms = 0;
};

// Tiles for it, the best first. sizes: see chain_schedule.h. UNSUPPORTED: it is no product of rows of bf16 with a
// decoded weight, of up to 16 rows; bytes of its fields do not lie as its terms do.
ir::Result<std::vector<FewTile>> few_tiles_of(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                              const ir::GpuTarget& target);
ir::Result<Scheduled> decoded_few(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                  const ir::GpuTarget& target);
ir::Result<Scheduled> decoded_few(const GeneralKernel& general, const FewTile& tile);

}  // namespace lathe::search
