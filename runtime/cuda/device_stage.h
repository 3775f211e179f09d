// The tour of a Kernel to a Stage on a GPU, the counterpart of build_stage():
//
//   Kernel ── general Kernel ─ Schedule ──▶ scheduled Kernel ── cut_launches ──▶ launches + device leaves
//   device leaf ── DeviceCodes ──▶ cubin           plan_on_device(): needs no GPU
//   cubin ── load ──▶ kernel;  launches and kernels: a CudaLaunch
//
// A constant that the general Kernel reads in a packed form gets a Kernel that packs it, which goes the same way.
#pragma once
#include "runtime/compile/compiler.h"
#include "runtime/cuda/launch.h"
#include "search/gpu/choice/device_candidates.h"

namespace lathe::runtime {

// What serves a Kernel on a kind of GPU, nothing of it loaded yet.
struct DevicePlan {
  search::Scheduled scheduled;  // of the general Kernel
  std::vector<CudaLaunch::Step> steps;
  std::vector<CudaLaunch::Scratch> scratch;
  LeafOrigin origin = LeafOrigin::memory;
  struct Packing;
  std::vector<Packing> packings;  // of its constants
};
struct DevicePlan::Packing {
  PackedParam packed;  // without its Executable
  DevicePlan plan;     // of a Kernel of parameters src, dst; it hands nothing on between launches
};

// The Schedules to choose from, the best by rank first, which is the default; at most so many. naive: over the range to
// be served; dims: of most calls; allowed: numeric classes of the caller. UNSUPPORTED: none fits it.
ir::Result<std::vector<search::Scheduled>> rank_on_device(const ir::Kernel& naive, const SymbolValues& dims,
                                                          const ir::GpuTarget& target, size_t most,
                                                          uint32_t allowed = 0);

// Bytes that the Schedule takes of the workspace in the largest call of the naive Kernel's range.
ir::Result<int64_t> most_workspace(const ir::Kernel& naive, const search::Scheduled& scheduled);

// Whether the default of a part of a Kernel's range is another Schedule than the one that serves the whole range, and
// than that range's default, which may have been refused: for the sizes there, or for the workspace that it would take
// elsewhere (search/gpu/workspace.h). dims: of most calls.
bool serves_alone(const Stage& whole, const SymbolValues& whole_dims, const ir::Kernel& part, const SymbolValues& dims,
                  const ir::GpuTarget& target, uint32_t allowed);

// By that Schedule; null: the default or, where its code is refused, as with registers that are spilled, the next one
// by rank. UNSUPPORTED: the Schedule does not apply, or there is no code for what comes of it. MISS and others as of
// DeviceCodes::get().
ir::Result<DevicePlan> plan_on_device(const ir::Kernel& naive, const SymbolValues& dims,
                                      const search::Schedule* schedule, const ir::GpuTarget& target, DeviceCodes& codes,
                                      const DevicePolicy& policy);

// The plan with its code loaded. Errors as of plan_on_device(); DEVICE as of CudaDevice::load().
ir::Result<Stage> build_device_stage(const ir::Kernel& naive, const SymbolValues& dims,
                                     const search::Schedule* schedule, const std::shared_ptr<CudaDevice>& device,
                                     DeviceCodes& codes, const DevicePolicy& policy);

}  // namespace lathe::runtime
