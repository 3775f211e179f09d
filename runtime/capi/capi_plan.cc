// C ABI: plans. What a plan does with each operator is warm-up's affair; here: the list, the budget, the report.
#include <cmath>

#include "ops/manifest.h"
#include "runtime/base/read_file.h"
#include "runtime/capi/handle.h"
#include "runtime/tune/device/device_warmup.h"

namespace lathe::runtime {

struct PlanBody {
  std::shared_ptr<ContextState> state;
  std::vector<ops::Workload> work;
  std::atomic<bool> running{false};
  PlanBody() = default;
  PlanBody(PlanBody&& o) noexcept : state(std::move(o.state)), work(std::move(o.work)) {}
};

}  // namespace lathe::runtime

struct lathe_plan : lathe::runtime::Shell<lathe::runtime::PlanBody, 0x6e616c70> {};

namespace lathe::runtime {

using ir::invalid;
using ir::Result;
using ir::Status;

namespace {

constexpr size_t kMaxPathShown = 96;

Status check_idle(const lathe_plan* plan) {
  LATHE_CHECK_HANDLE(plan, 0);
  if (plan->body->running.load()) return ir::make_error(ir::Code::kSTATE, "the plan is running").with_arg("plan", 0);
  return {};
}

Status create_plan(lathe_context* ctx, lathe_plan** out) {
  LATHE_CHECK_HANDLE(ctx, 0);
  LATHE_CHECK_POINTER(out, 1);
  PlanBody body;
  body.state = ctx->body->state;
  *out = make_handle<lathe_plan>(std::move(body));
  return {};
}

Status load_plan(lathe_plan* plan, const char* path) {
  LATHE_RETURN_IF_ERROR(check_idle(plan));
  LATHE_ASSIGN(const std::string name, read_text(path, "path", 1));
  const Result<std::string> text = read_file(name);
  if (!text.ok()) return text.status().with_arg("path", 1);
  Result<std::vector<ops::Workload>> parsed = ops::parse_manifest(*text);
  if (!parsed.ok()) {
    // An error's message is short: of a long path its end is what tells.
    const Status where = in_file(name.size() <= kMaxPathShown ? name : "..." + name.substr(name.size() - kMaxPathShown),
                                 parsed.status());
    return where.with_arg(where.arg(), 1);
  }
  std::vector<ops::Workload> work = std::move(*parsed);
  for (ops::Workload& w : work) {
    LATHE_ASSIGN(w.graph, ops::finish(w.graph));
  }
  auto& list = plan->body->work;
  list.insert(list.end(), std::make_move_iterator(work.begin()), std::make_move_iterator(work.end()));
  return {};
}

Status add_to_plan(lathe_plan* plan, const lathe_graph* graph, const ServeRequest& request, double weight,
                   int weight_index) {
  LATHE_RETURN_IF_ERROR(check_idle(plan));
  LATHE_CHECK_HANDLE(graph, 1);
  if (graph->body->state != plan->body->state) return invalid("belongs to another context").with_arg("graph", 1);
  if (!graph->body->finished) return ir::make_error(ir::Code::kSTATE, "the graph is not finished").with_arg("graph", 1);
  if (!std::isfinite(weight) || weight < 0)
    return invalid("{}, expected finite and >= 0", weight).with_arg("weight", weight_index);
  ops::Workload w;
  w.name = graph->body->graph.name;
  w.graph = graph->body->graph;
  w.weight = weight;
  w.threads = request.prepare.threads;
  w.cache = request.prepare.cold ? ops::CacheState::cold : ops::CacheState::hot;
  w.allowed = request.prepare.allowed;
  plan->body->work.push_back(std::move(w));
  return {};
}

Status add_with_policy(lathe_plan* plan, const lathe_graph* graph, const lathe_policy* policy, double weight) {
  LATHE_CHECK_HANDLE(plan, 0);
  ServeRequest request;
  uint64_t max_workspace = 0;
  LATHE_RETURN_IF_ERROR(read_policy(policy, request, max_workspace));
  if (request.prepare.device != 0)
    return invalid("{}, expected 0: the budget names one", request.prepare.device).with_arg("policy.device", 2);
  return add_to_plan(plan, graph, request, weight, 3);
}

struct Running {
  explicit Running(std::atomic<bool>& flag) : flag(flag) {}
  ~Running() { flag.store(false); }
  std::atomic<bool>& flag;
};

Result<WarmupReport> run_all(PlanBody& body, const lathe_budget& asked, lathe_progress progress, void* user) {
  WarmupBudget budget;
  budget.wall_ms = asked.wall_ms == 0 ? kNoLimitMs : static_cast<double>(asked.wall_ms);
  budget.tier = asked.tier == 0 ? 2 : asked.tier;
  budget.candidates = asked.candidates == 0 ? 16 : asked.candidates;
  if (asked.cancel != nullptr) budget.cancelled = [&] { return *asked.cancel != 0; };
  WarmupObserver observer;
  const ops::Workload* last = nullptr;
  if (progress != nullptr) {
    observer.progress = [&](const WarmupProgress& p) {
      progress(user, p.weight_done, p.item == nullptr ? "" : p.item->name.c_str());
    };
    observer.row = [&](const WarmupRow& row) {
      if (row.item != last) progress(user, 1, row.item->name.c_str());
      last = row.item;
    };
  }
  if (asked.device == 0) return run_warmup(body.state->context, body.work, budget, observer);
  DeviceChoice on;
  on.number = static_cast<int>(asked.device);
  Result<std::shared_ptr<CudaDevice>> device = body.state->context->device(on.number);
  if (!device.ok()) return device.status().with_arg("budget.device", 1);
  on.device = std::move(*device);
  on.target = on.device->target();
  return run_device_warmup(body.state->context, body.work, on, budget, observer);
}

lathe_report to_report(const WarmupReport& r) {
  lathe_report out = LATHE_REPORT_INIT;
  out.ops = static_cast<uint64_t>(r.ops);
  out.from_store = static_cast<uint64_t>(r.from_store);
  out.compiled_xbyak = static_cast<uint64_t>(r.compiled_xbyak);
  out.compiled_llvm = static_cast<uint64_t>(r.compiled_llvm);
  out.searches = static_cast<uint64_t>(r.searches);
  out.measurements = static_cast<uint64_t>(r.measurements);
  out.failed = static_cast<uint64_t>(r.failed);
  out.wall_ms = static_cast<uint64_t>(r.wall_ms);
  out.compiled_nvrtc = static_cast<uint64_t>(r.compiled_nvrtc);
  return out;
}

Status run_plan(lathe_plan* plan, const lathe_budget* budget, lathe_progress progress, void* user,
                lathe_report* report) {
  LATHE_RETURN_IF_ERROR(check_idle(plan));
  lathe_budget b = LATHE_BUDGET_INIT;
  LATHE_RETURN_IF_ERROR(read_struct(budget, b, "budget", 1));
  if (b.tier < 0 || b.tier > 2) return invalid("{}, expected 1 or 2 (0: 2)", b.tier).with_arg("budget.tier", 1);
  if (b.candidates < 0 || b.candidates > 4096)
    return invalid("{}, expected 0..4096", b.candidates).with_arg("budget.candidates", 1);
  if (b.device > kMaxDevices) return invalid("{}, expected 0..{}", b.device, kMaxDevices).with_arg("budget.device", 1);
  if (b.reserved != 0) return invalid("expected 0").with_arg("budget.reserved", 1);
  if (report != nullptr) LATHE_RETURN_IF_ERROR(check_struct(report, sizeof(lathe_report), "report", 4));
  PlanBody& body = *plan->body;
  if (body.state->context->seal() != Seal::off)
    return ir::make_error(ir::Code::kSTATE, "the context is sealed").with_arg("plan", 0);
  if (body.running.exchange(true)) return ir::make_error(ir::Code::kSTATE, "the plan is running").with_arg("plan", 0);
  const Running running(body.running);
  LATHE_ASSIGN(const WarmupReport done, run_all(body, b, progress, user));
  body.state->served.forget_untuned();
  if (report != nullptr) write_struct(to_report(done), report);
  if (done.cancelled) return ir::make_error(ir::Code::kCANCELLED, "{} searches were left", done.pending);
  if (done.pending > 0) return ir::make_error(ir::Code::kTIMEOUT, "{} searches were left", done.pending);
  return {};
}

}  // namespace
}  // namespace lathe::runtime

using namespace lathe::runtime;  // NOLINT: the C ABI of this floor

extern "C" lathe_status lathe_plan_create(lathe_context* ctx, lathe_plan** out, lathe_error* error) {
  return guarded(error, [&] { return create_plan(ctx, out); });
}
extern "C" lathe_status lathe_plan_load(lathe_plan* plan, const char* path, lathe_error* error) {
  return guarded(error, [&] { return load_plan(plan, path); });
}
extern "C" lathe_status lathe_plan_add(lathe_plan* plan, const lathe_graph* graph, double weight, lathe_error* error) {
  return guarded(error, [&] { return add_to_plan(plan, graph, {}, weight, 2); });
}
extern "C" lathe_status lathe_plan_add_for(lathe_plan* plan, const lathe_graph* graph, const lathe_policy* policy,
                                           double weight, lathe_error* error) {
  return guarded(error, [&] { return add_with_policy(plan, graph, policy, weight); });
}
extern "C" lathe_status lathe_plan_run(lathe_plan* plan, const lathe_budget* budget, lathe_progress progress,
                                       void* user, lathe_report* report, lathe_error* error) {
  return guarded(error, [&] { return run_plan(plan, budget, progress, user, report); });
}
extern "C" void lathe_plan_destroy(lathe_plan* plan) {
  if (is_live(plan) && plan->body->running.load()) return;  // from a progress callback
  destroy_handle(plan);
}
