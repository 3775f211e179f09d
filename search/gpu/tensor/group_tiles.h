// Tiles of products of which groups of four warps multiply tiles of shared memory: which of them a GPU can run, and
// which is best for a shape by the bytes and instructions that it takes.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/base/gpu_target.h"
#include "search/gpu/product_form.h"
#include "search/gpu/product_tiles.h"

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
  bool swapped = false;  // with roles: rows are columns of the result, and columns its rows
  int64_t terms = 0;     // with roles: of a part of the sums, which blocks share; 0: a block sums all of them

  static constexpr int64_t depth = 64;  // of a step
  // That multiply.
  int64_t threads() const { return rows / 64 * (columns / group_columns) * 128; }
};
const std::vector<GroupTile>& group_tiles();
// INVALID, naming the rule: rows by 64, at most 256 columns of a group; at most 1024 threads; registers and shared
// memory.
ir::Status check_tile(const GroupTile& tile);
// Those of a result of few rows, which are columns of the instruction: as many as there are, or a part of them.
std::vector<GroupTile> swapped_tiles(const ProductShape& shape);
// Cycles of a GPU: for ordering only.
double group_cycles(const GroupTile& tile, const ProductShape& shape, const ir::GpuTarget& gpu);
// The best tile for the shape first.
std::vector<GroupTile> ranked_group_tiles(const ProductShape& shape, const ir::GpuTarget& gpu);

}  // namespace lathe::search
