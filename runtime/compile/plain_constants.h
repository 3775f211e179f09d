// The Kernel for calls that bring their constants as they lie.
#pragma once
#include "ir/base/target.h"
#include "ir/core/kernel.h"

namespace lathe::runtime {

// Constants become inputs like others.
ir::Kernel constants_as_inputs(const ir::Kernel& kernel, const ir::Target& target);

}  // namespace lathe::runtime
