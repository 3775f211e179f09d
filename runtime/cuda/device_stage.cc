// See device_stage.h.
#include "runtime/cuda/device_stage.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "jit/cuda/lower/box_maps.h"
#include "runtime/base/clock.h"
#include "search/cut/launch_cut.h"
#include "search/cut/safe_kernel.h"
#include "search/gpu/packed_constants.h"
#include "search/gpu/workspace.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

constexpr size_t kRungs = 4;  // Schedules, by rank, of which the first that compiles serves

SymbolValues sizes_of(const search::GeneralKernel& general, const SymbolValues& dims) {
  SymbolValues sizes;
  for (const auto& [name, size] : general.sizes) sizes.emplace_back(name, ir::evaluate(size, dims).value_or(1));
  return sizes;
}

// The kernels of a plan. INVALID: the driver does not take one, which is given up.
Status load(DevicePlan& plan, CudaDevice& device, DeviceCodes& codes) {
  for (CudaLaunch::Step& step : plan.steps) {
    Result<void*> kernel = device.load(step.code->cubin, step.code->kernel, step.code->shared);
    if (!kernel.ok() && kernel.status().code() == ir::Code::kINVALID) codes.reject(*step.code, device.target());
    LATHE_ASSIGN(step.kernel, std::move(kernel));
  }
  for (DevicePlan::Packing& p : plan.packings) LATHE_RETURN_IF_ERROR(load(p.plan, device, codes));
  return {};
}

Result<DevicePlan::Packing> plan_packing(const ir::Kernel& naive, const ir::Buffer& constant,
                                         const ir::GpuTarget& target, DeviceCodes& codes, const DevicePolicy& policy) {
  DevicePlan::Packing out;
  const auto is_it = [&](const ir::Buffer& b) { return b.name == constant.name; };
  const auto at = std::find_if(naive.buffers.begin(), naive.buffers.end(), is_it);
  out.packed.param = static_cast<int>(at - naive.buffers.begin());  // parameters stand first
  out.packed.layout_id = constant_layout(constant);
  out.packed.type = constant.type;
  out.packed.dims = ir::physical_dims(constant);
  LATHE_ASSIGN(out.plan, plan_on_device(search::packing_kernel(constant), {}, nullptr, target, codes, policy));
  if (!out.plan.scratch.empty()) return ir::unsupported("{} is packed in more than one step", constant.name);
  for (const CudaLaunch::Step& step : out.plan.steps) out.packed.leaf_keys.push_back(step.code->key);
  return out;
}

// What launches hand each other.
std::vector<CudaLaunch::Scratch> scratch_of(const ir::LaunchKernel& cut, const search::GeneralKernel& general) {
  std::vector<CudaLaunch::Scratch> out;
  for (int i = cut.kernel.num_params(); i < static_cast<int>(cut.kernel.buffers.size()); ++i) {
    const ir::Buffer& b = cut.kernel.buffers[static_cast<size_t>(i)];
    const bool used = std::any_of(cut.launches.begin(), cut.launches.end(), [&](const ir::Launch& l) {
      return std::find(l.operands.begin(), l.operands.end(), i) != l.operands.end();
    });
    if (!used) continue;
    ir::Expr bytes(ir::dtype_bytes(b.type));
    for (const ir::Expr& d : b.dims) bytes = bytes * ir::substitute(d, general.sizes);
    out.push_back({i, bytes});
  }
  return out;
}

// By that Schedule of the general Kernel.
Result<DevicePlan> plan_of(const ir::Kernel& naive, const search::GeneralKernel& general, search::Scheduled scheduled,
                           const ir::GpuTarget& target, DeviceCodes& codes, const DevicePolicy& policy) {
  DevicePlan plan;
  plan.scheduled = std::move(scheduled);
  LATHE_RETURN_IF_ERROR(search::check_safe(general.kernel, plan.scheduled.kernel));
  LATHE_ASSIGN(const ir::LaunchKernel cut, search::cut_launches(plan.scheduled.kernel));
  plan.scratch = scratch_of(cut, general);
  for (const ir::Launch& launch : cut.launches) {
    CudaLaunch::Step step{launch, nullptr, nullptr, {}};
    for (ir::Expr& e : step.launch.sizes) e = ir::substitute(e, general.sizes);
    for (ir::Expr& e : step.launch.grid) e = ir::substitute(e, general.sizes);
    LeafOrigin origin = LeafOrigin::memory;
    LATHE_ASSIGN(step.code, codes.get(cut.leaves[static_cast<size_t>(launch.leaf)], target, policy, &origin));
    LATHE_ASSIGN(step.maps, jit::box_maps(cut.leaves[static_cast<size_t>(launch.leaf)].kernel));
    plan.origin = std::max(plan.origin, origin);
    plan.steps.push_back(std::move(step));
  }
  for (const ir::Buffer& constant : general.packed) {
    LATHE_ASSIGN(DevicePlan::Packing packing, plan_packing(naive, constant, target, codes, policy));
    plan.origin = std::max(plan.origin, packing.plan.origin);
    plan.packings.push_back(std::move(packing));
  }
  return plan;
}

}  // namespace

Result<std::vector<search::Scheduled>> rank_on_device(const ir::Kernel& naive, const SymbolValues& dims,
                                                      const ir::GpuTarget& target, size_t most, uint32_t allowed) {
  const search::GeneralKernel general = search::general_kernel(naive);
  return search::device_candidates(general, sizes_of(general, dims), target, most, allowed);
}

Result<int64_t> most_workspace(const ir::Kernel& naive, const search::Scheduled& scheduled) {
  LATHE_ASSIGN(const ir::LaunchKernel cut, search::cut_launches(scheduled.kernel));
  const ir::Ranges ranges(naive);
  double bytes = 0;
  for (const CudaLaunch::Scratch& s : scratch_of(cut, search::general_kernel(naive)))
    bytes += static_cast<double>(ir::interval(s.bytes, ranges).hi);
  constexpr double kMost = 0x1p62;
  return static_cast<int64_t>(std::min(bytes, kMost));
}

bool serves_alone(const Stage& whole, const SymbolValues& whole_dims, const ir::Kernel& part, const SymbolValues& dims,
                  const ir::GpuTarget& target, uint32_t allowed) {
  const auto first = [&](const ir::Kernel& naive, const SymbolValues& at) {
    const Result<std::vector<search::Scheduled>> ranked = rank_on_device(naive, at, target, 1, allowed);
    return ranked.ok() ? search::to_text(ranked->front().schedule) : "";
  };
  const std::string own = first(part, dims);
  return !own.empty() && own != search::to_text(whole.schedule) && own != first(whole.naive, whole_dims);
}

Result<DevicePlan> plan_on_device(const ir::Kernel& naive, const SymbolValues& dims, const search::Schedule* schedule,
                                  const ir::GpuTarget& target, DeviceCodes& codes, const DevicePolicy& policy) {
  const search::GeneralKernel general = search::general_kernel(naive);
  if (schedule != nullptr) {
    LATHE_ASSIGN(search::Scheduled scheduled, search::replay_on_device(general, *schedule));
    return plan_of(naive, general, std::move(scheduled), target, codes, policy);
  }
  const auto rank = [&](size_t most) {
    return search::device_candidates(general, sizes_of(general, dims), target, most, policy.allowed);
  };
  LATHE_ASSIGN(std::vector<search::Scheduled> ranked, rank(1));
  Result<DevicePlan> plan = plan_of(naive, general, std::move(ranked.front()), target, codes, policy);
  if (plan.ok()) return plan;
  // What a compiler made of it was refused, or whoever filled the store found that: then code of a next one is there.
  DevicePolicy own = policy;
  own.compile = policy.compile && codes.compiler(policy.driver).ok();
  const auto lacks = [&](const Status& why) {
    return why.code() == ir::Code::kUNSUPPORTED || (!own.compile && why.code() == ir::Code::kMISS);
  };
  if (!lacks(plan.status())) return plan;
  LATHE_ASSIGN(ranked, rank(kRungs));
  for (size_t i = 1; i < ranked.size(); ++i) {
    Result<DevicePlan> next = plan_of(naive, general, std::move(ranked[i]), target, codes, own);
    if (next.ok() || !lacks(next.status())) return next;
  }
  return plan;
}

Result<Stage> build_device_stage(const ir::Kernel& naive, const SymbolValues& dims, const search::Schedule* schedule,
                                 const std::shared_ptr<CudaDevice>& device, DeviceCodes& codes,
                                 const DevicePolicy& policy) {
  const int64_t start = thread_cpu_ns();
  DevicePolicy own = policy;
  own.driver = device->driver().version;
  LATHE_ASSIGN(DevicePlan plan, plan_on_device(naive, dims, schedule, device->target(), codes, own));
  Status loaded = load(plan, *device, codes);
  if (loaded.code() == ir::Code::kINVALID) {  // stored by somebody else's compiler: once more
    LATHE_ASSIGN(plan, plan_on_device(naive, dims, schedule, device->target(), codes, own));
    loaded = load(plan, *device, codes);
    if (loaded.code() == ir::Code::kINVALID) loaded = ir::make_error(ir::Code::kDEVICE, "{}", loaded.message());
  }
  LATHE_RETURN_IF_ERROR(loaded);
  Stage stage;
  stage.naive = naive;
  stage.schedule = std::move(plan.scheduled.schedule);
  stage.origin = plan.origin;
  for (const CudaLaunch::Step& step : plan.steps) stage.leaf_keys.push_back(step.code->key);
  for (DevicePlan::Packing& p : plan.packings) {
    stage.leaf_keys.insert(stage.leaf_keys.end(), p.packed.leaf_keys.begin(), p.packed.leaf_keys.end());
    p.packed.pack = std::make_shared<CudaLaunch>(device, std::move(p.plan.steps), std::vector<CudaLaunch::Scratch>());
    stage.packed.push_back(std::move(p.packed));
  }
  stage.executable = std::make_unique<CudaLaunch>(device, std::move(plan.steps), std::move(plan.scratch));
  stage.codegen_us = static_cast<double>(thread_cpu_ns() - start) * 1e-3;
  return stage;
}

}  // namespace lathe::runtime
