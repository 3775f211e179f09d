// Attention whose keys are known to be at most one, which leaves no softmax to be divided: a block of threads has a
// query of a head.
//
//   for t: for h: for i: m; for j < 1: {c; for d: c += q k; s; m}; a; for j1 < 1: ..; for n: {for j2 < 1: o += s v; y}
//     -> for t @grid: for h @grid: for i @grid: {as it was, by each thread; for n @block: {o; y}}
#pragma once
#include "search/attention/parts.h"
#include "search/gpu/move_list.h"

namespace lathe::search {

bool has_one_key(const ir::Kernel& kernel, const AttentionParts& p);
ir::Result<Scheduled> one_key_schedule(const ir::Kernel& kernel, const AttentionParts& p);

}  // namespace lathe::search
