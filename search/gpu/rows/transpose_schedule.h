// A copy whose rows in one memory are columns in the other: a block of threads reads a square along the rows of the one
// into shared memory, and writes it along the rows of the other.
//
//   for i: for j: d[i, j] = s[j, i]
//     -> for ib @grid: for jb @grid: {for threads: s_s[j, i] = s[j, i]}; {for threads: d[i, j] = s_s[j, i]}
#pragma once
#include "search/gpu/general_kernel.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// UNSUPPORTED: it is no such copy, or one of its sides is so short that squares would be empty mostly. sizes: see
// chain_schedule.h.
ir::Result<Scheduled> transpose_schedule(const GeneralKernel& copy, const ir::SymbolValues& sizes);

}  // namespace lathe::search
