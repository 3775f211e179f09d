// Tiles of products on a GPU: what a block of threads computes, and a thread of it; which of them a GPU can run, and
// which is best for a shape by the bytes and instructions that it takes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "ir/base/gpu_target.h"
#include "ir/base/status.h"
#include "search/gpu/workspace.h"

namespace lathe::search {

// A block has rows x columns of the result, a thread some of each; depth terms are staged in shared memory at a time.
struct ProductTile {
  int64_t rows = 0, columns = 0, depth = 0, thread_rows = 0, thread_columns = 0;
  int64_t terms = 0;   // of a part of the sums, which blocks share; 0: a block sums all of them
  bool ahead = false;  // the next step is on its way in registers, and goes to the other of two places

  int64_t row_threads() const { return rows / thread_rows; }
  int64_t column_threads() const { return columns / thread_columns; }
  int64_t threads() const { return row_threads() * column_threads(); }
};
// rows 64..128, depth 8..32, ...: those that fit every GPU served, in the order of the table.
const std::vector<ProductTile>& product_tiles();

// INVALID, naming the rule: whole warps of at most 1024 threads; columns of a thread in whole vectors of 4; parts of
// whole steps; registers and static shared memory of every GPU served.
ir::Status check_tile(const ProductTile& tile);

struct ProductShape {
  int64_t batch = 1, rows = 1, columns = 1, depth = 1;
  bool copied = false;  // operands go to shared memory as they are given, 16 bytes at a time
  bool lines = false;   // results lie in lines of whole vectors of 16 bytes
  bool turned_rows = false, turned_columns = false;  // an operand's neighbours are terms, and it is turned round
  double most_results = 0;                           // of any call; 0: all are alike
  int64_t most_depth = 0;

  // Whether the workspace has room for parts of so many terms in every call.
  bool has_room_for(int64_t terms) const {
    if (terms < 1) return true;  // there are no parts
    const double results = static_cast<double>(batch * rows) * static_cast<double>(columns);
    return has_room(std::max(results, most_results), (std::max(depth, most_depth) + terms - 1) / terms);
  }
};
// Steps of operands in shared memory, of which one is used and the others are on their way: as many as fit.
int64_t product_stages(const ProductTile& tile);
// Cycles of a GPU: for ordering only.
double product_cycles(const ProductTile& tile, const ProductShape& shape, const ir::GpuTarget& gpu);
// The best tile for the shape first; blocks share sums where there are fewer tiles than multiprocessors.
std::vector<ProductTile> ranked_tiles(const ProductShape& shape, const ir::GpuTarget& gpu);

}  // namespace lathe::search
