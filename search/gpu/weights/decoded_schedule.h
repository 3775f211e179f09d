// Products of many rows with a weight of few bits on a GPU, whose elements are decoded from blocks of terms (see
// decoded_weight.h): terms are cut into blocks and these into halves, again and again, so that every index of a field
// is a sum. A block of threads has a tile of the result, and stages 32 terms of both factors in shared memory, the
// weights decoded. Blocks share sums where there are few of them (split_sum.h).
#pragma once
#include <vector>

#include "ir/base/gpu_target.h"
#include "search/gpu/general_kernel.h"
#include "search/moves/schedule.h"

namespace lathe::search {

struct DecodedTile {
  int64_t rows = 16;  // of a block of threads: 16, 32, 64 or 128
  int64_t terms = 0;  // of a part of the sums, which blocks share; 0: a block sums all of them
};

// The best first. sizes: see chain_schedule.h. UNSUPPORTED: it is no product with a decoded weight.
ir::Result<std::vector<DecodedTile>> decoded_rows_of(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                                     const ir::GpuTarget& target);
// UNSUPPORTED: or its terms are no whole blocks.
ir::Result<Scheduled> decoded_schedule(const GeneralKernel& general, const DecodedTile& tile);
// By the best.
ir::Result<Scheduled> decoded_schedule(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                       const ir::GpuTarget& target);
// Where blocks are of another size or the depth ends inside of one: a thread has an output, and takes the terms in
// order.
ir::Result<Scheduled> outputs_schedule(const GeneralKernel& general, const ir::SymbolValues& sizes);

}  // namespace lathe::search
