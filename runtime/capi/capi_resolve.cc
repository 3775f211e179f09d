// C ABI: from a graph to a kernel. What is asked is checked and translated; operators are shared by
// runtime/serve/served_operators.h.
#include <algorithm>

#include "runtime/base/clock.h"
#include "runtime/capi/handle.h"
#include "runtime/cuda/device.h"

namespace lathe::runtime {

using ir::invalid;
using ir::Result;
using ir::Status;

namespace {

constexpr uint32_t kAllClasses = LATHE_CLASS_REASSOCIATE | LATHE_CLASS_CONTRACT | LATHE_CLASS_APPROXIMATE |
                                 LATHE_CLASS_REDUCED_ACCUMULATE | LATHE_CLASS_QUANTISED_ACTIVATIONS |
                                 LATHE_CLASS_WINOGRAD | LATHE_CLASS_BF16_DOTS;
static_assert(static_cast<int>(Wait::now) == LATHE_WAIT_NOW && static_cast<int>(Wait::tuned) == LATHE_WAIT_TUNED &&
              static_cast<int>(Wait::stored) == LATHE_WAIT_STORED);

}  // namespace

Status read_policy(const lathe_policy* policy, ServeRequest& request, uint64_t& max_workspace) {
  lathe_policy p = LATHE_POLICY_INIT;
  LATHE_RETURN_IF_ERROR(read_struct(policy, p, "policy", 2));
  if (p.wait > LATHE_WAIT_STORED) return invalid("{}, expected a lathe_wait", p.wait).with_arg("policy.wait", 2);
  if ((p.allowed & ~kAllClasses) != 0)
    return invalid("{:#x}, expected LATHE_CLASS_* bits, of {:#x}", p.allowed, kAllClasses)
        .with_arg("policy.allowed", 2);
  if (p.threads < 0 || p.threads > kMaxThreads)
    return invalid("{}, expected 0..{}", p.threads, kMaxThreads).with_arg("policy.threads", 2);
  if (p.cold > 1) return invalid("{}, expected 0 or 1", p.cold).with_arg("policy.cold", 2);
  if (p.device > kMaxDevices) return invalid("{}, expected 0..{}", p.device, kMaxDevices).with_arg("policy.device", 2);
  if (p.reserved != 0) return invalid("expected 0").with_arg("policy.reserved", 2);
  request.wait = static_cast<Wait>(p.wait);
  request.deadline_ns = p.deadline_ns;
  request.prepare.allowed = p.allowed == 0 ? uint32_t{LATHE_CLASS_REASSOCIATE | LATHE_CLASS_CONTRACT} : p.allowed;
  request.prepare.threads = p.threads == 0 ? 1 : p.threads;
  request.prepare.cold = p.cold == 1;
  if (p.device != 0) {
    request.prepare.device = static_cast<int>(p.device);
    request.prepare.threads = 1;
    request.prepare.cold = false;
  }
  max_workspace = p.max_workspace;
  return {};
}

namespace {

// A better operator was made, or a body of this one was replaced.
uint64_t generation_of(const KernelBody& body) {
  return body.served->generation.load(std::memory_order_acquire) + body.op->shapes().generation();
}

void copy_text(char* to, size_t size, std::string_view from) {
  const size_t n = std::min(from.size(), size - 1);
  std::memcpy(to, from.data(), n);
  to[n] = 0;
}

uint32_t origin_of(LeafOrigin origin) {
  switch (origin) {
    case LeafOrigin::memory:
      return LATHE_ORIGIN_MEMORY;
    case LeafOrigin::store:
      return LATHE_ORIGIN_STORE;
    case LeafOrigin::compiled:
      return LATHE_ORIGIN_COMPILED;
    case LeafOrigin::builtin:
      return LATHE_ORIGIN_BUILTIN;
  }
  return LATHE_ORIGIN_BUILTIN;
}

// What the device or its compiler lacks is about the argument that asks for it.
Status of_device(const Status& refused) {
  const bool lacks = refused.code() == ir::Code::kDEVICE || refused.code() == ir::Code::kUNSUPPORTED;
  return lacks && refused.arg().empty() ? refused.with_arg("policy.device", 2) : refused;
}

Status resolve(lathe_context* ctx, const lathe_graph* graph, const lathe_policy* policy, lathe_kernel** out,
               lathe_kernel_info* info) {
  LATHE_CHECK_HANDLE(ctx, 0);
  LATHE_CHECK_HANDLE(graph, 1);
  LATHE_CHECK_POINTER(out, 3);
  ContextState& state = *ctx->body->state;
  if (graph->body->state.get() != &state) return invalid("belongs to another context").with_arg("graph", 1);
  if (!graph->body->finished) return ir::make_error(ir::Code::kSTATE, "the graph is not finished").with_arg("graph", 1);
  if (info != nullptr) LATHE_RETURN_IF_ERROR(check_struct(info, sizeof(lathe_kernel_info), "info", 4));
  const int64_t start = thread_cpu_ns();
  ServeRequest request;
  uint64_t max_workspace = 0;
  LATHE_RETURN_IF_ERROR(read_policy(policy, request, max_workspace));
  KernelBody body;
  body.state = ctx->body->state;
  if (request.prepare.device != 0) {
    Result<std::shared_ptr<CudaDevice>> device = state.context->device(request.prepare.device);
    const Status working = device.ok() ? (*device)->working() : device.status();
    if (!working.ok()) return working.with_arg("policy.device", 2);
    body.device = std::move(*device);
  }
  Result<ServedOperators::Found> served = state.served.serve(graph->body->graph, request);
  if (!served.ok()) return body.device == nullptr ? served.status() : of_device(served.status());
  ServedOperators::Found& found = *served;
  body.served = std::move(found.served);
  body.op = std::move(found.op);
  const PrepareInfo& prepared = found.info;
  LATHE_ASSIGN(body.plan, make_call_plan(*body.op, graph->body->graph));
  if (body.device != nullptr) body.plan.device = {kCudaDevice, body.device->number()};
  bool packed = false;
  for (const ArgPlan& a : body.plan.args) packed |= a.layout_id != 0;
  const bool asked = info != nullptr || max_workspace != 0;  // what calls with constants as they lie need as well
  LATHE_ASSIGN(const int64_t most, body.op->shapes().hinted_workspace(request.prepare.threads, packed, asked));
  const auto workspace = static_cast<uint64_t>(most);
  if (max_workspace != 0 && workspace > max_workspace) {
    state.context->stats().miss(MissReason::k_workspace);
    return ir::unsupported("{} bytes, and {} are needed at the hinted dims", max_workspace, workspace)
        .with_arg("policy.max_workspace", 2);
  }
  lathe_kernel_info filled = LATHE_KERNEL_INFO_INIT;
  filled.tier = prepared.tier;
  filled.origin = origin_of(prepared.origin);
  filled.numeric_class = prepared.numeric;
  filled.num_args = static_cast<int32_t>(body.plan.args.size());
  filled.workspace_bytes = workspace;
  filled.generation = generation_of(body);
  if (prepared.missed || prepared.unmeasured)
    copy_text(filled.miss_reason, sizeof(filled.miss_reason), miss_reason_name(prepared.miss));
  copy_text(filled.name, sizeof(filled.name), graph->body->graph.name);
  *out = make_handle<lathe_kernel>(std::move(body));
  if (prepared.made) state.context->stats().add(Stat::k_first_resolve_cpu_ns, thread_cpu_ns() - start);
  if (info != nullptr) write_struct(filled, info);
  return {};
}

}  // namespace
}  // namespace lathe::runtime

using namespace lathe::runtime;  // NOLINT: the C ABI of this floor

extern "C" lathe_status lathe_resolve(lathe_context* ctx, const lathe_graph* graph, const lathe_policy* policy,
                                      lathe_kernel** out, lathe_kernel_info* info, lathe_error* error) {
  return guarded(error, [&] { return resolve(ctx, graph, policy, out, info); });
}
extern "C" void lathe_kernel_destroy(lathe_kernel* kernel) { destroy_handle(kernel); }
extern "C" uint64_t lathe_generation(const lathe_kernel* kernel) {
  return is_live(kernel) ? generation_of(*kernel->body) : 0;
}
