// The text of integers and conditions in the dialect of cuda_text.h.
#pragma once
#include <string>

#include "ir/core/expr.h"

namespace lathe::jit {

std::string integer_text(const ir::Expr& e);

}  // namespace lathe::jit
