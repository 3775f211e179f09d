// See device_stage.h.
#include "runtime/cuda/device_stage.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "runtime/base/clock.h"
#include "search/cut/launch_cut.h"
#include "search/cut/safe_kernel.h"
#include "search/gpu/device_schedules.h"

namespace lathe::runtime {

using ir::Result;

Result<Stage> build_device_stage(const ir::Kernel& naive, const SymbolValues& dims,
                                 const std::shared_ptr<CudaDevice>& device, DeviceCodes& codes,
                                 const DevicePolicy& policy) {
  const int64_t start = thread_cpu_ns();
  const search::GeneralKernel general = search::general_kernel(naive);
  SymbolValues sizes;
  for (const auto& [name, size] : general.sizes) sizes.emplace_back(name, ir::evaluate(size, dims).value_or(1));
  LATHE_ASSIGN(const search::Scheduled scheduled, search::device_schedule(general, sizes));
  LATHE_RETURN_IF_ERROR(search::check_safe(general.kernel, scheduled.kernel));
  LATHE_ASSIGN(const ir::LaunchKernel cut, search::cut_launches(scheduled.kernel));
  Stage stage;
  stage.naive = naive;
  stage.schedule = scheduled.schedule;
  std::vector<CudaLaunch::Step> steps;
  for (const ir::Launch& launch : cut.launches) {
    CudaLaunch::Step step{launch, nullptr, nullptr};
    for (ir::Expr& e : step.launch.sizes) e = ir::substitute(e, general.sizes);
    for (ir::Expr& e : step.launch.grid) e = ir::substitute(e, general.sizes);
    LeafOrigin origin = LeafOrigin::memory;
    LATHE_ASSIGN(step.code, codes.get(cut.leaves[static_cast<size_t>(launch.leaf)], device->target(), policy, &origin));
    LATHE_ASSIGN(step.kernel, device->load(step.code->cubin, step.code->kernel));
    stage.origin = std::max(stage.origin, origin);
    stage.leaf_keys.push_back(step.code->key);
    steps.push_back(std::move(step));
  }
  stage.executable = std::make_unique<CudaLaunch>(device, std::move(steps));
  stage.codegen_us = static_cast<double>(thread_cpu_ns() - start) * 1e-3;
  return stage;
}

}  // namespace lathe::runtime
