// What holds in the body of scopes because each of them runs: its extent is at least 1 there.
#pragma once
#include <vector>

#include "ir/analysis/analysis.h"
#include "ir/core/kernel.h"

namespace lathe::ir {

// 0 <= e.
bool proves_begun(const Expr& e, const Ranges& ranges, const std::vector<const Stmt*>& scopes);
// 0 <= index < size.
bool proves_inside(const Expr& index, const Expr& size, const Ranges& ranges, const std::vector<const Stmt*>& scopes);

}  // namespace lathe::ir
