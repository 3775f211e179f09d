// Attention whose queries see a few keys at most, which leaves no softmax to be divided: a block of threads has a query
// of a head, a thread a key and then some columns.
//
//   for t: for h: for i: m; for j < E: {c; for d: c += q k; s; m}; a; for j1 < E: ..; for n: {for j2 < E: o += s v; y}
//     -> for t @grid: for h @grid: for i @grid: m; for jt < 4 @block: for ji < min(1, E - jt): {c; for d: ..; s; m}; a;
//        for j1t < 4 @block: ..; for nt @block: {for j2 < E: o += s v; y}
//
// Where loops alone say that there is one key at most, each thread goes through it.
#pragma once
#include "search/attention/parts.h"
#include "search/gpu/move_list.h"

namespace lathe::search {

// Keys for which each query has a thread: there is room for as few, or it sees no more than one. 0: they are not few.
int64_t few_keys(const ir::Kernel& kernel, const AttentionParts& p);
// keys: as few_keys() says.
ir::Result<Scheduled> few_keys_schedule(const ir::Kernel& kernel, const AttentionParts& p, int64_t keys);

}  // namespace lathe::search
