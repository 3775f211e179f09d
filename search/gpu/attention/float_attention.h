// Attention of f32 with many queries: a block of threads takes a tile of queries of a head and goes through the keys in
// blocks, with a softmax as it goes. A thread has 8 queries, some keys of a block for their scores, and some columns
// for their sums of values, all in registers, so it multiplies several times what it reads from shared memory once.
//
//   for t: for h: for i: m; for j: {s = q k; m fmax= s}; for j1: {s = exp2(s - m); a += s}; for n: for j2: o += s v
//     -> for ib @grid: for h @grid: q_s = q
//          for kb: {k_s = k; v_s = v; for rows @block: for keys @block: for d: for 8 rows: for keys: c += q_s k_s;
//                   for rows @block: for 8 rows: {m, a over keys @block; s = exp2(c - m); o *= exp2(m_old - m)};
//                   for rows @block: for columns @block: for j2: for 8 rows: for columns: o += s v_s}
//          for rows: y = o / a
#pragma once
#include <cstdint>

#include "search/attention/parts.h"
#include "search/gpu/general_kernel.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// Queries of a block of threads, and keys at a time.
struct FloatTile {
  static constexpr int64_t thread_rows = 8;
  int64_t rows = 64, keys = 64, threads = 128;
  int64_t lanes() const { return threads * thread_rows / rows; }  // that share a query
};
// Of a block.
int64_t shared_bytes(const FloatTile& tile, int64_t depth, int64_t columns);

// Its loops. UNSUPPORTED: it is no attention, or not of f32 as it is given, or its depth or columns are no vectors.
ir::Result<AttentionParts> float_parts(const GeneralKernel& general);
// INVALID, naming the rule: queries that warps share out whole, keys and columns that all lanes have as many of.
ir::Status check_tile(const FloatTile& tile, const AttentionParts& p);
// By such a tile.
ir::Result<Scheduled> float_attention(const GeneralKernel& general, const FloatTile& tile);

}  // namespace lathe::search
