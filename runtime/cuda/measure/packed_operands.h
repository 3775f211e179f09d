// Packed forms of constants for who measures or verifies a Stage on a GPU: made on the device, of what callers give.
#pragma once
#include <vector>

#include "runtime/compile/compiler.h"
#include "runtime/cuda/device_session.h"

namespace lathe::runtime {

// at: addresses by parameter, which become those of the packed forms. What they were is read until the session's stream
// is done.
ir::Result<std::vector<DeviceMemory>> pack_operands(DeviceSession& session, const std::vector<PackedParam>& packed,
                                                    DeviceGuard side, std::vector<void*>& at);

}  // namespace lathe::runtime
