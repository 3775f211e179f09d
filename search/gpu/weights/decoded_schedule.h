// Products with a weight of few bits on a GPU, whose elements are decoded from blocks of terms (see decoded_weight.h):
// terms are cut into blocks and these into halves, again and again, so that every index of a field is a sum.
//
//   few rows: lanes of a warp have 32 terms each, whose bytes they read at once; weights are decoded 8 at a time, for
//   all rows
//     for mb @grid: for nb @grid: for ni @block: c[..] = 0
//       for lanes @block: for turns: {q_r = q; for halves: {w_r[8] = decode(q_r); for mi: for v < 8: c[mi] += a * w_r}}
//       y = f(c)
//   more: a block has a tile of the result, and stages 32 terms of both factors in shared memory, the weights decoded
#pragma once
#include "search/gpu/general_kernel.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// UNSUPPORTED: it is no product with a decoded weight, or its terms are no whole blocks. sizes: see chain_schedule.h.
ir::Result<Scheduled> decoded_schedule(const GeneralKernel& general, const ir::SymbolValues& sizes);
// Where blocks are of another size or the depth ends inside of one: a thread has an output, and takes the terms in
// order.
ir::Result<Scheduled> outputs_schedule(const GeneralKernel& general, const ir::SymbolValues& sizes);

}  // namespace lathe::search
