// Launches of attention beside that which multiplies. The one after it, of keys that are divided into parts: a block of
// threads has a row.
//
//   for row: {m_all; for parts: m_all fmax= m; a_all; for parts: a_all += a w; r; for columns: for parts: o_all += o w}
//     -> for row @grid: {for parts @block: m_all; for parts @block: a_all;
//                        for columns @block: for parts: for 16 parts @unroll: o_all += o w}
#pragma once
#include <string>
#include <vector>

#include "ir/core/kernel.h"
#include "search/attention/parts.h"
#include "search/gpu/move_list.h"

namespace lathe::search {

// scopes: of the first launch around a row, and the row; part: its keys.
void put_together(MoveList& list, const ir::Kernel& kernel, const AttentionParts& p,
                  const std::vector<std::string>& scopes, const std::string& row, int64_t part);

// Results of rows that belong to no sequence: the first launch of unequal sequences.
void clear_rows(MoveList& list, const AttentionParts& p);

}  // namespace lathe::search
