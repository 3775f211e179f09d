// Products of few rows with a weight of few bits on a GPU: each weight is read once and decoded once for the rows of a
// block. Some neighbouring lanes share the terms of an output, 32 of them each, so that those of other outputs read the
// same activations: a warp asks for few lines of these at once. A lane has some outputs, for which it reads activations
// once. Several rows are copied to shared memory first.
//
//   for mb @grid: for nb @grid: for nt @block: c[..] = 0
//     for lanes @block: for turns: q_r = q
//       for steps: {a_r = a; w_r = decode(q_r); for rows: for outputs: for 4 terms: c[..] += a_r * w_r}
//     y = f(c)
//
// Blocks share sums where there are few of them (split_sum.h).
#pragma once
#include <vector>

#include "ir/base/gpu_target.h"
#include "search/gpu/general_kernel.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// At most so many rows are few.
inline constexpr int64_t kFewRows = 16;

struct DecodedLines {
  int64_t rows = 1;     // of a block, all of a lane
  int64_t outputs = 1;  // of a lane
  int64_t lanes = 4;    // that share the terms of an output
  int64_t warps = 4;    // of a block
  int64_t at_once = 1;  // times 32 terms of a lane, whose bytes are on their way together
  int64_t terms = 0;    // of a part of the sums, which blocks share; 0: a block sums all of them
  bool staged = false;  // the rows of a block lie in shared memory
};

// The best first. sizes: see chain_schedule.h. UNSUPPORTED: it is no product with a decoded weight, its terms are no
// whole blocks, or rows are more.
ir::Result<std::vector<DecodedLines>> decoded_lines_of(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                                       const ir::GpuTarget& target);
ir::Result<Scheduled> decoded_lines(const GeneralKernel& general, const DecodedLines& lines);
// By the best.
ir::Result<Scheduled> decoded_lines(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                    const ir::GpuTarget& target);

}  // namespace lathe::search
