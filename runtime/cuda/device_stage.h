// The tour of a Kernel to a Stage on a GPU, the counterpart of build_stage():
//
//   Kernel ── general Kernel ─ Schedule ──▶ scheduled Kernel ── cut_launches ──▶ launches + device leaves
//   device leaf ── DeviceCodes ──▶ cubin ── load ──▶ kernel;  launches and kernels: a CudaLaunch
#pragma once
#include "runtime/compile/compiler.h"
#include "runtime/cuda/launch.h"

namespace lathe::runtime {

// naive: over the range to be served; dims: of most calls. UNSUPPORTED: no Schedule or no code for it. MISS and others
// as of DeviceCodes::get(), DEVICE as of CudaDevice::load().
ir::Result<Stage> build_device_stage(const ir::Kernel& naive, const SymbolValues& dims,
                                     const std::shared_ptr<CudaDevice>& device, DeviceCodes& codes,
                                     const DevicePolicy& policy);

}  // namespace lathe::runtime
