// Products of groups of rows, each group with a weight of its own, on a GPU: how many rows a group has is known on the
// device alone, so a block has some columns of a group and goes through the tiles of its rows. A group without rows
// reads nothing of its weight.
//
//   for zm: for zn: y = 0
//   for t: for m < rows of t: for n: c = 0; for k: c += a[r, k] * b[t, k, n]; y[r, n] = f(c)
//     -> for zm @grid: for threads: y = 0
//        for t @grid: for nb @grid: for mb: c[..] = 0
//          for k0: {a_s = a; b_s = b; for threads: for k1: c[..] += a_s * b_s}; for threads: y = f(c)
#pragma once
#include "search/gpu/general_kernel.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// UNSUPPORTED: it is anything else. sizes: see chain_schedule.h.
ir::Result<Scheduled> grouped_schedule(const GeneralKernel& general, const ir::SymbolValues& sizes);

}  // namespace lathe::search
