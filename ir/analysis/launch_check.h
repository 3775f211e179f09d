// The rule "launch" of the verifier: where the scopes of a GPU's launch may stand.
//   @grid    inside @grid scopes alone; one around another holds nothing else: together they are one launch
//   @block   inside a @grid scope, outside @vector and @tensor scopes; its extent has a constant upper bound, which is
//            the number of threads: those past the extent do nothing
//   @tensor  of a GPU's instruction: inside a @grid scope
//   @role    of one iteration, inside a @grid scope, outside @block, @vector, @tensor and @role scopes
//   @cluster  of two iterations, inside @grid scopes alone, of which there is one; the innermost of these holds nothing
//            else
//   @persistent  of one iteration, inside @grid and @cluster scopes alone
//   neither of the first two stands inside a @parallel scope or around one
#pragma once
#include <vector>

#include "ir/analysis/analysis.h"
#include "ir/base/status.h"

namespace lathe::ir {

// outer: the scopes around `scope`, outermost first. ranges: those there.
Status check_launch_scope(const Stmt& scope, const std::vector<const Stmt*>& outer, const Ranges& ranges);

// How many blocks there are along a @grid scope: its extent; where that depends on scopes around it, as in the last of
// several groups, or is read, the most that it is, and blocks past it do nothing. Null: nothing bounds it.
Expr blocks_along(const Stmt& scope, const Ranges& outer);

// Far above what a GPU has: a bound that moves around the scope make less tight is still one.
inline constexpr int64_t kMostThreads = 1 << 16;

}  // namespace lathe::ir
