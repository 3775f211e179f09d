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
// With few queries the rows of a tile are the heads that share keys, of one query, and keys may be divided into parts,
// each with a block of its own; a second launch puts together what parts have, in their order.
//
//   for t @grid: for hk @grid: for i @grid: for parts @grid: {as above, of 16 heads; m_part, a_part, o_part}
//   for t @grid: for h @grid: for i @grid: {m, a of the parts; y = o / a}
//
// Weights are rounded to the type of the values: the numeric class bf16_dots. Or, where values are bf16, a weight is a
// sum of three numbers of bf16, which have all its bits, and sums of values have three products for one.
//
// On GPUs of compute capability 9.0 groups of four warps may multiply together (wgmma): 64 queries each, which are in
// registers from the start, as are weights; the hardware copies keys and values in boxes to a ring, out of which all of
// a group's products read.
#pragma once
#include <cstdint>

#include "search/attention/parts.h"
#include "search/gpu/general_kernel.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// Queries of a block, 16 for each warp; keys at a time; blocks of keys in shared memory, of which one is used and the
// others are on their way.
struct AttentionTile {
  int64_t rows = 64, keys = 64, stages = 2;
  bool split = false;   // weights, into three numbers
  bool heads = false;   // rows are the heads that share keys, of one query
  int64_t part = 0;     // keys of a part; 0: all. Only of heads
  bool groups = false;  // of four warps, which multiply together (wgmma)
  int64_t threads() const { return rows / 16 * 32; }
};
// Of a block.
int64_t shared_bytes(const AttentionTile& tile, int64_t depth, int64_t columns);

// Whether queries of that depth stay in registers.
bool keeps_queries(int64_t depth);

// Its loops. UNSUPPORTED: it is no attention, or a form that tensor cores do not take.
ir::Result<AttentionParts> tensor_parts(const GeneralKernel& general);
// Keys for which there is room at most.
int64_t most_room(const ir::Kernel& kernel, const AttentionParts& p);
// Whether keys and values are i8, with a scale of each.
bool are_bytes(const ir::Kernel& kernel);
// Of the mask that is added to scores; null: there is none.
ir::Expr load_of_mask(const ir::Kernel& kernel, const AttentionParts& p);
// INVALID, naming the rule: whole warps, squares of 16 x 16, shared memory of some GPU, parts of heads alone.
// UNSUPPORTED: not with that attention. A window takes more keys than the stages have; a tile has no more queries or
// keys than there may be.
ir::Status check_tile(const AttentionTile& tile, const ir::Kernel& kernel, const AttentionParts& p);
// By such a tile.
ir::Result<Scheduled> tensor_attention(const GeneralKernel& general, const AttentionTile& tile);

}  // namespace lathe::search
