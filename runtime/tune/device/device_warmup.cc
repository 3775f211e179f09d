// See device_warmup.h.
#include "runtime/tune/device/device_warmup.h"

#include <algorithm>
#include <cmath>

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"
#include "runtime/base/clock.h"
#include "runtime/cuda/device_home.h"
#include "runtime/cuda/device_stage.h"
#include "runtime/measure/work.h"
#include "runtime/measure/worker_client.h"
#include "runtime/tune/warmup_search.h"
#include "search/gpu/packed_constants.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;
using search::Outcome;

namespace {

constexpr int kBuildMs = 30'000;  // a compilation among it, which NVRTC may want seconds for

// One Kernel at one hinted shape.
struct Task {
  int kernel = 0;
  SymbolValues dims;
  search::Problem problem;
  DecisionQuery query;
  std::string note;
  bool stored = false;    // a decision that needs nothing
  bool measured = false;  // by this warm-up
  double us = 0, default_us = 0;
  search::Schedule schedule;  // that serves
};

struct Entry {
  const ops::Workload* item = nullptr;
  std::shared_ptr<Operator> op;
  PrepareRequest request;
  std::vector<Task> tasks;
  LeafOrigin origin = LeafOrigin::memory;
  bool worked = false;  // something was compiled or decided for it
  Status failed;
};

class DeviceWarmup {
 public:
  DeviceWarmup(const std::shared_ptr<Context>& context, const DeviceChoice& on, const WarmupBudget& budget,
               const WarmupObserver& observer)
      : context_(context), on_(on), budget_(budget), observer_(observer), start_(now_ms()) {
    home_ = device_home(on.target);
    policy_.compile = context->seal() == Seal::off;
    policy_.limits.cancelled = budget.cancelled;
    if (on.device != nullptr) policy_.driver = on.device->driver().version;
  }

  WarmupReport run(const std::vector<ops::Workload>& items) {
    const int64_t compiled = context_->stats().get(Stat::k_compiled_nvrtc);
    std::vector<Entry> entries(items.size());
    for (size_t i = 0; i < items.size(); ++i) entries[i].item = &items[i];
    // NVRTC is parallel: operators are prepared and compiled on the threads there are.
    (void)for_each_index(context_->tasks(), entries.size(), [&](size_t i) {
      if (!cancelled()) entries[i].failed = prepare(&entries[i]);
      return Status();
    });
    for (Entry& e : entries) {
      if (e.failed.ok() && e.op != nullptr) decide(&e);
      if (!e.failed.ok()) fail(*e.item, e.failed);
    }
    for (Entry& e : entries) finish(&e);
    report_.ops = static_cast<int>(items.size());
    report_.compiled_nvrtc = context_->stats().get(Stat::k_compiled_nvrtc) - compiled;
    report_.cancelled = cancelled();
    report_.gain_geomean = gains_ > 0 ? std::exp(log_gain_ / gains_) : 1;
    report_.wall_ms = now_ms() - start_;
    report_.digest = fmt::format("{:016x}", ir::hash_text(served_));
    return report_;
  }

 private:
  bool cancelled() const { return budget_.cancelled && budget_.cancelled(); }
  bool times() const { return on_.device != nullptr && budget_.tier >= 2 && budget_.wall_ms > 0; }
  double left_ms() const { return budget_.wall_ms - (now_ms() - start_); }
  DeviceCodes& codes() const { return context_->device_codes(); }

  void fail(const ops::Workload& item, const Status& status) {
    ++report_.failed;
    if (observer_.failed) observer_.failed(item, status);
  }

  Result<DevicePlan> plan(Entry* e, const search::Problem& problem, const search::Schedule* schedule,
                          const std::string& compiler = {}) const {
    DevicePolicy policy = policy_;
    policy.compiler = compiler;
    policy.allowed = problem.allowed;
    Result<DevicePlan> made = plan_on_device(problem.kernel, problem.dims, schedule, on_.target, codes(), policy);
    if (made.ok()) {
      e->origin = std::max(e->origin, made->origin);
      e->worked |= made->origin == LeafOrigin::compiled;
    }
    return made;
  }

  Status prepare(Entry* e) const {
    LATHE_ASSIGN(ops::Graph graph, ops::finish(e->item->graph));
    graph.name = e->item->name;
    LATHE_ASSIGN(e->op, Operator::create(context_, graph));
    e->request.allowed = e->item->allowed;
    for (size_t k = 0; k < e->op->lowered().kernels.size(); ++k) {
      const int kernel = static_cast<int>(k);
      search::Problem whole = e->op->general_problem(kernel, true, e->request);
      const bool packs = !search::packed_constants(whole.kernel).empty();
      if (!e->op->lowered().kernels[k].kernel.symbols.empty()) LATHE_RETURN_IF_ERROR(plan(e, whole, nullptr).status());
      if (packs) {  // what calls with constants as they lie need
        whole.kernel = search::reads_given(whole.kernel);
        LATHE_RETURN_IF_ERROR(plan(e, whole, nullptr).status());
      }
      for (const SymbolValues& dims : e->op->hinted_dims()) {
        Task t;
        t.kernel = kernel;
        t.dims = dims;
        t.problem = e->op->problem(kernel, dims, e->request);
        t.query = e->op->query(kernel, dims, e->request);
        t.query.home = home_;
        LATHE_RETURN_IF_ERROR(find(e, &t));
        e->tasks.push_back(std::move(t));
      }
    }
    return {};
  }

  // What is stored, if it serves; else the default with its code.
  Status find(Entry* e, Task* t) const {
    const std::optional<Decision> known = context_->find_decision(t->query);
    if (known && !budget_.force) {
      const Result<search::Schedule> schedule = search::parse_schedule(known->schedule);
      const Result<DevicePlan> made = schedule.ok() ? plan(e, t->problem, &*schedule) : schedule.status();
      if (made.ok()) {
        t->schedule = made->scheduled.schedule;
        t->us = known->best_us;
        t->default_us = known->default_us;
        t->stored = settled(*known, *made);
        return {};
      }
    }
    LATHE_ASSIGN(const DevicePlan made, plan(e, t->problem, nullptr));
    t->schedule = made.scheduled.schedule;
    return {};
  }

  // A guess is as good as it gets where nothing is timed. What was timed with the code of another compiler is a guess.
  bool settled(const Decision& known, const DevicePlan& made) const {
    if (!times()) return true;
    if (known.unmeasured()) return false;
    const auto compiler = codes().compiler(on_.device->driver().version);
    return !compiler.ok() || std::all_of(made.steps.begin(), made.steps.end(), [&](const CudaLaunch::Step& s) {
      return s.code->compiler == (*compiler)->version();
    });
  }

  void decide(Entry* e) {
    for (Task& t : e->tasks) {
      if (t.stored) continue;
      e->worked = true;
      if (!times()) {
        t.note = on_.device == nullptr ? "ranked: no such GPU at hand" : "ranked";
        keep(e, &t, Decision{});
        continue;
      }
      if (cancelled() || left_ms() <= 0) {
        ++report_.pending;
        t.note = "no time left to measure";
        if (!context_->find_decision(t.query)) keep(e, &t, Decision{});
        continue;
      }
      const Status searched = search(e, &t);
      if (!searched.ok()) {
        t.note = searched.message();
        ++report_.unmeasured;
        const bool no_worker = searched.code() == ir::Code::kIO;
        report_.no_worker += no_worker;
        if (no_worker) fail(*e->item, ir::make_error(ir::Code::kIO, "nothing was measured: {}", searched.message()));
        if (!context_->find_decision(t.query)) keep(e, &t, Decision{});
      }
      progress(*e, t);
    }
  }

  // Records what serves at that shape, with its code: of what was timed the code of the compiler that made it then.
  void keep(Entry* e, Task* t, Decision decision, const std::string& compiler = {}) {
    const Result<DevicePlan> made = plan(e, t->problem, &t->schedule, compiler);
    if (!made.ok()) {
      e->failed = made.status();
      return;
    }
    decision.kernel = t->problem.kernel.name;
    decision.op = t->problem.kernel.family;
    for (const SymbolRange& r : t->query.ranges) decision.op += fmt::format(" {}..{}", r.lo, r.hi);
    decision.schedule = search::to_text(made->scheduled.schedule);
    for (const CudaLaunch::Step& s : made->steps) decision.leaf_keys.push_back(s.code->key);
    for (const DevicePlan::Packing& p : made->packings)
      decision.leaf_keys.insert(decision.leaf_keys.end(), p.packed.leaf_keys.begin(), p.packed.leaf_keys.end());
    context_->record_decision(t->query, std::move(decision));
  }

  WorkerClient& worker() {
    if (worker_ == nullptr) {
      WorkerOptions o;
      o.path = context_->options().text(ir::OptionId::worker);
      o.build_ms = kBuildMs;
      // Which devices there are under which numbers.
      for (const char* name : {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"}) {
        if (const auto value = ir::process_environment(name)) o.environment.push_back(std::string(name) + "=" + *value);
      }
      o.store = &context_->store();
      o.stats = &context_->stats();
      worker_ = std::make_unique<WorkerClient>(std::move(o));
    }
    return *worker_;
  }

  Status search(Entry* e, Task* t) {
    if (operand_bytes(t->problem.kernel, t->dims) > budget_.ram)
      return ir::unsupported("its operands need more than {} MiB", budget_.ram >> 20);
    LATHE_ASSIGN(const std::vector<search::Scheduled> ranked,
                 rank_on_device(t->problem.kernel, t->dims, on_.target,
                                std::min<size_t>(kTimedOnDevice + 1, static_cast<size_t>(budget_.candidates)),
                                t->problem.allowed));
    LATHE_ASSIGN(const std::shared_ptr<const jit::Nvrtc> compiler, codes().compiler(on_.device->driver().version));
    EvaluateTask task;
    task.kernel_text = ir::print(t->problem.kernel);
    task.dims = t->dims;
    task.target = on_.target.architecture + " " + on_.target.name;
    task.seed = budget_.seed;
    task.budget_ms = left_ms();
    task.device = on_.number;
    task.cuda = on_.device->driver().file;
    task.nvrtc = compiler->file();
    context_->stats().add(Stat::k_searches);
    ++report_.searches;
    const Evaluator evaluate = worker_evaluator(worker(), budget_.cancelled);
    LATHE_ASSIGN(const std::unique_ptr<Evaluation> evaluation, evaluate(task));
    std::vector<CandidateSpec> specs;
    for (const search::Scheduled& s : ranked) specs.push_back({search::to_text(s.schedule), true});
    LATHE_ASSIGN(const std::vector<CandidateResult> results, evaluation->screen(specs));
    int timed = 0;
    std::string why;
    for (const CandidateResult& r : results) {
      timed += r.outcome == Outcome::timed;
      report_.rejected += rejected(r.outcome);
      if (r.outcome != Outcome::timed) ++report_.rejected_by[outcome_name(r.outcome)];
      if (r.outcome != Outcome::timed && why.empty()) why = r.reason;
    }
    report_.measurements += timed;
    if (timed == 0) return ir::unsupported("no candidate is right: {}", why);
    LATHE_ASSIGN(const FinalResult decided, evaluation->decide(choose_finalists(results, false), -1));
    report_.further += decided.further;
    const auto winner = static_cast<size_t>(decided.winner);
    Decision d;
    d.status = decided.tie ? DecisionStatus::tie : DecisionStatus::verified;
    d.default_us = decided.default_us;
    d.best_us = decided.best_us;
    d.oracle = {3, results[winner].err_over_bound, gate_name(results[winner].gate)};
    for (size_t i = 0; i < results.size(); ++i) {
      const CandidateResult& r = results[i];
      if (r.outcome != Outcome::timed) continue;
      d.candidates.push_back({fmt::format("{:016x}", ir::hash_text(specs[i].schedule)),
                              static_cast<int64_t>(r.samples_us.size()), r.us(false), r.us(true), r.interval_lo,
                              r.interval_hi});
    }
    t->schedule = ranked[winner].schedule;
    t->us = decided.best_us;
    t->default_us = decided.default_us;
    t->measured = true;
    report_.ties += decided.tie;
    report_.promoted += !decided.tie;
    if (decided.default_us > 0 && decided.best_us > 0) {
      log_gain_ += std::log(decided.default_us / decided.best_us);
      ++gains_;
    }
    keep(e, t, std::move(d), compiler->version());
    return {};
  }

  void progress(const Entry& e, const Task& t) const {
    if (!observer_.progress) return;
    WarmupProgress p;
    p.item = e.item;
    p.dims = t.dims;
    p.best_us = t.us;
    p.default_us = t.default_us;
    p.wall_ms = now_ms() - start_;
    observer_.progress(p);
  }

  // A row for each hinted shape.
  void finish(Entry* e) {
    if (e->op == nullptr || !e->failed.ok()) return;
    report_.from_store += !e->worked;
    for (const SymbolValues& dims : e->op->hinted_dims()) {
      WarmupRow row;
      row.item = e->item;
      row.dims = dims;
      row.dtype = ir::dtype_name(e->op->graph().tensors[static_cast<size_t>(e->op->graph().outputs[0])].dtype);
      row.origin = e->origin;
      row.tie = true;
      row.tier = 2;
      bool all = true;
      for (const Task& t : e->tasks) {
        if (!(t.dims == dims)) continue;
        if (!row.schedule.empty()) row.schedule += "; ";
        row.schedule += schedule_summary(t.schedule);
        row.us += t.us;
        row.default_us += t.default_us;
        row.tie &= t.us >= t.default_us;
        all &= t.us > 0;
        if (row.note.empty()) row.note = t.note;
        served_ += fmt::format("{} {}\n", e->item->name, search::to_text(t.schedule));
      }
      if (!all) {
        row.us = row.default_us = 0;
        row.tier = 1;
      }
      const Work work = work_at(e->op->graph(), dims);
      row.flops = work.flops;
      row.bytes = work.read_bytes + work.write_bytes;
      row.weight = e->item->weight;
      ++report_.rows;
      if (observer_.row) observer_.row(row);
    }
  }

  const std::shared_ptr<Context>& context_;
  const DeviceChoice& on_;
  const WarmupBudget& budget_;
  const WarmupObserver& observer_;
  const double start_;
  std::shared_ptr<const DecisionHome> home_;
  DevicePolicy policy_;
  std::unique_ptr<WorkerClient> worker_;
  WarmupReport report_;
  std::string served_;
  double log_gain_ = 0;
  int gains_ = 0;
};

}  // namespace

Result<WarmupReport> run_device_warmup(const std::shared_ptr<Context>& context, const std::vector<ops::Workload>& items,
                                       const DeviceChoice& on, const WarmupBudget& budget,
                                       const WarmupObserver& observer) {
  if (on.device != nullptr) LATHE_RETURN_IF_ERROR(on.device->working());
  return DeviceWarmup(context, on, budget, observer).run(items);
}

}  // namespace lathe::runtime
