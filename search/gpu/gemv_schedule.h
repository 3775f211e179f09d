// Products with few rows or few columns on a GPU, such as a decoder's: time goes into reading the large operand once. A
// block's threads share out its elements, 16 bytes each, and add up what they have.
//
//   terms are neighbours in memory: a warp takes a column of the result for few rows, a row for few columns, and its
//     lanes the terms, 4 each
//   columns (or rows) are: 8 lanes take 4 of them, and an eighth of the terms each
//
// A thread loads several vectors before it uses the first of them.
//
// Blocks share sums where there are fewer of them than multiprocessors (split_sum.h).
#pragma once
#include "ir/base/gpu_target.h"
#include "search/gpu/general_kernel.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// At most so many rows or columns are few.
inline constexpr int64_t kFewLines = 8;

// Vectors that are on their way to a thread.
inline constexpr int64_t kAtOnce = 4, kOthersAtOnce[] = {8, 2};

// UNSUPPORTED: it is no product, or has neither few rows nor few columns. sizes: see chain_schedule.h.
ir::Result<Scheduled> gemv_schedule(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                    const ir::GpuTarget& target, int64_t at_once = kAtOnce);

}  // namespace lathe::search
