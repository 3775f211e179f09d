// Products of matrices of bf16 or f16 on GPUs of compute capability 9.0, whose groups of four warps multiply tiles of
// shared memory while their threads go on (wgmma).
#pragma once
#include <vector>

#include "ir/base/gpu_target.h"
#include "search/gpu/general_kernel.h"
#include "search/gpu/tensor/group_tiles.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// Tiles for it, the best first. sizes: see chain_schedule.h. UNSUPPORTED: another GPU; no product of two matrices of
// bf16, or of f16; as few rows or columns as other Schedules are better at.
ir::Result<std::vector<GroupTile>> group_tiles_of(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                                  const ir::GpuTarget& target);
// By the best tile.
ir::Result<Scheduled> hopper_schedule(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                      const ir::GpuTarget& target);
// By a tile of the caller's choice.
ir::Result<Scheduled> hopper_schedule(const GeneralKernel& general, const GroupTile& tile);

}  // namespace lathe::search
