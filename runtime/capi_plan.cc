// C ABI: plans. What a plan does with each operator is warm-up's affair; here: the list, the budget, the report.
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "ops/manifest.h"
#include "runtime/handle.h"

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

using Clock = std::chrono::steady_clock;
constexpr size_t kMaxManifest = size_t{64} << 20;

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

Result<std::string> read_file(const std::string& path) {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
  if (file == nullptr) return ir::make_error_impl(ir::Code::kIO, fmt::format("\"{}\" cannot be read", path), "path", 1, errno);
  std::string text;
  char chunk[65536];
  for (size_t n; (n = std::fread(chunk, 1, sizeof(chunk), file.get())) > 0;) {
    text.append(chunk, n);
    if (text.size() > kMaxManifest) return invalid("\"{}\" has more than {} bytes", path, kMaxManifest).with_arg("path", 1);
  }
  if (std::ferror(file.get()) != 0) return ir::make_error_impl(ir::Code::kIO, fmt::format("\"{}\" cannot be read", path), "path", 1, errno);
  return text;
}

Status load_plan(lathe_plan* plan, const char* path) {
  LATHE_RETURN_IF_ERROR(check_idle(plan));
  LATHE_ASSIGN(const std::string name, read_text(path, "path", 1));
  LATHE_ASSIGN(const std::string text, read_file(name));
  LATHE_ASSIGN(std::vector<ops::Workload> work, ops::parse_manifest(text));
  for (ops::Workload& w : work) {
    LATHE_ASSIGN(w.graph, ops::finish(w.graph));
  }
  auto& list = plan->body->work;
  list.insert(list.end(), std::make_move_iterator(work.begin()), std::make_move_iterator(work.end()));
  return {};
}

Status add_to_plan(lathe_plan* plan, const lathe_graph* graph, double weight) {
  LATHE_RETURN_IF_ERROR(check_idle(plan));
  LATHE_CHECK_HANDLE(graph, 1);
  if (graph->body->state != plan->body->state) return invalid("belongs to another context").with_arg("graph", 1);
  if (!graph->body->finished) return ir::make_error(ir::Code::kSTATE, "the graph is not finished").with_arg("graph", 1);
  if (!std::isfinite(weight) || weight < 0) return invalid("{}, expected finite and >= 0", weight).with_arg("weight", 2);
  ops::Workload w;
  w.name = graph->body->graph.name;
  w.graph = graph->body->graph;
  w.weight = weight;
  plan->body->work.push_back(std::move(w));
  return {};
}

struct Running {
  explicit Running(std::atomic<bool>& flag) : flag(flag) {}
  ~Running() { flag.store(false); }
  std::atomic<bool>& flag;
};

// Counters that the report is the difference of.
lathe_report counters(const Stats& stats) {
  lathe_report r = LATHE_REPORT_INIT;
  r.from_store = static_cast<uint64_t>(stats.get(Stat::k_from_store));
  r.compiled_xbyak = static_cast<uint64_t>(stats.get(Stat::k_compiled_xbyak));
  r.compiled_llvm = static_cast<uint64_t>(stats.get(Stat::k_compiled_llvm));
  r.searches = static_cast<uint64_t>(stats.get(Stat::k_searches));
  r.measurements = static_cast<uint64_t>(stats.get(Stat::k_measurements));
  return r;
}

void fill_report(const lathe_report& before, const Stats& stats, Clock::time_point start, lathe_report& r) {
  const lathe_report now = counters(stats);
  r.from_store = now.from_store - before.from_store;
  r.compiled_xbyak = now.compiled_xbyak - before.compiled_xbyak;
  r.compiled_llvm = now.compiled_llvm - before.compiled_llvm;
  r.searches = now.searches - before.searches;
  r.measurements = now.measurements - before.measurements;
  r.wall_ms = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count());
}

// All operators in order, until the budget is spent or the caller cancels.
Status run_all(PlanBody& body, const lathe_budget& budget, lathe_progress progress, void* user, lathe_report& report) {
  const Clock::time_point start = Clock::now();
  double total = 0, done = 0;
  for (const ops::Workload& w : body.work) total += w.weight;
  for (const ops::Workload& w : body.work) {
    if (budget.cancel != nullptr && *budget.cancel != 0) return ir::make_error(ir::Code::kCANCELLED, "cancelled after {} operators", report.ops);
    const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
    if (budget.wall_ms != 0 && static_cast<uint64_t>(spent) >= budget.wall_ms) {
      return ir::make_error(ir::Code::kTIMEOUT, "{} ms spent after {} operators", spent, report.ops);
    }
    ServeRequest request;
    request.prepare = {w.threads, w.cache == ops::CacheState::cold,
                       w.allowed == 0 ? uint32_t{LATHE_CLASS_REASSOCIATE | LATHE_CLASS_CONTRACT} : w.allowed};
    request.wait = budget.tier == 1 ? LATHE_NOW : LATHE_WAIT;
    if (budget.wall_ms != 0) request.deadline_ns = (budget.wall_ms - static_cast<uint64_t>(spent)) * 1000000;
    request.candidates = budget.candidates;
    request.cancel = budget.cancel;
    std::shared_ptr<Operator> op;
    PrepareInfo info;
    if (!serve(*body.state, w.graph, request, &op, &info).ok()) ++report.failed;
    ++report.ops;
    done += w.weight;
    if (progress != nullptr) progress(user, total > 0 ? done / total : 1, w.name.c_str());
  }
  return {};
}

Status run_plan(lathe_plan* plan, const lathe_budget* budget, lathe_progress progress, void* user, lathe_report* report) {
  LATHE_RETURN_IF_ERROR(check_idle(plan));
  lathe_budget b = LATHE_BUDGET_INIT;
  LATHE_RETURN_IF_ERROR(read_struct(budget, b, "budget", 1));
  if (b.tier < 0 || b.tier > 2) return invalid("{}, expected 1 or 2 (0: 2)", b.tier).with_arg("budget.tier", 1);
  if (b.candidates < 0 || b.candidates > 4096) return invalid("{}, expected 0..4096", b.candidates).with_arg("budget.candidates", 1);
  if (report != nullptr) LATHE_RETURN_IF_ERROR(check_struct(report, sizeof(lathe_report), "report", 4));
  if (b.candidates == 0) b.candidates = 16;
  PlanBody& body = *plan->body;
  if (body.running.exchange(true)) return ir::make_error(ir::Code::kSTATE, "the plan is running").with_arg("plan", 0);
  const Running running(body.running);
  const Stats& stats = body.state->context->stats();
  const lathe_report before = counters(stats);
  const Clock::time_point start = Clock::now();
  lathe_report done = LATHE_REPORT_INIT;
  const Status status = run_all(body, b, progress, user, done);
  fill_report(before, stats, start, done);
  if (report != nullptr) write_struct(done, report);
  return status;
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
  return guarded(error, [&] { return add_to_plan(plan, graph, weight); });
}
extern "C" lathe_status lathe_plan_run(lathe_plan* plan, const lathe_budget* budget, lathe_progress progress, void* user, lathe_report* report,
                                       lathe_error* error) {
  return guarded(error, [&] { return run_plan(plan, budget, progress, user, report); });
}
extern "C" void lathe_plan_destroy(lathe_plan* plan) {
  if (is_live(plan) && plan->body->running.load()) return;  // from a progress callback
  destroy_handle(plan);
}
