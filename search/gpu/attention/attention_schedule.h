// Attention on a GPU: a block of threads takes the queries that share keys and values, one of each head, and goes
// through the keys in blocks, with a softmax as it goes. Lanes take neighbours of a key's depth, 16 bytes each, and
// some of them together a key; the same threads take columns of values for the sums.
//
//   for t: for h: for i: m; for j: {s = q k; m fmax= s}; for j1: {s = exp2(s - m); a += s}; for n: for j2: o += s v
//     -> for t @grid: for hk @grid: for i @grid: q_s = q
//          for b: {for jt @block: {for dt @block: s += q_s k}}; {for g @block: m, a, s = exp2(s - m)};
//                 {for jt @block: for nt @block: o_run[jt] *= w; o_run[jt] += s v}
//          o = sum of o_run; y = o / a
//
// Where there are too few blocks of threads, keys are divided into parts, each with a block of its own, and a second
// launch puts together what parts have. Queries of unequal numbers are gone through by their rows of the result: the
// first launch clears them, and a block looks for the sequences that its row belongs to.
#pragma once
#include <vector>

#include "ir/base/gpu_target.h"
#include "search/gpu/general_kernel.h"
#include "search/moves/schedule.h"

namespace lathe::search {

bool is_attention(const GeneralKernel& general);
// Numbers of keys that a block of threads takes, the best first; 0: all. UNSUPPORTED: it is no attention, or depth or
// columns vary in number. sizes: see chain_schedule.h.
ir::Result<std::vector<int64_t>> key_parts(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                           const ir::GpuTarget& target);
// By one of them.
ir::Result<Scheduled> attention_schedule(const GeneralKernel& general, int64_t part);
// By the best.
ir::Result<Scheduled> attention_schedule(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                         const ir::GpuTarget& target);

}  // namespace lathe::search
