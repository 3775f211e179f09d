// See workload_search.h.
#include "runtime/tune/workload_search.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "ir/analysis/analysis.h"
#include "runtime/base/clock.h"
#include "runtime/base/read_file.h"
#include "runtime/measure/work.h"
#include "runtime/tune/search_record.h"
#include "runtime/tune/workload_check.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

constexpr int64_t kBeyond = 4;         // times the largest hint: above it the stage of the whole range serves
constexpr double kLeastMs = 100;       // of one quantum
constexpr double kReachable = 0.95;    // of the roofline, when the gain still to be had is guessed
constexpr double kDefaultShare = 0.5;  // of the roofline, when nothing is known of a default

// How common the hinted shape is: the product of its hints' weights.
double hint_weight(const ops::Graph& graph, const SymbolValues& dims) {
  double weight = 1;
  for (const ops::DimDesc& d : graph.symbols) {
    double sum = 0, own = 0;
    for (const ops::Hint& h : d.hints) {
      sum += h.weight;
      for (const auto& [name, value] : dims) {
        if (name == ops::kernel_symbol(d.symbol) && value == h.value) own = h.weight;
      }
    }
    if (sum > 0) weight *= own / sum;
  }
  return weight;
}

WorkerOptions worker_options(const Context& context, Store* store) {
  WorkerOptions options;
  options.path = context.options().text(ir::OptionId::worker);
  options.plugin_dir = context.options().text(ir::OptionId::plugin_dir);
  options.store = store;
  return options;
}

}  // namespace

const char* verdict_name(TaskVerdict verdict) {
  constexpr const char* kNames[] = {"pending", "elsewhere",  "stored",  "won",   "tie",
                                    "pinned",  "unmeasured", "dropped", "failed"};
  return kNames[static_cast<size_t>(verdict)];
}

WorkloadSearch::WorkloadSearch(const std::shared_ptr<Context>& context, const WarmupBudget& budget,
                               const MachineProfile& profile)
    : context_(context),
      budget_(budget),
      profile_(profile),
      worker_(worker_options(*context, &context->store())),
      knowledge_(*context, budget.wall_ms < kUnhurriedMs ? SearchKnowledge::Training::never
                                                         : SearchKnowledge::Training::if_needed) {}

// Equal ids: one decision.
std::string WorkloadSearch::query_id(size_t op, int kernel, const SymbolValues& dims) const {
  const DecisionQuery query = ops_[op].op->query(kernel, dims, ops_[op].request);
  std::string out = fmt::format("{} {} {}", query.threads, query.cold, query.allowed);
  for (const SymbolRange& r : query.ranges) out += fmt::format(" {}..{}", r.lo, r.hi);
  return out + "\n" + query.structure;
}

void WorkloadSearch::add(const SearchedOp& op) {
  ops_.push_back(op);
  const size_t number = ops_.size() - 1;
  for (const SymbolValues& dims : op.op->hinted_dims()) {
    const double weight = std::max(op.item->weight * hint_weight(op.op->graph(), dims), 1e-6);
    for (size_t k = 0; k < op.op->lowered().kernels.size(); ++k) {
      const std::string id = query_id(number, static_cast<int>(k), dims);
      const auto [at, fresh] = by_id_.emplace(id, tasks_.size());
      if (!fresh) {
        tasks_[at->second].weight += weight;
        continue;
      }
      WorkloadTask task;
      task.op = number;
      task.kernel = static_cast<int>(k);
      task.dims = dims;
      task.weight = weight;
      const uint64_t shards = static_cast<uint64_t>(std::max(budget_.shards, 1));
      if (ir::hash_text(id) % shards != static_cast<uint64_t>(budget_.shard)) task.verdict = TaskVerdict::elsewhere;
      tasks_.push_back(std::move(task));
    }
  }
}

const WorkloadTask& WorkloadSearch::task(size_t op, int kernel, const SymbolValues& dims) const {
  return tasks_[by_id_.at(query_id(op, kernel, dims))];
}

// What is provisional for lack of a worker is searched again; what is too large to time stays as it is.
bool WorkloadSearch::stored(const WorkloadTask& t) {
  const SearchedOp& op = ops_[t.op];
  const std::optional<Decision> found = context_->find_decision(op.op->query(t.kernel, t.dims, op.request));
  if (!found) return false;
  if (found->status != DecisionStatus::provisional) return true;
  return operand_bytes(op.op->lowered().kernels[static_cast<size_t>(t.kernel)].kernel, t.dims) > budget_.ram / 4;
}

ScheduledTask WorkloadSearch::estimate(const WorkloadTask& t) const {
  const SearchedOp& op = ops_[t.op];
  const double kernels = static_cast<double>(op.op->lowered().kernels.size());
  const double least = roofline_us(work_at(op.op->graph(), t.dims), op.op->arithmetic(op.request), profile_,
                                   context_->target(), op.request.cold, op.request.threads) /
                       kernels;
  ScheduledTask out;
  out.weight = t.weight;
  out.expected_us = least / kDefaultShare;
  out.floor_us = least / kReachable;
  return out;
}

SearchTask WorkloadSearch::search_task(const WorkloadTask& t) const {
  const SearchedOp& op = ops_[t.op];
  SearchTask task;
  task.query = op.op->query(t.kernel, t.dims, op.request);
  task.problem = op.op->problem(t.kernel, t.dims, op.request);
  task.dims = t.dims;
  task.seed = budget_.seed;
  task.ram = budget_.ram;
  task.cancelled = budget_.cancelled;
  return task;
}

std::string WorkloadSearch::default_text(const SearchTask& task) const {
  return search::to_text(allowed_default(*context_, task).schedule);
}

void WorkloadSearch::search(size_t index, int measurements, double allowance_ms) {
  WorkloadTask& t = tasks_[index];
  SearchTask task = search_task(t);
  task.candidates = measurements;
  task.planned = budget_.candidates;
  task.budget_ms = allowance_ms;
  task.memory = t.outcome.memory;
  if (t.outcome.measured) task.incumbent = t.outcome.winner.schedule;
  const ScheduledTask least = estimate(t);
  task.limit_us = least.floor_us * kReachable;
  knowledge_.equip(&task);
  if (budget_.spec != nullptr) {
    if (const search::SpecEntry* entry = search::find_entry(*budget_.spec, task.problem, context_->target())) {
      Result<search::Schedule> pinned = search::expand(*entry, task.problem, context_->target());
      if (!pinned.ok()) {
        t.verdict = TaskVerdict::failed;
        t.failure = in_file(budget_.spec->file, pinned.status());
        return scheduler_->skip(static_cast<int>(index));
      }
      task.pinned = std::move(pinned).value();
    }
  }
  const double start = now_ms();
  std::optional<search::Schedule>& like = winners_[task.query.structure];
  Result<SearchOutcome> found = search_and_record(*context_, task, worker_evaluator(worker_, budget_.cancelled), like);
  const bool again = t.outcome.measured;
  const double took_ms = now_ms() - start;
  t.search_ms += took_ms;
  const bool late = found.status().code() == ir::Code::kTIMEOUT;
  if (late || (cancelled() && (!found.ok() || !found->measured))) {
    // What an earlier quantum found stays.
    if (!again) t.verdict = TaskVerdict::pending;
    return;
  }
  if (!found.ok()) {
    t.verdict = TaskVerdict::failed;
    t.failure = found.status();
    return scheduler_->skip(static_cast<int>(index));
  }
  found->further += t.outcome.further;
  // What is refused in replay is refused in every piece anew.
  for (const auto& [reason, n] : t.outcome.rejected_by) {
    if (reason != "refused" && reason != "duplicate") found->rejected_by[reason] += n;
  }
  found->rejected += t.outcome.rejected;
  t.outcome = std::move(*found);
  t.curve = t.outcome.curve;
  t.verdict = !t.outcome.measured ? TaskVerdict::unmeasured
              : task.pinned       ? TaskVerdict::pinned
              : t.outcome.tie     ? TaskVerdict::tie
                                  : TaskVerdict::won;
  if (t.outcome.measured) like = t.outcome.winner.schedule;
  const int spent = std::max(t.outcome.measurements - scheduler_->slots(static_cast<int>(index)), 0);
  scheduler_->tell(static_cast<int>(index), t.outcome.best_us, spent, took_ms,
                   !t.outcome.measured || task.pinned || t.outcome.exhausted);
}

void WorkloadSearch::run(double until_ms, const std::function<void(const WorkloadTask&, double)>& progress) {
  std::vector<ScheduledTask> scheduled;
  for (const WorkloadTask& t : tasks_) scheduled.push_back(estimate(t));
  ScheduleRules rules;
  rules.first = budget_.first_look > 0 ? std::min(budget_.first_look, budget_.candidates) : budget_.candidates;
  rules.quantum = budget_.quantum;
  rules.most = budget_.candidates;
  rules.total = budget_.measurements;
  scheduler_ = std::make_unique<TaskScheduler>(std::move(scheduled), rules);
  size_t open = 0;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    WorkloadTask& t = tasks_[i];
    if (t.verdict == TaskVerdict::pending && !budget_.force && stored(t)) t.verdict = TaskVerdict::stored;
    if (t.verdict != TaskVerdict::pending) {
      scheduler_->skip(static_cast<int>(i));
    } else {
      ++open;
    }
  }
  worker_.give_up_at(static_cast<int64_t>(until_ms));
  // The time left is shared by what is open; one that needs less leaves it to the others.
  while (const auto quantum = scheduler_->next()) {
    const double left = until_ms - now_ms();
    if (cancelled() || left <= 0) break;
    const auto index = static_cast<size_t>(quantum->task);
    const bool first = scheduler_->slots(quantum->task) == 0;
    const double allowance =
        std::max(kLeastMs, std::min(left, 2 * left / static_cast<double>(std::max<size_t>(open, 1))));
    search(index, scheduler_->slots(quantum->task) + quantum->measurements, allowance);
    open -= first && open > 0;
    if (cancelled()) break;
    if (progress) progress(tasks_[index], scheduler_->done());
  }
}

void WorkloadSearch::serve_pending() {
  for (const WorkloadTask& t : tasks_) {
    if (t.verdict != TaskVerdict::pending) continue;
    const SearchTask task = search_task(t);
    if (!context_->find_decision(task.query)) (void)record_unsearched(*context_, task);
  }
}

// Whether the task's range has a default of its own that may serve beside that of the whole range.
bool WorkloadSearch::own_range(const WorkloadTask& t, const SearchTask& task) const {
  const SearchedOp& op = ops_[t.op];
  const Stages& stages = op.op->stages();
  return stages.own_default(t.kernel, t.dims, op.request) &&
         Live::same_layouts(allowed_default(*context_, task).kernel,
                            *stages.whole_default(t.kernel, op.request.threads));
}

std::vector<size_t> WorkloadSearch::serve_defaults() {
  std::vector<size_t> served;
  for (const WorkloadTask& t : tasks_) {
    if (t.verdict != TaskVerdict::pending || cancelled()) continue;
    const SearchTask task = search_task(t);
    SearchTask waited_for = task;
    waited_for.problem.unhurried = false;
    if (context_->find_decision(task.query)) continue;
    if (default_text(task) == default_text(waited_for) && !own_range(t, task)) continue;
    if (record_unsearched(*context_, task).ok()) served.push_back(t.op);
  }
  return served;
}

int WorkloadSearch::serve_unhinted(size_t number, int kernel) {
  const SearchedOp& op = ops_[number];
  const std::vector<ir::Symbol>& symbols = op.op->lowered().kernels[static_cast<size_t>(kernel)].kernel.symbols;
  if (symbols.size() != 1) return 0;
  const ir::Symbol& symbol = symbols[0];
  std::set<int64_t> hinted;  // where the hinted ranges begin
  std::vector<SymbolRange> decided;
  for (const SymbolValues& dims : op.op->hinted_dims()) {
    const WorkloadTask& t = task(number, kernel, dims);
    if (t.op != number || t.verdict == TaskVerdict::elsewhere) return 0;
    decided.push_back(op.op->query(kernel, dims, op.request).ranges.at(0));
    hinted.insert(decided.back().lo);
  }
  if (hinted.size() < 2) return 0;
  int64_t last = 0;
  for (const SymbolRange& r : decided) last = std::max(last, std::min(symbol.max, kBeyond * r.hi));
  for (const std::vector<SymbolRange>& ranges : context_->decision_ranges(op.op->query_in(kernel, {}, op.request))) {
    if (ranges.size() == 1) decided.push_back(ranges[0]);
  }
  const auto task_in = [&](SymbolRange range) {
    SearchTask out;
    out.dims = {{symbol.name, range.hi - range.hi % symbol.multiple_of}};
    out.query = op.op->query_in(kernel, {range}, op.request);
    out.problem = op.op->problem_in(kernel, {range}, out.dims, op.request);
    return out;
  };
  int served = 0;
  std::optional<SymbolRange> open;  // with the default `text`
  std::string text;
  const auto serve_open = [&] {
    Decision decision;
    decision.status = DecisionStatus::provisional;
    if (open) {
      const SearchTask task = task_in(*open);
      served += record(*context_, task, allowed_default(*context_, task), std::move(decision), false).ok();
    }
    open.reset();
  };
  for (int64_t lo = std::max<int64_t>(symbol.min, 1); lo <= last && !cancelled();) {
    const SymbolRange range = default_range(lo, {symbol.min, symbol.max});
    lo = range.hi + 1;
    if (range.hi - range.hi % symbol.multiple_of < range.lo) continue;
    if (std::any_of(decided.begin(), decided.end(),
                    [&](const SymbolRange& d) { return d.lo <= range.lo && range.hi <= d.hi; })) {
      serve_open();
      continue;
    }
    // Neighbours with one default are one range.
    if (open && default_text(task_in({open->lo, range.hi})) == text) {
      open->hi = range.hi;
      continue;
    }
    serve_open();
    open = range;
    text = default_text(task_in(range));
  }
  serve_open();
  return served;
}

int WorkloadSearch::serve_unhinted() {
  int served = 0;
  for (size_t op = 0; op < ops_.size(); ++op) {
    for (size_t k = 0; k < ops_[op].op->lowered().kernels.size(); ++k)
      served += serve_unhinted(op, static_cast<int>(k));
  }
  return served;
}

Status WorkloadSearch::check(WarmupReport* report) {
  std::vector<CheckedCall> calls;
  std::vector<size_t> numbers;  // of tasks, by call
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const WorkloadTask& t = tasks_[i];
    const SearchedOp& op = ops_[t.op];
    // Operators of one Kernel: what a call runs is what the decision says.
    if (t.verdict == TaskVerdict::elsewhere || op.op->lowered().kernels.size() != 1) continue;
    LATHE_ASSIGN(std::shared_ptr<Operator> fresh, Operator::create(context_, op.op->graph()));
    LATHE_ASSIGN([[maybe_unused]] const PrepareInfo info, fresh->stages().prepare(op.request));
    calls.push_back({std::move(fresh), op.request, t.dims, t.weight});
    numbers.push_back(i);
  }
  WorkloadCheckOptions options;
  options.ram = budget_.ram;
  options.cancelled = budget_.cancelled;
  LATHE_ASSIGN(const WorkloadCheck check, check_workload(*context_, calls, options));
  report->checked_default_us = check.default_us;
  report->checked_us = check.tuned_us;
  report->check_groups = check.groups;
  report->check_valid_groups = check.valid_groups;
  report->check_left_out = check.left_out;
  for (const int c : check.dropped) {
    WorkloadTask& t = tasks_[numbers[static_cast<size_t>(c)]];
    const SearchTask task = search_task(t);
    LATHE_RETURN_IF_ERROR(record_default(*context_, task, t.outcome.default_us));
    t.verdict = TaskVerdict::dropped;
  }
  return {};
}

}  // namespace lathe::runtime
