// Appending to a cache on a GPU: a block has some heads of a token, some neighbouring lanes each of them.
//
//   for h: for t: for u < [slots[t] names a row]: {v = 0; for n: v += ...;  for p: c[slots[t], h, p] = ...}
//     -> for hb @grid: for ht @block: for t: for u: {v = 0; for nt @block: for ni: for nv @vector: v += ...;  ...}
//
// Of two tokens with one slot the later one stays. So a block goes through few tokens in their order. Of many a launch
// before finds those that no later one replaces, and each of these has a block of its own:
//
//     -> for each @grid: [is there a later one with this slot?]
//        for t @grid: for hb @grid: for ht @block: for once < last[t]: for u: ...
#pragma once
#include <optional>

#include "search/gpu/general_kernel.h"
#include "search/moves/schedule.h"

namespace lathe::search {

bool appends(const GeneralKernel& general);
// sizes: see chain_schedule.h. together: whether tokens run at once; nothing: as their number asks for. UNSUPPORTED: it
// appends to no cache.
ir::Result<Scheduled> append_schedule(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                      std::optional<bool> together = std::nullopt);

}  // namespace lathe::search
