// Appending to a cache on a GPU: a block has some heads of a token, a few neighbouring lanes each of them.
//
//   for h: for t: for u < [slots[t] names a row]: {v = 0; for n: v += ...;  for p: c[slots[t], h, p] = ...}
//     -> for hb @grid: for ht @block: for t: for u: {v = 0; for nt @block: for ni: for nv @vector: v += ...;  ...}
//
// Of two tokens with one slot the later one stays, so a block goes through them in their order.
#pragma once
#include "search/gpu/general_kernel.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// sizes: see chain_schedule.h. UNSUPPORTED: it appends to no cache.
ir::Result<Scheduled> append_schedule(const GeneralKernel& general, const ir::SymbolValues& sizes);

}  // namespace lathe::search
