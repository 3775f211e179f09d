// Whether operators compute on a GPU what their Kernels say: as they are served there, at a few shapes, through the
// oracle, on operands that end at unmapped pages. In this process: a GPU that fails ends it. Nothing is recorded.
#pragma once
#include "runtime/cuda/device_choice.h"
#include "runtime/tune/verify.h"

namespace lathe::runtime {

// Rows have neither level nor back end. DEVICE: the GPU failed, and nothing more can be said.
ir::Result<VerifyReport> run_device_verify(const std::shared_ptr<Context>& context,
                                           const std::vector<ops::Workload>& items, const DeviceChoice& on,
                                           const VerifyOptions& options,
                                           const std::function<void(const VerifyRow&)>& row);

}  // namespace lathe::runtime
