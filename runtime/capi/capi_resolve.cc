// C ABI: from a graph to a kernel. Operators are shared within a context by semantic identity, classes, threads and
// cache state.
#include <chrono>
#include <optional>

#include "ops/structure.h"
#include "runtime/base/clock.h"
#include "runtime/capi/handle.h"
#include "runtime/live/online_tuner.h"
#include "runtime/tune/warmup.h"

namespace lathe::runtime {

using ir::invalid;
using ir::Result;
using ir::Status;

namespace {

constexpr uint32_t kAllClasses = LATHE_CLASS_REASSOCIATE | LATHE_CLASS_CONTRACT | LATHE_CLASS_APPROXIMATE |
                                 LATHE_CLASS_REDUCED_ACCUMULATE | LATHE_CLASS_QUANTISED_ACTIVATIONS |
                                 LATHE_CLASS_WINOGRAD;
constexpr std::chrono::duration<double> kLongestWait = std::chrono::hours(24 * 365);  // what a clock can add

using Clock = std::chrono::steady_clock;

struct Tuned {
  bool searched = false;
  std::optional<MissReason> missed;  // why something was not measured
};

// Searches for better Schedules and records them, within the time left.
Result<Tuned> tune_operator(ContextState& state, const ops::Graph& graph, const ServeRequest& request, double left_ms) {
  ops::Workload work;
  work.name = graph.name;
  work.graph = graph;
  work.threads = request.prepare.threads;
  work.cache = request.prepare.cold ? ops::CacheState::cold : ops::CacheState::hot;
  work.allowed = request.prepare.allowed;
  WarmupBudget budget;
  budget.wall_ms = left_ms;
  const std::vector<ops::Workload> items{std::move(work)};
  LATHE_ASSIGN(const WarmupReport report, run_warmup(state.context, items, budget));
  Tuned out;
  out.searched = report.searches > 0;
  if (report.no_worker > 0) {
    out.missed = MissReason::k_no_worker;
  } else if (report.pending > 0) {
    out.missed = MissReason::k_budget;
  }
  return out;
}

Result<PrepareInfo> make_operator(ContextState& state, const ops::Graph& graph, const ServeRequest& request,
                                  std::shared_ptr<Operator>& out) {
  LATHE_ASSIGN(out, Operator::create(state.context, graph));
  PrepareRequest prepare = request.prepare;
  prepare.caller_waits = request.wait != LATHE_WAIT_TUNED;
  return out->prepare(prepare, request.wait == LATHE_WAIT_STORED);
}

// The operator that serves: the one there is, else one of the caller's own, unless another caller was quicker.
Result<PrepareInfo> make_or_share(ContextState& state, const ops::Graph& graph, const ServeRequest& request,
                                  ServedOperator& served, std::shared_ptr<Operator>& op) {
  {
    const std::lock_guard lock(served.mutex);
    if (served.op != nullptr) {
      op = served.op;
      PrepareInfo info = served.info;
      info.origin = LeafOrigin::memory;
      return info;
    }
  }
  LATHE_ASSIGN(PrepareInfo info, make_operator(state, graph, request, op));
  {
    const std::lock_guard lock(served.mutex);
    const bool first = served.op == nullptr;
    if (first) {
      served.op = op;
      served.info = info;
    }
    op = served.op;
    info.made = true;
    if (!first) return info;
  }
  state.tuner->watch(op, request.prepare);
  return info;
}

// The only search of an operator at a time; ends with it, whatever comes of it.
class OwnSearch {
 public:
  // Once nobody else searches, if something is left to search for then; nothing at the deadline.
  OwnSearch(ServedOperator& served, Clock::time_point until) : served_(served) {
    std::unique_lock lock(served.mutex);
    const bool free = served.searched.wait_until(lock, until, [&] { return !served.searching; });
    own_ = free && served.info.tier < 2;
    if (own_) served.searching = true;
  }
  ~OwnSearch() {
    if (!own_) return;
    {
      const std::lock_guard lock(served_.mutex);
      served_.searching = false;
    }
    served_.searched.notify_all();
  }
  OwnSearch(const OwnSearch&) = delete;
  OwnSearch& operator=(const OwnSearch&) = delete;
  explicit operator bool() const { return own_; }

 private:
  ServedOperator& served_;
  bool own_ = false;
};

// Tuned by measurement, by this caller or by another that is at it; what there is at the deadline.
Status wait_for_tuned(ContextState& state, const ops::Graph& graph, const ServeRequest& request, ServedOperator& served,
                      Clock::time_point start, std::shared_ptr<Operator>& op, PrepareInfo& info) {
  const auto limit = std::chrono::duration<double, std::nano>(
      request.deadline_ns == 0 ? kNoLimitMs * 1e6 : static_cast<double>(request.deadline_ns));
  const Clock::time_point until =
      start + std::chrono::duration_cast<Clock::duration>(std::min<std::chrono::duration<double>>(limit, kLongestWait));
  const OwnSearch own(served, until);
  const double left_ms = std::chrono::duration<double, std::milli>(until - Clock::now()).count();
  if (own && left_ms > 0) {
    LATHE_ASSIGN(const Tuned tuned,
                 tune_operator(state, graph, request, request.deadline_ns == 0 ? kNoLimitMs : left_ms));
    if (tuned.searched) {
      std::shared_ptr<Operator> better;
      LATHE_ASSIGN(info, make_operator(state, graph, request, better));
      (void)op->complete();  // handles go on using it, and a seal would not find it any more
      {
        const std::lock_guard lock(served.mutex);
        served.op = op = better;
        served.info = info;
      }
      served.generation.fetch_add(1, std::memory_order_release);
      state.tuner->watch(better, request.prepare);
    }
    if (tuned.missed) {
      info.missed = true;
      info.miss = *tuned.missed;
      state.context->stats().miss(*tuned.missed);
    }
    return {};
  }
  const std::lock_guard lock(served.mutex);
  op = served.op;
  const bool waited_in_vain = served.info.tier < 2;
  info = served.info;
  info.origin = LeafOrigin::memory;
  if (waited_in_vain) {
    info.missed = true;
    info.miss = MissReason::k_budget;
    state.context->stats().miss(MissReason::k_budget);
  }
  return {};
}

void count(Context& context, const PrepareInfo& info, uint64_t ns) {
  Stats& stats = context.stats();
  stats.add(info.tier >= 2 ? Stat::k_hits_t2 : info.tier == 1 ? Stat::k_hits_t1 : Stat::k_hits_t0);
  if (info.origin == LeafOrigin::compiled) stats.add(Stat::k_caller_blocked_ns, static_cast<int64_t>(ns));
  if (info.tier == 0 && context.target().level != ir::IsaLevel::portable) stats.add(Stat::k_fallbacks);
}

}  // namespace

Result<std::shared_ptr<ServedOperator>> serve(ContextState& state, const ops::Graph& graph, const ServeRequest& request,
                                              std::shared_ptr<Operator>* op, PrepareInfo* info) {
  const Clock::time_point start = Clock::now();
  const PrepareRequest& p = request.prepare;
  const std::string key = fmt::format("{} {} {}\n{}", p.threads, p.cold, p.allowed, ops::structure_of(graph));
  std::shared_ptr<ServedOperator> served;
  {
    std::lock_guard lock(state.mutex);
    std::shared_ptr<ServedOperator>& slot = state.served[key];
    if (slot == nullptr) slot = std::make_shared<ServedOperator>();
    served = slot;
  }
  LATHE_ASSIGN(*info, make_or_share(state, graph, request, *served, *op));
  if (request.wait == LATHE_WAIT_TUNED && info->tier < 2 && state.context->seal() == Seal::off) {
    LATHE_RETURN_IF_ERROR(wait_for_tuned(state, graph, request, *served, start, *op, *info));
  }
  if (request.wait == LATHE_WAIT_TUNED) state.context->leaves().publish_all();
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  count(*state.context, *info, static_cast<uint64_t>(ns));
  return served;
}

namespace {

std::map<std::string, std::shared_ptr<ServedOperator>> all_served(ContextState& state) {
  const std::lock_guard lock(state.mutex);
  return state.served;
}

}  // namespace

void complete_all(ContextState& state) {
  for (const auto& [key, served] : all_served(state)) {
    std::shared_ptr<Operator> op;
    {
      const std::lock_guard lock(served->mutex);
      op = served->op;
    }
    if (op != nullptr) (void)op->complete();  // what cannot be made, the calls that want it say
  }
}

void forget_untuned(ContextState& state) {
  for (const auto& [key, served] : all_served(state)) {
    std::shared_ptr<Operator> op;
    {
      const std::lock_guard lock(served->mutex);
      if (served->info.tier < 2) op = served->op;
    }
    if (op == nullptr) continue;
    (void)op->complete();  // handles go on using it, and a seal would not find it any more
    const std::lock_guard lock(state.mutex);
    const std::lock_guard fields(served->mutex);
    const auto it = state.served.find(key);
    if (served->op != op || it == state.served.end() || it->second != served) continue;  // somebody was quicker
    served->generation.fetch_add(1, std::memory_order_release);
    state.served.erase(it);
  }
}

namespace {

Status read_policy(const lathe_policy* policy, ServeRequest& request, uint64_t& max_workspace) {
  lathe_policy p = LATHE_POLICY_INIT;
  LATHE_RETURN_IF_ERROR(read_struct(policy, p, "policy", 2));
  if (p.wait > LATHE_WAIT_STORED) return invalid("{}, expected a lathe_wait", p.wait).with_arg("policy.wait", 2);
  if ((p.allowed & ~kAllClasses) != 0)
    return invalid("{:#x}: unknown classes", p.allowed).with_arg("policy.allowed", 2);
  if (p.threads < 0 || p.threads > kMaxThreads)
    return invalid("{}, expected 0..{}", p.threads, kMaxThreads).with_arg("policy.threads", 2);
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
uint64_t generation_of(const KernelBody& body) {
  return body.served->generation.load(std::memory_order_acquire) + body.op->generation();
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
