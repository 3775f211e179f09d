// The condition under which an iteration runs, as short as what is known around it allows: tails of tiles are minima
// of minima, of which a thread that is inside of a tile needs to look at the last one only.
//   i < min(8, min(64, N - 64*b) - 8*w), where i < 8 and w < 8   ->   i + 8*w + 64*b < N
#pragma once
#include "ir/analysis/analysis.h"

namespace lathe::jit {

// less < than. Null: it always holds.
ir::Expr guard_of(const ir::Expr& less, const ir::Expr& than, const ir::Ranges& ranges);

}  // namespace lathe::jit
