// verify(): the invariants of a Kernel. Run at every border in debug builds. The rules are listed at the top of verifier.cc.
#pragma once
#include "ir/kernel.h"
#include "ir/status.h"

namespace lathe::ir {

// INVALID naming the rule and the place ("buffer y: dimension 1: index n0*32+n1 may reach 4895, size is 4864").
Status verify(const Kernel& kernel);

}  // namespace lathe::ir
