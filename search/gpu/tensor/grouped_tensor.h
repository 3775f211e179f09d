// Products of groups of rows with weights of bf16 or f16 on tensor cores: a block has some columns of a group and goes
// through the tiles of its rows, of which it reads on the device how many there are.
//
//   for zm: for zn: y = 0
//   for t: for m < rows of t: for n: c = 0; for k: c += f32(a[r, k]) * f32(b[t, k, n]); y[r, n] = f(c)
//     -> for zm @grid: for threads: y = 0
//        for t @grid: for nb @grid: for mb: {the tile, as in tensor_moves.h}
#pragma once
#include <vector>

#include "ir/base/gpu_target.h"
#include "search/gpu/general_kernel.h"
#include "search/gpu/tensor/tensor_tiles.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// Tiles for it, the best first. sizes: see chain_schedule.h. UNSUPPORTED: it has no products of groups of bf16, or of
// f16.
ir::Result<std::vector<TensorTile>> grouped_tiles_of(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                                     const ir::GpuTarget& target);
// By the best tile.
ir::Result<Scheduled> grouped_tensor(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                     const ir::GpuTarget& target);
// By a tile of the caller's choice.
ir::Result<Scheduled> grouped_tensor(const GeneralKernel& general, const TensorTile& tile);

}  // namespace lathe::search
