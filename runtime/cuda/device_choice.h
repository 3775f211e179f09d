// Which GPU somebody means: one that the driver has, or a row of gpu_targets.def where none is at hand.
#pragma once
#include <memory>
#include <string>

#include "ir/base/gpu_target.h"
#include "runtime/cuda/device.h"

namespace lathe::runtime {

struct DeviceChoice {
  ir::GpuTarget target;
  std::shared_ptr<CudaDevice> device;  // null: only its kind is known
  int number = 0;                      // as lathe_policy.device counts them; 0: none
};

// wanted: "0" or "cuda:0" for a device of the driver at `cuda`, "h200" for a kind. INVALID: neither. DEVICE: as of
// cuda_device().
ir::Result<DeviceChoice> choose_device(const std::string& cuda, const std::string& wanted);

}  // namespace lathe::runtime
