// Attention on tensor cores: a block of threads takes a tile of queries of a head and goes through the keys in blocks,
// with a softmax as it goes. A warp has 16 queries: their scores, weights and sums of values are in its registers,
// shared out among its threads as the instruction wants them, and weights become a factor where they are.
//
//   for t: for h: for i: m; for j: {s = q k; m fmax= s}; for j1: {s = exp2(s - m); a += s}; for n: for j2: o += s v
//     -> for t @grid: for h @grid: for ib @grid: q_s = q; for warps: q_f = q_s @tensor(ldmatrix)
//          for kb: {k_s = k; v_s = v; for warps: c += q_f k_f @tensor(mma);
//                   for warps: for lanes: {m, a; p = bf16(exp2(c - m)); o *= exp2(m_old - m)};
//                   for warps: o += p v_f @tensor(mma)}
//          for warps: for lanes: y = o / a
//
// Weights are rounded to the type of the values: the numeric class bf16_dots. Or, where values are bf16, a weight is a
// sum of three numbers of bf16, which have all its bits, and sums of values have three products for one.
#pragma once
#include <vector>

#include "ir/base/gpu_target.h"
#include "search/gpu/general_kernel.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// Queries of a block, 16 for each warp; keys at a time; blocks of keys in shared memory, of which one is used and the
// others are on their way.
struct AttentionTile {
  int64_t rows = 64, keys = 64, stages = 2;
  bool split = false;  // weights, into three numbers
  int64_t threads() const { return rows / 16 * 32; }
};
// INVALID, naming the rule: whole warps, squares of 16 x 16, shared memory of some GPU. depth, columns: of a key, of a
// value.
ir::Status check_tile(const AttentionTile& tile, int64_t depth, int64_t columns);
// Of a block.
int64_t shared_bytes(const AttentionTile& tile, int64_t depth, int64_t columns);

// Tiles for it, the best first; none where few queries leave tensor cores idle. allowed: numeric classes beside those
// that all Schedules for GPUs may take. sizes: see chain_schedule.h. UNSUPPORTED: it is no attention, or a form that
// tensor cores do not take.
ir::Result<std::vector<AttentionTile>> attention_tiles_of(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                                          const ir::GpuTarget& target, uint32_t allowed);
ir::Result<Scheduled> tensor_attention(const GeneralKernel& general, const AttentionTile& tile);

}  // namespace lathe::search
