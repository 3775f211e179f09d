// Results of a product on tensor cores that go through shared memory: each warp turns 16 x 32 of its sums at a time
// from the way the instruction shares them out to lines of neighbours, so that all that is fused behind the product
// reads and stores 16 bytes an access. Nobody waits for another warp.
#pragma once
#include <cstdint>

#include "ir/core/kernel.h"
#include "search/gpu/move_list.h"
#include "search/gpu/product_form.h"

namespace lathe::search {

inline constexpr int64_t kStagedColumns = 32;  // at a time
// Of shared memory, of a block of so many threads.
int64_t staged_bytes(int64_t threads);
// Whether neighbours along n are neighbours in all that is made of sums.
bool has_lines(const ir::Kernel& kernel, const ProductForm& form);
// For a tile that tile_result() made, all of the grid being there. A part has rows x columns of it: a warp does, or
// four of them do, each 16 of every 64 rows. whole: tiles have all their columns.
//
//   for mie: for nie: y = f(c)
//     -> for parts @block: for squares of 16 x 32:
//          {for lanes: o[part, ..] = c; for lanes: y = f(o[part, ..])}     (o: shared)
void stage_results(MoveList& list, const ProductForm& form, int64_t rows, int64_t columns, bool groups, bool whole);

}  // namespace lathe::search
