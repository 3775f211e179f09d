// cut: a scheduled Kernel to nest (data) and leaves (code). docs/ir.md states the rules.
#pragma once
#include "ir/nest.h"
#include "ir/status.h"
#include "ir/target.h"

namespace lathe::search {

ir::Result<ir::CutKernel> cut(const ir::Kernel& scheduled, const ir::Target& target);

// The Kernel that fills the packed form of constant parameter `buffer` (whose layout the Schedule chose): parameters src (row-major or by its
// strides) and dst (flat f32[bytes/4], physical order, padding zero). Naive: schedule it with the "pack" recipe.
ir::Result<ir::Kernel> pack_kernel(const ir::Kernel& scheduled, const std::string& buffer);

}  // namespace lathe::search
