// cut_launches: a Kernel scheduled for a GPU to launches (data) and device leaves (code): each outermost @grid scope is
// one launch, and all inside is its leaf, whatever its loops look like.
#pragma once
#include "ir/base/status.h"
#include "ir/launch.h"

namespace lathe::search {

// UNSUPPORTED: a statement outside of @grid scopes, a grid whose size depends on anything but symbols, or a temporary
// of the stack. Heap buffers are what launches hand each other.
ir::Result<ir::LaunchKernel> cut_launches(const ir::Kernel& scheduled);

}  // namespace lathe::search
