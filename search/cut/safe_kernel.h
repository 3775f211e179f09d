// What is asked of a scheduled Kernel before code is made of it, whoever chose the moves: its parameters are the naive
// Kernel's, every access is proven to stay inside its buffer, and no buffer outgrows what is computed. Proofs, no
// trials; says nothing of the values.
#pragma once
#include "ir/base/status.h"
#include "ir/core/kernel.h"

namespace lathe::search {

// UNSUPPORTED with the operand and what is not proven of it.
ir::Status check_safe(const ir::Kernel& naive, const ir::Kernel& scheduled);

}  // namespace lathe::search
