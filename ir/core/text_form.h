// The text form of a Kernel, both ways: parse(print(k)) equals k for every kernel that verifies (property-tested).
// docs/ir.md shows the grammar. Thread-safe.
#pragma once
#include <string>
#include <string_view>

#include "ir/base/status.h"
#include "ir/core/kernel.h"

namespace lathe::ir {

std::string print(const Kernel& kernel);
std::string print(const Expr& e);
std::string print(const std::vector<Stmt>& body, int indent = 0);

// INVALID with "line 3, column 7: expected ..." on malformed text.
Result<Kernel> parse_kernel(std::string_view text);

}  // namespace lathe::ir
