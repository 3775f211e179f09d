// Tiles of products on tensor cores: what a block of threads computes, and a warp of it; which of them a GPU can run,
// and which is best for a shape by the bytes and instructions that it takes.
#pragma once
#include "search/gpu/product_tiles.h"

namespace lathe::search {

// A block has rows x columns of the result, a warp some of each; depth terms are staged in shared memory at a time, in
// as many stages, of which one is used and the others are on their way. Of a swapped tile, rows are columns of the
// result, and columns its rows.
struct TensorTile {
  int64_t rows = 0, columns = 0, depth = 0, warp_rows = 0, warp_columns = 0;
  int64_t stages = 1;
  bool swapped = false;
  int64_t terms = 0;      // of a part of the sums, which blocks share; 0: a block sums all of them
  bool staged = false;    // results go through shared memory (staged_results.h)
  bool swizzled = false;  // what is staged of operands is swizzled; else its lines are padded
  int64_t raster = 0;     // so many tiles below each other come before those beside them; 0: those of a row do

  int64_t threads() const { return rows / warp_rows * (columns / warp_columns) * 32; }
};
// Those of one stage that fit every GPU served, and those that have too few registers for one, of two stages; in the
// order of the table.
const std::vector<TensorTile>& tensor_tiles();

// INVALID, naming the rule: whole warps of at most 1024 threads; squares of 16 x 8; a depth of whole pairs of 16; parts
// of whole steps; results that are staged; registers and shared memory of some GPU.
ir::Status check_tile(const TensorTile& tile);
// Of a block.
int64_t shared_bytes(const TensorTile& tile);

// Cycles of a GPU: for ordering only.
double tensor_cycles(const TensorTile& tile, const ProductShape& shape, const ir::GpuTarget& gpu);
// The best tile for the shape first; each of the table with the number of stages that is best for it, and with sums
// that blocks share where there are fewer tiles than multiprocessors.
std::vector<TensorTile> ranked_tensor_tiles(const ProductShape& shape, const ir::GpuTarget& gpu);

}  // namespace lathe::search
