// C ABI: packing constants, executing, pinning. A hit of execute neither allocates nor locks.
#include "runtime/base/large_pages.h"
#include "runtime/capi/handle.h"
#include "runtime/cuda/device.h"
#include "runtime/serve/serve_sampled.h"

namespace lathe::runtime {

using ir::invalid;
using ir::Result;
using ir::Status;

namespace {

constexpr uintptr_t kWorkspaceAlign = 64, kDeviceWorkspaceAlign = 256;

// The body for a matched call. *own keeps it where the operator keeps no more shapes.
Result<const BoundOp*> body_for(const KernelBody& kernel, const MatchedCall& call, std::unique_ptr<BoundOp>& own) {
  if (const BoundOp* found = kernel.op->shapes().find(call.key)) return found;
  const CallShape full = operator_call(*kernel.op, kernel.plan, call);
  Result<const BoundOp*> bound = kernel.op->shapes().bound(full);
  if (bound.ok() || bound.status().code() != ir::Code::kNOMEM) return bound;
  kernel.state->context->stats().add(Stat::k_fallbacks);
  LATHE_ASSIGN(own, kernel.op->shapes().bind_once(full));
  return own.get();
}

Status check_pool(const lathe_pool* pool) {
  LATHE_RETURN_IF_ERROR(check_struct(pool, sizeof(lathe_pool), "exec.pool", 3));
  if (pool->struct_size < sizeof(lathe_pool))
    return invalid("{}, expected {}", pool->struct_size, sizeof(lathe_pool)).with_arg("exec.pool.struct_size", 3);
  if (pool->num_threads == nullptr) return null_argument("exec.pool.num_threads", 3);
  if (pool->parallel_for == nullptr) return null_argument("exec.pool.parallel_for", 3);
  return {};
}

HostPool host_pool(const lathe_pool& pool) {
  return {pool.self, pool.num_threads, pool.parallel_for, pool.in_parallel};
}

Status check_workspace(const lathe_exec& exec, int64_t needed, uintptr_t align = kWorkspaceAlign) {
  if (needed == 0) return {};
  if (exec.workspace == nullptr) return invalid("NULL, expected {} bytes", needed).with_arg("exec.workspace", 3);
  if (reinterpret_cast<uintptr_t>(exec.workspace) % align != 0) {
    return invalid("not aligned to {} bytes", align).with_arg("exec.workspace", 3);
  }
  if (exec.workspace_bytes < static_cast<uint64_t>(needed)) {
    return invalid("{}, expected at least {}", exec.workspace_bytes, needed).with_arg("exec.workspace_bytes", 3);
  }
  return {};
}

bool overlaps(const void* a, uint64_t a_bytes, const void* b, uint64_t b_bytes) {
  const auto x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
  return a_bytes != 0 && b_bytes != 0 && x < y + b_bytes && y < x + a_bytes;
}

void run_on(const BoundOp& bound, bool may_try, void* const* data, const lathe_exec& exec, ThreadTeam* own) {
  if (exec.pool == nullptr) return run_counted(bound, may_try, data, exec.workspace, own);
  ThreadTeam team(host_pool(*exec.pool));
  run_counted(bound, may_try, data, exec.workspace, &team);
}

Status check_overlaps(const KernelBody& body, const MatchedCall& call, const lathe_exec& exec, int64_t needed) {
  for (size_t i = 0; needed != 0 && i < body.plan.args.size(); ++i) {
    if (overlaps(exec.workspace, static_cast<uint64_t>(needed), call.data[i], call.bytes[i]))
      return invalid("overlaps {}", body.plan.args[i].name).with_arg("exec.workspace", 3);
  }
  return {};
}

// A device that failed says so of every call, whatever else is wrong with it.
Status check_device(const KernelBody& body) {
  return body.device == nullptr ? Status() : body.device->working().with_arg("kernel", 0);
}

// Not part of execute(), whose prologue would save more registers.
[[gnu::noinline]] Status execute_on_device(const KernelBody& body, const lathe_exec& exec, const lathe_arg* args,
                                           size_t num_args) {
  LATHE_RETURN_IF_ERROR(check_device(body));
  if (exec.pool != nullptr) return invalid("expected NULL: a kernel of a GPU uses no threads").with_arg("exec.pool", 3);
  if (exec.stream == nullptr)
    return invalid("NULL, expected the stream that the call joins").with_arg("exec.stream", 3);
  MatchedCall call;
  LATHE_RETURN_IF_ERROR(match_call(body.plan, args, num_args, 1, call));
  LATHE_RETURN_IF_ERROR(match_value_ranges(body.plan, call));
  std::unique_ptr<BoundOp> own;
  LATHE_ASSIGN(const BoundOp* bound, body_for(body, call, own));
  if (bound->empty) return {};
  const int64_t needed = bound->workspace_bytes;
  LATHE_RETURN_IF_ERROR(check_workspace(exec, needed, kDeviceWorkspaceAlign));
  LATHE_RETURN_IF_ERROR(check_overlaps(body, call, exec, needed));
  for (size_t i = 0; i < num_args; ++i) {
    const Status memory = call.bytes[i] == 0 ? Status() : body.device->check_memory(call.data[i]);
    if (!memory.ok()) return memory.with_arg(body.plan.args[i].name + ".data", static_cast<int>(i));
  }
  if (needed != 0) {
    const Status memory = body.device->check_memory(exec.workspace);
    if (!memory.ok()) return memory.with_arg("exec.workspace", 3);
  }
  return bound->launch(call.data, exec.workspace, exec.stream);
}

Status execute(lathe_kernel* kernel, const lathe_arg* args, size_t num_args, const lathe_exec* exec) {
  LATHE_CHECK_HANDLE(kernel, 0);
  lathe_exec e = LATHE_EXEC_INIT;
  LATHE_RETURN_IF_ERROR(read_struct(exec, e, "exec", 3));
  if (e.reserved != 0) return invalid("expected 0").with_arg("exec.reserved", 3);
  const KernelBody& body = *kernel->body;
  if (body.device != nullptr) return execute_on_device(body, e, args, num_args);
  if (e.stream != nullptr)
    return invalid("expected NULL: a kernel of the CPU joins no stream").with_arg("exec.stream", 3);
  if (e.pool != nullptr) LATHE_RETURN_IF_ERROR(check_pool(e.pool));
  MatchedCall call;
  LATHE_RETURN_IF_ERROR(match_call(body.plan, args, num_args, e.threads == 0 ? 1 : e.threads, call));
  if (!body.plan.values.empty()) LATHE_RETURN_IF_ERROR(match_values(body.plan, call));
  std::unique_ptr<BoundOp> own;
  Result<const BoundOp*> bound = body_for(body, call, own);
  if (!bound.ok()) return bound.status();
  if ((*bound)->empty) return {};
  const int64_t needed = (*bound)->workspace_bytes;
  LATHE_RETURN_IF_ERROR(check_workspace(e, needed));
  LATHE_RETURN_IF_ERROR(check_overlaps(body, call, e, needed));
  Context& context = *body.state->context;
  run_on(**bound, context.seal() == Seal::off, call.data, e, context.team());
  return {};
}

Status workspace_bytes(lathe_kernel* kernel, const lathe_arg* args, size_t num_args, int32_t threads, uint64_t* bytes) {
  LATHE_CHECK_HANDLE(kernel, 0);
  LATHE_CHECK_POINTER(bytes, 4);
  MatchedCall call;
  LATHE_RETURN_IF_ERROR(match_call(kernel->body->plan, args, num_args, threads == 0 ? 1 : threads, call));
  std::unique_ptr<BoundOp> own;
  LATHE_ASSIGN(const BoundOp* bound, body_for(*kernel->body, call, own));
  *bytes = bound->empty ? 0 : static_cast<uint64_t>(bound->workspace_bytes);
  return {};
}

Status pin(lathe_kernel* kernel, const lathe_arg* args, size_t num_args, int32_t threads, lathe_pinned** out) {
  LATHE_CHECK_HANDLE(kernel, 0);
  LATHE_CHECK_POINTER(out, 4);
  const KernelBody& body = *kernel->body;
  LATHE_RETURN_IF_ERROR(check_device(body));
  MatchedCall call;
  LATHE_RETURN_IF_ERROR(match_call(body.plan, args, num_args, threads == 0 ? 1 : threads, call));
  if (body.device != nullptr) LATHE_RETURN_IF_ERROR(match_value_ranges(body.plan, call));
  PinnedBody pinned;
  pinned.state = body.state;
  pinned.op = body.op;
  LATHE_ASSIGN(pinned.bound, body_for(body, call, pinned.own));
  pinned.team = body.state->context->team();
  pinned.device = body.device;
  if (!body.plan.values.empty()) pinned.values = std::make_unique<PinnedValues>(PinnedValues{body.plan, call.key});
  *out = make_handle<lathe_pinned>(std::move(pinned));
  return {};
}

[[gnu::noinline]] lathe_status launch_pinned(const PinnedBody& pinned, void* const* data, const lathe_exec* exec) {
  if (!pinned.device->working().ok()) return LATHE_STATUS_DEVICE;
  if (exec == nullptr || exec->stream == nullptr) return LATHE_STATUS_INVALID;
  return static_cast<lathe_status>(pinned.bound->launch(data, exec->workspace, exec->stream).code());
}

Status check_constant(const KernelBody& body, int32_t arg) {
  if (arg < 0 || static_cast<size_t>(arg) >= body.plan.args.size())
    return invalid("{}, expected 0..{}", arg, body.plan.args.size() - 1).with_arg("arg", 1);
  if (!body.plan.args[static_cast<size_t>(arg)].constant)
    return invalid("{} is not a constant", body.plan.args[static_cast<size_t>(arg)].name).with_arg("arg", 1);
  return {};
}

Status prepack_query(const lathe_kernel* kernel, int32_t arg, lathe_pack_info* out) {
  LATHE_CHECK_HANDLE(kernel, 0);
  LATHE_CHECK_POINTER(out, 2);
  LATHE_RETURN_IF_ERROR(check_constant(*kernel->body, arg));
  const ArgPlan& a = kernel->body->plan.args[static_cast<size_t>(arg)];
  *out = {a.layout_id, a.packed_bytes, a.layout_id == 0 ? 0 : kPackAlign};
  return {};
}

// A constant that is to be packed, checked.
struct PackCall {
  TensorPacking packing;
  const void* source = nullptr;
};
Result<PackCall> match_prepack(const KernelBody& body, int32_t arg, const lathe_tensor* source, const void* out,
                               uint64_t out_bytes) {
  LATHE_RETURN_IF_ERROR(check_constant(body, arg));
  const ArgPlan& a = body.plan.args[static_cast<size_t>(arg)];
  PackCall found;
  if (a.layout_id != 0) {
    LATHE_ASSIGN(found.packing, body.op->stages().packing(arg));
  }
  if (found.packing.parts.empty())
    return ir::make_error(ir::Code::kSTATE, "{} is best left as it is: no packed form", a.name).with_arg("arg", 1);
  MatchedCall call;
  LATHE_RETURN_IF_ERROR(match_constant(body.plan, arg, *source, call));
  if (reinterpret_cast<uintptr_t>(out) % kPackAlign != 0)
    return invalid("not aligned to {} bytes", kPackAlign).with_arg("out", 3);
  if (out_bytes < a.packed_bytes)
    return invalid("{}, expected at least {}", out_bytes, a.packed_bytes).with_arg("out_bytes", 4);
  if (overlaps(out, a.packed_bytes, call.data[arg], call.bytes[arg]))
    return invalid("overlaps the source").with_arg("out", 3);
  found.source = call.data[arg];
  return found;
}

Status prepack(const lathe_kernel* kernel, int32_t arg, const lathe_tensor* source, void* out, uint64_t out_bytes) {
  LATHE_CHECK_HANDLE(kernel, 0);
  LATHE_CHECK_POINTER(source, 2);
  LATHE_CHECK_POINTER(out, 3);
  const KernelBody& body = *kernel->body;
  if (body.device != nullptr)
    return ir::make_error(ir::Code::kSTATE, "a kernel of a GPU packs by lathe_prepack_on_stream").with_arg("kernel", 0);
  LATHE_ASSIGN(const PackCall found, match_prepack(body, arg, source, out, out_bytes));
  ask_for_large_pages(out, body.plan.args[static_cast<size_t>(arg)].packed_bytes);
  LATHE_RETURN_IF_ERROR(run_pack(found.packing, {}, found.source, out, body.op->context().tasks()));
  body.op->context().leaves().publish();  // a host that packs is still starting
  return {};
}

Status prepack_on_stream(const lathe_kernel* kernel, int32_t arg, const lathe_tensor* source, void* out,
                         uint64_t out_bytes, void* stream) {
  LATHE_CHECK_HANDLE(kernel, 0);
  LATHE_CHECK_POINTER(source, 2);
  LATHE_CHECK_POINTER(out, 3);
  const KernelBody& body = *kernel->body;
  if (body.device == nullptr)
    return ir::make_error(ir::Code::kSTATE, "a kernel of the CPU packs by lathe_prepack").with_arg("kernel", 0);
  LATHE_RETURN_IF_ERROR(check_device(body));
  if (stream == nullptr) return invalid("NULL, expected the stream that packing joins").with_arg("stream", 5);
  LATHE_ASSIGN(const PackCall found, match_prepack(body, arg, source, out, out_bytes));
  if (body.plan.args[static_cast<size_t>(arg)].packed_bytes == 0) return {};
  LATHE_RETURN_IF_ERROR(body.device->check_memory(found.source).with_arg("source.data", 2));
  LATHE_RETURN_IF_ERROR(body.device->check_memory(out).with_arg("out", 3));
  return launch_pack(found.packing, found.source, out, stream);
}

}  // namespace
}  // namespace lathe::runtime

using namespace lathe::runtime;  // NOLINT: the C ABI of this floor

extern "C" lathe_status lathe_prepack_query(const lathe_kernel* kernel, int32_t arg, lathe_pack_info* out,
                                            lathe_error* error) {
  return guarded(error, [&] { return prepack_query(kernel, arg, out); });
}
extern "C" lathe_status lathe_prepack(const lathe_kernel* kernel, int32_t arg, const lathe_tensor* source, void* out,
                                      uint64_t out_bytes, lathe_error* error) {
  return guarded(error, [&] { return prepack(kernel, arg, source, out, out_bytes); });
}
extern "C" lathe_status lathe_prepack_on_stream(const lathe_kernel* kernel, int32_t arg, const lathe_tensor* source,
                                                void* out, uint64_t out_bytes, void* stream, lathe_error* error) {
  return guarded(error, [&] { return prepack_on_stream(kernel, arg, source, out, out_bytes, stream); });
}
extern "C" lathe_status lathe_workspace_bytes(lathe_kernel* kernel, const lathe_arg* args, size_t num_args,
                                              int32_t threads, uint64_t* bytes, lathe_error* error) {
  return guarded(error, [&] { return workspace_bytes(kernel, args, num_args, threads, bytes); });
}
extern "C" lathe_status lathe_execute(lathe_kernel* kernel, const lathe_arg* args, size_t num_args,
                                      const lathe_exec* exec, lathe_error* error) {
  return guarded(error, [&] { return execute(kernel, args, num_args, exec); });
}
extern "C" lathe_status lathe_pin(lathe_kernel* kernel, const lathe_arg* args, size_t num_args, int32_t threads,
                                  lathe_pinned** out, lathe_error* error) {
  return guarded(error, [&] { return pin(kernel, args, num_args, threads, out); });
}
extern "C" lathe_status lathe_pinned_run(const lathe_pinned* pinned, void* const* data, const lathe_exec* exec) {
  const PinnedBody& p = *pinned->body;
  ForeignValue foreign;
  if (p.device != nullptr) return launch_pinned(p, data, exec);
  if (p.values != nullptr && !values_fit(p.values->plan, p.values->key, data, foreign)) return LATHE_STATUS_INVALID;
  if (exec == nullptr) {
    run_counted(*p.bound, false, data, nullptr, p.team);
  } else {
    run_on(*p.bound, false, data, *exec, p.team);
  }
  return LATHE_STATUS_OK;
}
extern "C" uint64_t lathe_pinned_workspace_bytes(const lathe_pinned* pinned) {
  return is_live(pinned) ? static_cast<uint64_t>(pinned->body->bound->workspace_bytes) : 0;
}
extern "C" void lathe_pinned_destroy(lathe_pinned* pinned) { destroy_handle(pinned); }
