// cut: a scheduled Kernel to nest (data) and leaves (code). docs/ir.md states the rules.
#pragma once
#include "ir/nest.h"
#include "ir/status.h"

namespace lathe::search {

ir::Result<ir::CutKernel> cut(const ir::Kernel& scheduled);

// The Kernel that fills the packed form of constant parameter `buffer`, whose layout the Schedule chose: parameters src (its logical
// dims) and dst (its physical dims, compact); padding is zero. Naive, family "pack", roles as scopes of the layout.
ir::Result<ir::Kernel> pack_kernel(const ir::Kernel& scheduled, const std::string& buffer);

}  // namespace lathe::search
