// How the operands of a matmul tile come to lie: moves of the matmul recipe that pack A's rows and lay out, transpose or copy B's panels. Each adds to
// a Script; a refusal sticks there.
#pragma once
#include <cstdint>
#include <string>

#include "ir/kernel.h"
#include "search/recipe.h"

namespace lathe::search {

// How to cut an extent: exact where it is whole tiles.
const char* tail_of(const ir::Expr& extent, int64_t tile, const ir::Kernel& kernel);

// The columns of a tile: panels and vectors unrolled.
void vectorize_tile(Script& s, const std::string& n, int64_t nr, int64_t panels, int64_t lanes, const char* tail);

// A as [tile][k][row], in scratch of the thread that owns the block `at`, or of all if A is packed before everything else. The
// copy's scopes are ap_0 (rows) and ap_1 (k).
void pack_rows(Script& s, const std::string& a, const std::string& at, int64_t mr, const char* tail);

// The layout [n / nr, k, n % nr].
void pack_panels(Script& s, const std::string& b, int b_n, int64_t nr);

// A panel of B that lies with unit-stride k is transposed into scratch before the tiles that use it. The copy's scopes are
// bt_0 and bt_1, in the order of B's dimensions.
void transpose_panel(Script& s, const std::string& b, bool n_first);

// A panel of B that lies row-major, copied together before the tiles that use it. The copy's scopes are bp_0 and bp_1, in the order of B's
// dimensions: k and n.
void copy_panel(Script& s, const std::string& b, int64_t lanes, const char* tail);

}  // namespace lathe::search
