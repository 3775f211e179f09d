// Products of matrices of bf16 or f16 on GPUs of compute capability 9.0, whose groups of four warps multiply tiles of
// shared memory while their threads go on (wgmma).
#pragma once
#include <cstdint>
#include <vector>

#include "ir/base/gpu_target.h"
#include "search/gpu/general_kernel.h"
#include "search/gpu/product_form.h"
#include "search/gpu/product_tiles.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// A block has rows x columns of the result, a group 64 rows and some columns; 64 terms are staged in shared memory at a
// time. stages: 0: threads copy them, a step ahead; else the hardware copies boxes of both factors, which are given,
// and so many steps lie in shared memory.
struct GroupTile {
  int64_t rows = 0, columns = 0, group_columns = 0, stages = 0;
  int64_t raster = 0;       // so many tiles below each other come before those beside them; 0: those of a row do
  bool roles = false;       // four warps more ask for the boxes, and the groups only multiply
  bool persistent = false;  // with roles: a block goes through several tiles
  bool staged = false;      // results go through shared memory (staged_results.h)
  // With roles: two blocks have tiles below each other, or beside, and share the factor that both need.
  TilePairs pairs = TilePairs::none;

  // That multiply.
  int64_t threads() const { return rows / 64 * (columns / group_columns) * 128; }
};
const std::vector<GroupTile>& group_tiles();
// INVALID, naming the rule: rows by 64, at most 256 columns of a group; at most 1024 threads; registers and shared
// memory.
ir::Status check_tile(const GroupTile& tile);
// Cycles of a GPU: for ordering only.
double group_cycles(const GroupTile& tile, const ProductShape& shape, const ir::GpuTarget& gpu);
// The best tile for the shape first.
std::vector<GroupTile> ranked_group_tiles(const ProductShape& shape, const ir::GpuTarget& gpu);

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
