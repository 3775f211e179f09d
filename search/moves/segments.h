// Segments that integers give: iterations of a scope that have rows of their own, from one integer to the next.
//
//   for t < 5: for m < off[t + 1] - off[t]: y[off[t] + m] = ...
//
// Such integers rise: callers are held to it or warned, so the rows of two iterations are apart.
#pragma once
#include <string>
#include <vector>

#include "ir/core/kernel.h"

namespace lathe::search {

// The buffers that each iteration touches in its segment alone.
std::vector<std::string> in_segments(const ir::Stmt& scope);

}  // namespace lathe::search
