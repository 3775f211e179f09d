// See device_explain.h.
#include "runtime/tune/device/device_explain.h"

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"
#include "jit/cuda/lower/lower_device.h"
#include "jit/cuda/text/cuda_text.h"
#include "runtime/cuda/device_home.h"
#include "runtime/cuda/device_stage.h"
#include "runtime/tune/device/device_warmup.h"
#include "search/cut/launch_cut.h"

namespace lathe::runtime {

using ir::Result;

namespace {

std::string accesses(const jit::AccessCounts& c) {
  return fmt::format("{} of 16 bytes, {} of 8, {} of less", c.bits128, c.bits64, c.narrow);
}

std::string describe(const DeviceCode& code) {
  const Result<jit::CubinInfo> info = jit::read_cubin(code.cubin, code.kernel);
  if (!info.ok()) return info.status().message();
  return fmt::format(
      "{} by {}: {} threads a block, {} registers, {} instructions\nloads {}\nstores {}\n{} bytes, key {}", code.kernel,
      code.compiler, code.threads, code.registers, info->instructions, accesses(info->loads), accesses(info->stores),
      code.cubin.size(), code.key);
}

Result<ExplainedDeviceKernel> explain_kernel(Context& context, const search::Problem& problem,
                                             const DecisionQuery& query, const DeviceChoice& on) {
  ExplainedDeviceKernel e;
  e.naive = ir::print(problem.kernel);
  LATHE_ASSIGN(const std::vector<search::Scheduled> ranked,
               rank_on_device(problem.kernel, problem.dims, on.target, kTimedOnDevice + 1, problem.allowed));
  for (const search::Scheduled& s : ranked) e.candidates.push_back(schedule_summary(s.schedule));
  MissReason reason = MissReason::k_never_seen;
  const std::optional<Decision> decision = context.find_decision(query, &reason);
  search::Scheduled scheduled = ranked.front();
  if (decision) {
    LATHE_ASSIGN(const search::Schedule schedule, search::parse_schedule(decision->schedule));
    const search::GeneralKernel general = search::general_kernel(problem.kernel);
    LATHE_ASSIGN(scheduled, search::replay_on_device(general, schedule));
    e.stored = true;
    e.decision = print_decision(*decision);
  } else {
    e.miss = fmt::format("{} ({})", miss_reason_name(reason), miss_reason_meaning(reason));
  }
  DevicePolicy policy;
  policy.compile = context.seal() == Seal::off;
  policy.allowed = problem.allowed;
  if (!e.stored) {  // the first one whose code is taken
    Result<DevicePlan> served =
        plan_on_device(problem.kernel, problem.dims, nullptr, on.target, context.device_codes(), policy);
    if (served.ok()) scheduled = std::move(served->scheduled);
  }
  e.schedule = search::to_text(scheduled.schedule);
  e.scheduled = ir::print(scheduled.kernel);
  LATHE_ASSIGN(const ir::LaunchKernel cut, search::cut_launches(scheduled.kernel));
  LATHE_ASSIGN(e.workspace, most_workspace(problem.kernel, scheduled));
  const Result<DevicePlan> plan =
      plan_on_device(problem.kernel, problem.dims, &scheduled.schedule, on.target, context.device_codes(), policy);
  for (size_t i = 0; i < cut.launches.size(); ++i) {
    const ir::Leaf& leaf = cut.leaves[static_cast<size_t>(cut.launches[i].leaf)];
    ExplainedLaunch l;
    LATHE_ASSIGN(const jit::DeviceProgram program, jit::lower_device(leaf));
    l.leaf = ir::print(leaf.kernel);
    l.program = print(program);
    l.text = jit::cuda_text(program, "kernel");
    if (plan.ok()) {
      for (const ir::Expr& extent : plan->steps[i].launch.grid) {
        const std::optional<int64_t> blocks = ir::evaluate(extent, problem.dims);
        l.grid +=
            fmt::format("{}{}", l.grid.empty() ? "" : " x ", blocks ? std::to_string(*blocks) : ir::print(extent));
      }
      if (plan->steps[i].launch.persistent) l.grid += fmt::format(" by at most {}", on.target.multiprocessors);
    }
    l.code = plan.ok() ? describe(*plan->steps[i].code) : "none: " + plan.status().message();
    e.launches.push_back(std::move(l));
  }
  return e;
}

}  // namespace

Result<std::vector<ExplainedDeviceKernel>> explain_on_device(Operator& op, const SymbolValues& dims,
                                                             const PrepareRequest& request, const DeviceChoice& on) {
  std::vector<ExplainedDeviceKernel> out;
  for (size_t k = 0; k < op.lowered().kernels.size(); ++k) {
    const int kernel = static_cast<int>(k);
    DecisionQuery query = op.query(kernel, dims, request);
    query.home = device_home(on.target);
    LATHE_ASSIGN(ExplainedDeviceKernel e, explain_kernel(op.context(), op.problem(kernel, dims, request), query, on));
    out.push_back(std::move(e));
  }
  return out;
}

}  // namespace lathe::runtime
