// Attention whose keys are known to be a few at most, which leaves no softmax to be divided: a block of threads has a
// query of a head.
//
//   for t: for h: for i: m; for j < 4: {c; for d: c += q k; s; m}; a; for j1 < 4: ..; for n: {for j2 < 4: o += s v; y}
//     -> for t @grid: for h @grid: for i @grid: m; for j @block: {c; for d: ..; s; m}; a; for j1 @block: ..;
//        for n @block: {for j2 < 4: o += s v; y}
#pragma once
#include "search/attention/parts.h"
#include "search/gpu/move_list.h"

namespace lathe::search {

inline constexpr int64_t kFewKeys = 8;  // blocks of fewer keys have no parts to add up

bool has_one_key(const ir::Kernel& kernel, const AttentionParts& p);
bool has_few_keys(const ir::Kernel& kernel, const AttentionParts& p);
ir::Result<Scheduled> few_keys_schedule(const ir::Kernel& kernel, const AttentionParts& p);

}  // namespace lathe::search
