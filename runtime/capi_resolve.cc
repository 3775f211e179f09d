// C ABI: from a graph to a kernel. Operators are shared within a context by semantic identity, classes, threads and cache state.
#include <chrono>

#include "ir/text_form.h"
#include "runtime/clock.h"
#include "runtime/handle.h"
#include "runtime/online_tuner.h"
#include "runtime/warmup.h"

namespace lathe::runtime {

using ir::invalid;
using ir::Result;
using ir::Status;

namespace {

constexpr uint32_t kAllClasses = LATHE_CLASS_REASSOCIATE | LATHE_CLASS_CONTRACT | LATHE_CLASS_APPROXIMATE | LATHE_CLASS_REDUCED_ACCUMULATE |
                                 LATHE_CLASS_QUANTISED_ACTIVATIONS | LATHE_CLASS_WINOGRAD;

void append_dims(std::string& out, const std::vector<ops::DimDesc>& dims) {
  for (const ops::DimDesc& d : dims) {
    out += fmt::format(" {}..{}%{}{}", d.min, d.max, d.multiple_of, d.symbol);
    for (const ops::Hint& h : d.hints) out += fmt::format("~{}*{}", h.value, h.weight);
  }
}

void append_value(std::string& out, const ops::AttrValue& value) {
  std::visit(
      [&](const auto& v) {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::vector<int64_t>>) {
          for (const int64_t i : v) out += fmt::format("{},", i);
        } else {
          out += fmt::format("{}", v);
        }
      },
      value);
}

// Searches for better Schedules and records them, within the deadline; true if something was searched.
Result<bool> tune_operator(ContextState& state, const ops::Graph& graph, const ServeRequest& request) {
  ops::Workload work;
  work.name = graph.name;
  work.graph = graph;
  work.threads = request.prepare.threads;
  work.cache = request.prepare.cold ? ops::CacheState::cold : ops::CacheState::hot;
  work.allowed = request.prepare.allowed;
  WarmupBudget budget;
  budget.wall_ms = request.deadline_ns == 0 ? kNoLimitMs : static_cast<double>(request.deadline_ns) * 1e-6;
  const std::vector<ops::Workload> items{std::move(work)};
  LATHE_ASSIGN(const WarmupReport report, run_warmup(state.context, items, budget));
  return report.searches > 0;
}

Result<PrepareInfo> make_operator(ContextState& state, const ops::Graph& graph, const ServeRequest& request, std::shared_ptr<Operator>& out) {
  LATHE_ASSIGN(std::shared_ptr<Operator> op, Operator::create(state.context, graph));
  PrepareRequest prepare = request.prepare;
  prepare.caller_waits = true;
  Result<PrepareInfo> info = op->prepare(prepare, request.wait == LATHE_COMPILED_ONLY);
  if (!info.ok()) return info;
  state.context->tuner().watch(op, request.prepare);
  out = std::move(op);
  return info;
}

void count(Context& context, const PrepareInfo& info, uint64_t ns) {
  Stats& stats = context.stats();
  stats.add(info.tier >= 2 ? Stat::k_hits_t2 : info.tier == 1 ? Stat::k_hits_t1 : Stat::k_hits_t0);
  if (info.origin == LeafOrigin::compiled) stats.add(Stat::k_caller_blocked_ns, static_cast<int64_t>(ns));
  if (info.tier == 0 && context.target().level != ir::IsaLevel::portable) stats.add(Stat::k_fallbacks);
}

}  // namespace

std::string semantic_text(const ops::Graph& graph) {
  std::string out;
  for (const ops::TensorDesc& t : graph.tensors) {
    out += fmt::format("{}{}", ir::dtype_name(t.dtype), t.constant ? "!" : "");
    append_dims(out, t.dims);
    for (const ir::Expr& s : t.strides) out += fmt::format(" /{}", ir::print(s));
    out += '\n';
  }
  for (const ops::Node& n : graph.nodes) {
    out += n.op;
    for (const int i : n.inputs) out += fmt::format(" {}", i);
    out += fmt::format(" > {}", n.output);
    for (const ops::Attr& a : n.attrs) {
      out += fmt::format(" {}:{}=", a.name, a.value.index());
      append_value(out, a.value);
    }
    out += '\n';
  }
  for (const int i : graph.inputs) out += fmt::format("<{}", i);
  for (const int i : graph.outputs) out += fmt::format(">{}", i);
  append_dims(out, graph.symbols);
  return out;
}

Result<std::shared_ptr<ServedOperator>> serve(ContextState& state, const ops::Graph& graph, const ServeRequest& request,
                                              std::shared_ptr<Operator>* op, PrepareInfo* info) {
  const PrepareRequest& p = request.prepare;
  const std::string key = fmt::format("{} {} {}\n{}", p.threads, p.cold, p.allowed, semantic_text(graph));
  std::shared_ptr<ServedOperator> served;
  {
    std::lock_guard lock(state.mutex);
    std::shared_ptr<ServedOperator>& slot = state.served[key];
    if (slot == nullptr) slot = std::make_shared<ServedOperator>();
    served = slot;
  }
  const auto start = std::chrono::steady_clock::now();
  std::lock_guard lock(served->mutex);
  if (served->op == nullptr) {
    LATHE_ASSIGN(served->info, make_operator(state, graph, request, served->op));
    *info = served->info;
    info->made = true;
  } else {
    *info = served->info;
    info->origin = LeafOrigin::memory;
  }
  if (request.wait == LATHE_WAIT && served->info.tier < 2 && state.context->seal() == Seal::off) {
    LATHE_ASSIGN(const bool found, tune_operator(state, graph, request));
    if (found) {
      LATHE_ASSIGN(served->info, make_operator(state, graph, request, served->op));
      served->generation.fetch_add(1, std::memory_order_release);
      *info = served->info;
    }
  }
  if (request.wait != LATHE_NOW) state.context->leaves().publish();
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
  count(*state.context, *info, static_cast<uint64_t>(ns));
  *op = served->op;
  return served;
}

namespace {
std::map<std::string, std::shared_ptr<ServedOperator>> all_served(ContextState& state) {
  std::lock_guard lock(state.mutex);
  return state.served;
}
}  // namespace

void complete_all(ContextState& state) {
  for (const auto& [key, served] : all_served(state)) {
    std::lock_guard lock(served->mutex);
    if (served->op != nullptr) (void)served->op->complete();  // what cannot be made, the calls that want it say
  }
}

void forget_untuned(ContextState& state) {
  const std::map<std::string, std::shared_ptr<ServedOperator>> all = all_served(state);
  for (const auto& [key, served] : all) {
    {
      std::lock_guard lock(served->mutex);
      if (served->op == nullptr || served->info.tier >= 2) continue;
      (void)served->op->complete();  // handles go on using it, and a seal would not find it any more
      served->generation.fetch_add(1, std::memory_order_release);
    }
    std::lock_guard lock(state.mutex);
    const auto it = state.served.find(key);
    if (it != state.served.end() && it->second == served) state.served.erase(it);
  }
}

namespace {

Status read_policy(const lathe_policy* policy, ServeRequest& request, uint64_t& max_workspace) {
  lathe_policy p = LATHE_POLICY_INIT;
  LATHE_RETURN_IF_ERROR(read_struct(policy, p, "policy", 2));
  if (p.wait > LATHE_COMPILED_ONLY) return invalid("{}, expected a lathe_wait", p.wait).with_arg("policy.wait", 2);
  if ((p.allowed & ~kAllClasses) != 0) return invalid("{:#x}: unknown classes", p.allowed).with_arg("policy.allowed", 2);
  if (p.threads < 0 || p.threads > kMaxThreads) return invalid("{}, expected 0..{}", p.threads, kMaxThreads).with_arg("policy.threads", 2);
  if (p.cold > 1) return invalid("{}, expected 0 or 1", p.cold).with_arg("policy.cold", 2);
  request.wait = p.wait;
  request.deadline_ns = p.deadline_ns;
  request.prepare.allowed = p.allowed == 0 ? uint32_t{LATHE_CLASS_REASSOCIATE | LATHE_CLASS_CONTRACT} : p.allowed;
  request.prepare.threads = p.threads == 0 ? 1 : p.threads;
  request.prepare.cold = p.cold == 1;
  max_workspace = p.max_workspace;
  return {};
}

// A better operator was made, or a body of this one was replaced.
uint64_t generation_of(const KernelBody& body) { return body.served->generation.load(std::memory_order_acquire) + body.op->generation(); }

void copy_text(char* to, size_t size, std::string_view from) {
  const size_t n = std::min(from.size(), size - 1);
  std::memcpy(to, from.data(), n);
  to[n] = 0;
}

uint32_t origin_of(LeafOrigin origin) {
  switch (origin) {
    case LeafOrigin::memory: return LATHE_ORIGIN_MEMORY;
    case LeafOrigin::store: return LATHE_ORIGIN_STORE;
    case LeafOrigin::compiled: return LATHE_ORIGIN_COMPILED;
    case LeafOrigin::builtin: return LATHE_ORIGIN_BUILTIN;
  }
  return LATHE_ORIGIN_BUILTIN;
}

Status resolve(lathe_context* ctx, const lathe_graph* graph, const lathe_policy* policy, lathe_kernel** out, lathe_kernel_info* info) {
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
  PrepareInfo prepared;
  LATHE_ASSIGN(body.served, serve(state, graph->body->graph, request, &body.op, &prepared));
  LATHE_ASSIGN(body.plan, make_call_plan(*body.op, graph->body->graph));
  bool packed = false;
  for (const ArgPlan& a : body.plan.args) packed |= a.layout_id != 0;
  const bool asked = info != nullptr || max_workspace != 0;  // what calls with constants as they lie need as well
  LATHE_ASSIGN(const int64_t most, body.op->hinted_workspace(request.prepare.threads, packed, asked));
  const auto workspace = static_cast<uint64_t>(most);
  if (max_workspace != 0 && workspace > max_workspace) {
    state.context->stats().miss(MissReason::k_workspace);
    return ir::unsupported("{} bytes, and {} are needed at the hinted dims", max_workspace, workspace).with_arg("policy.max_workspace", 2);
  }
  lathe_kernel_info filled = LATHE_KERNEL_INFO_INIT;
  filled.tier = prepared.tier;
  filled.origin = origin_of(prepared.origin);
  filled.numeric_class = prepared.numeric;
  filled.num_args = static_cast<int32_t>(body.plan.args.size());
  filled.workspace_bytes = workspace;
  filled.generation = generation_of(body);
  if (prepared.missed) copy_text(filled.miss_reason, sizeof(filled.miss_reason), miss_reason_name(prepared.miss));
  copy_text(filled.name, sizeof(filled.name), graph->body->graph.name);
  *out = make_handle<lathe_kernel>(std::move(body));
  if (prepared.made) state.context->stats().add(Stat::k_first_resolve_cpu_ns, thread_cpu_ns() - start);
  if (info != nullptr) write_struct(filled, info);
  return {};
}

}  // namespace
}  // namespace lathe::runtime

using namespace lathe::runtime;  // NOLINT: the C ABI of this floor

extern "C" lathe_status lathe_resolve(lathe_context* ctx, const lathe_graph* graph, const lathe_policy* policy, lathe_kernel** out,
                                      lathe_kernel_info* info, lathe_error* error) {
  return guarded(error, [&] { return resolve(ctx, graph, policy, out, info); });
}
extern "C" void lathe_kernel_destroy(lathe_kernel* kernel) { destroy_handle(kernel); }
extern "C" uint64_t lathe_generation(const lathe_kernel* kernel) {
  return is_live(kernel) ? generation_of(*kernel->body) : 0;
}
