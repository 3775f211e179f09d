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
#include <cstdint>

#include "search/gpu/general_kernel.h"
#include "search/moves/schedule.h"

namespace lathe::search {

bool is_attention(const GeneralKernel& general);
// What a block of 128 threads does with some keys at a time: for the ranking of parts.
struct HeadsStep {
  int64_t rows, keys;   // heads that share the keys
  int64_t turns;        // of loads, one after another
  double instructions;  // of a warp
  int64_t registers;    // of a thread
  int64_t shared;       // bytes
};
ir::Result<HeadsStep> heads_step(const GeneralKernel& general, int64_t part);

// By parts of so many keys, each with a block of threads; 0: all are one part. UNSUPPORTED: it is no attention, or
// columns vary in number.
ir::Result<Scheduled> attention_schedule(const GeneralKernel& general, int64_t part);

}  // namespace lathe::search
