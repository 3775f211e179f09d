// See warmup_search.h.
#include "runtime/warmup_search.h"

#include <algorithm>
#include <set>

#include "ir/analysis.h"
#include "ir/text_form.h"
#include "runtime/compiler.h"
#include "runtime/data_sets.h"
#include "runtime/worker_client.h"

namespace lathe::runtime {

using ir::Result;
using Outcome = CandidateResult::Outcome;

namespace {

std::string schedule_hash(const std::string& text) { return fmt::format("{:016x}", ir::hash_text(text)); }

std::string title(const SearchTask& task) {
  std::string out = task.problem.kernel.family;
  for (size_t i = 0; i < task.query.ranges.size(); ++i) {
    out += fmt::format(" {}..{}", task.query.ranges[i].lo, task.query.ranges[i].hi);
  }
  return out;
}

// Compiles the winner into memory and store, and publishes the decision.
ir::Status record(Context& context, const SearchTask& task, const std::string& text, Decision decision) {
  LATHE_ASSIGN(const search::Schedule schedule, search::parse_schedule(text));
  LATHE_ASSIGN(const Stage stage,
               build_stage(task.problem.kernel, schedule, context.target(), context.leaves(), context.leaf_policy()));
  KernelDecision kernel;
  kernel.name = task.problem.kernel.name;
  kernel.schedule = text;
  kernel.leaf_keys = stage.leaf_keys;
  decision.op = title(task);
  decision.numeric = stage.schedule.numeric;
  decision.kernels = {std::move(kernel)};
  context.record_decision(task.query, std::move(decision));
  return {};
}

// What serves where nothing can be measured: a similar shape's winner if it applies, else the default.
Result<SearchOutcome> record_unmeasured(Context& context, const SearchTask& task, const std::string& default_text,
                                        const std::string& like, std::string note) {
  SearchOutcome out;
  out.note = std::move(note);
  Decision decision;
  decision.status = DecisionStatus::provisional;
  for (const std::string& text : {like, default_text}) {
    if (text.empty()) continue;
    const ir::Status status = record(context, task, text, decision);
    if (status.ok()) {
      out.recorded = true;
      out.schedule = text;
      return out;
    }
    if (text == default_text) return status;
  }
  return out;
}

// The search itself: what is proposed, what came of it.
class Search {
 public:
  Search(Context& context, const SearchTask& task, Evaluation& evaluation, SearchOutcome* out)
      : context_(context), task_(task), evaluation_(evaluation), out_(*out) {}

  ir::Status run(const std::vector<std::string>& proposals) {
    for (size_t at = 0; at < proposals.size() && out_.measurements < task_.candidates && !cancelled();) {
      std::vector<CandidateSpec> batch;
      const size_t room = std::min<size_t>(kBatch, static_cast<size_t>(task_.candidates - out_.measurements));
      for (; at < proposals.size() && batch.size() < room; ++at) propose(proposals[at], &batch);
      LATHE_RETURN_IF_ERROR(screen(batch));
      out_.exhausted = at == proposals.size() && static_cast<int>(proposals.size()) < task_.candidates;
    }
    return {};
  }

  // The candidates' best against default and incumbent; recorded by the caller.
  ir::Result<FinalResult> decide() {
    std::vector<int> finalists = choose_finalists(results_, task_.problem.cold);
    int incumbent = -1;
    for (size_t i = 0; i < texts_.size(); ++i) {
      if (!task_.incumbent.empty() && texts_[i] == incumbent_ && results_[i].outcome == Outcome::timed) incumbent = static_cast<int>(i);
    }
    LATHE_ASSIGN(FinalResult decided, evaluation_.decide(finalists, incumbent));
    for (auto& [i, result] : decided.finalists) {
      out_.rejected += result.rejected() && !results_[static_cast<size_t>(i)].rejected();
      results_[static_cast<size_t>(i)] = result;
    }
    out_.further = decided.further;
    return decided;
  }

  // One that is to be evaluated first of all: the default, the incumbent, a pinned one.
  ir::Status try_first(const std::string& text) {
    std::vector<CandidateSpec> batch;
    propose(text, &batch);
    if (text == task_.incumbent && !batch.empty()) incumbent_ = batch[0].schedule;
    return screen(batch);
  }

  bool cancelled() const { return task_.cancelled && task_.cancelled(); }
  const std::vector<CandidateResult>& results() const { return results_; }
  const std::vector<std::string>& texts() const { return texts_; }
  // Why the first one that is not timed is not.
  const std::string& reason() const { return reason_; }

 private:
  static constexpr size_t kBatch = 4;  // as many as share a sample of the reference

  // Into the batch, unless it is refused or known.
  void propose(const std::string& text, std::vector<CandidateSpec>* batch) {
    const Result<search::Schedule> schedule = search::parse_schedule(text);
    const Result<ir::Kernel> scheduled = schedule.ok() ? search::replay(task_.problem.kernel, *schedule) : Result<ir::Kernel>(schedule.status());
    if (!scheduled.ok()) return refuse(scheduled.status().to_string());
    if ((scheduled->numeric & ~task_.query.allowed) != 0) return refuse("takes liberties that are not allowed");
    if (task_.admits && !task_.admits(*scheduled)) return refuse("cannot be served here");
    if (!seen_.insert(ir::hash_text(ir::print(*scheduled))).second) {
      ++out_.duplicates;
      ++out_.rejected_by["duplicate"];
      return;
    }
    batch->push_back({text, "", true});
  }

  void refuse(std::string reason) {
    ++out_.refused;
    ++out_.rejected_by["refused"];
    if (reason_.empty()) reason_ = std::move(reason);
  }

  ir::Status screen(const std::vector<CandidateSpec>& batch) {
    if (batch.empty()) return {};
    LATHE_ASSIGN(const std::vector<CandidateResult> results, evaluation_.screen(batch));
    for (size_t i = 0; i < batch.size(); ++i) {
      const CandidateResult& c = results[i];
      texts_.push_back(batch[i].schedule);
      results_.push_back(c);
      out_.verifications += c.gate != Gate::none;
      out_.rejected += c.rejected();
      out_.refused += c.outcome == Outcome::refused;
      out_.measurements += c.outcome == Outcome::timed;
      if (c.outcome == Outcome::timed) {
        const double us = c.us(task_.problem.cold);
        out_.curve.push_back(out_.curve.empty() ? us : std::min(out_.curve.back(), us));
      } else {
        ++out_.rejected_by[outcome_name(c.outcome)];
      }
      if (reason_.empty() && c.outcome != Outcome::timed) reason_ = c.reason;
    }
    return {};
  }

  Context& context_;
  const SearchTask& task_;
  Evaluation& evaluation_;
  SearchOutcome& out_;
  std::set<uint64_t> seen_;                // scheduled Kernels
  std::vector<std::string> texts_;         // of what was evaluated
  std::vector<CandidateResult> results_;
  std::string incumbent_, reason_;
};

Decision decision_of(const FinalResult& decided, const Search& search) {
  Decision d;
  d.status = decided.tie ? DecisionStatus::tie : DecisionStatus::verified;
  d.default_us = decided.default_us;
  d.best_us = decided.best_us;
  const CandidateResult& winner = search.results()[static_cast<size_t>(decided.winner)];
  d.oracle = {3, winner.err_over_bound, gate_name(winner.gate)};
  for (size_t i = 0; i < search.results().size(); ++i) {
    const CandidateResult& c = search.results()[i];
    if (c.outcome != Outcome::timed) continue;
    const auto samples = static_cast<int64_t>(c.samples_us.size());
    d.candidates.push_back({schedule_hash(search.texts()[i]), samples, c.us(false), c.us(true), c.interval_lo, c.interval_hi});
  }
  return d;
}

// Serves although it may be slower than the default: somebody said so. Wrong ones do not.
Result<SearchOutcome> record_pinned(Context& context, const SearchTask& task, const Search& search, SearchOutcome out) {
  FinalResult decided;
  for (size_t i = 0; i < search.texts().size(); ++i) {
    const CandidateResult& c = search.results()[i];
    if (c.outcome != Outcome::timed) continue;
    if (decided.winner < 0) decided.default_us = c.us(task.problem.cold);
    decided.winner = static_cast<int>(i);
    decided.best_us = c.us(task.problem.cold);
  }
  // The default comes first; pinned to the default, it is the only one.
  const std::string last = search.texts().empty() ? "" : search.texts().back();
  const bool pinned = decided.winner >= 0 && (last == task.pinned ? search.results().back().outcome == Outcome::timed : out.duplicates > 0);
  if (!pinned) return ir::unsupported("the pinned schedule is not served: {}", search.reason());
  decided.tie = false;
  out.measured = true;
  out.tie = false;
  out.best_us = decided.best_us;
  out.default_us = decided.default_us;
  out.schedule = search.texts()[static_cast<size_t>(decided.winner)];
  LATHE_RETURN_IF_ERROR(record(context, task, out.schedule, decision_of(decided, search)));
  out.recorded = true;
  return out;
}

std::string naive_text(const SearchTask& task) {
  search::Schedule naive;
  naive.family = task.problem.kernel.family;
  return search::to_text(naive);
}

// The default, if the caller allows its liberties; else the naive Kernel, which takes none.
std::string default_text(Context& context, const SearchTask& task) {
  const search::Schedule schedule = search::default_schedule(task.problem, context.target());
  const Result<ir::Kernel> scheduled = search::replay(task.problem.kernel, schedule);
  const bool allowed = scheduled.ok() && (scheduled->numeric & ~task.query.allowed) == 0;
  return allowed ? search::to_text(schedule) : naive_text(task);
}

std::vector<std::string> proposals(Context& context, const SearchTask& task) {
  std::vector<std::string> texts;
  for (const search::Schedule& s : search::candidates(task.problem, context.target(), task.candidates)) texts.push_back(search::to_text(s));
  return texts;
}

}  // namespace

int64_t operand_bytes(const ir::Kernel& kernel, const SymbolValues& dims) {
  SymbolValues symbols = dims;
  const Result<std::vector<OperandShape>> shapes = operand_shapes(kernel, &symbols);
  if (!shapes.ok()) return INT64_MAX;
  int64_t total = 0;
  for (const OperandShape& s : *shapes) {
    if (__builtin_add_overflow(total, s.bytes(), &total)) return INT64_MAX;
  }
  return total;
}

ir::Status record_default(Context& context, const SearchTask& task, double default_us) {
  Decision decision;
  decision.status = DecisionStatus::tie;
  decision.default_us = decision.best_us = default_us;
  // Default and winner passed the same gates.
  if (const std::optional<Decision> replaced = context.find_decision(task.query)) decision.oracle = replaced->oracle;
  return record(context, task, default_text(context, task), std::move(decision));
}

Evaluator worker_evaluator(WorkerClient& worker, std::function<bool()> cancelled) {
  return [&worker, cancelled = std::move(cancelled)](const EvaluateTask& task) {
    return worker.begin(task, [cancelled](int, EvaluatePhase) { return !cancelled || !cancelled(); });
  };
}

Result<SearchOutcome> search_and_record(Context& context, const SearchTask& task, const Evaluator& evaluate,
                                        const std::string& like) {
  // The oracle keeps operands before and after guard pages, and packed forms of constants.
  constexpr int64_t kCopies = 4;
  const std::string fallback = default_text(context, task);
  const int64_t bytes = operand_bytes(task.problem.kernel, task.dims);
  if (bytes > task.ram / kCopies) {
    return record_unmeasured(context, task, fallback, like, fmt::format("operands of {} MiB are too large to time", bytes >> 20));
  }
  EvaluateTask job;
  job.kernel_text = ir::print(task.problem.kernel);
  job.dims = task.dims;
  job.threads = task.problem.threads;
  job.cold = task.problem.cold;
  job.isa = task.isa;
  job.seed = task.seed;
  job.budget_ms = task.budget_ms;
  job.background = task.background;
  Stats& stats = context.stats();
  stats.add(Stat::k_searches);
  SearchOutcome out;
  Result<std::unique_ptr<Evaluation>> evaluation = evaluate(job);
  const auto cancelled = [&] { return task.cancelled && task.cancelled(); };
  if (cancelled()) return ir::make_error(ir::Code::kCANCELLED, "cancelled");
  if (!evaluation.ok()) return record_unmeasured(context, task, fallback, like, evaluation.status().message());

  Search search(context, task, **evaluation, &out);
  Result<FinalResult> decided = FinalResult{};
  ir::Status status = search.try_first(fallback);
  if (status.ok() && !task.incumbent.empty() && task.pinned.empty()) status = search.try_first(task.incumbent);
  if (status.ok()) status = task.pinned.empty() ? search.run(proposals(context, task)) : search.try_first(task.pinned);
  if (status.ok() && task.pinned.empty()) {
    decided = search.decide();
    status = decided.status();
  }
  evaluation->reset();
  stats.add(Stat::k_measurements, out.measurements);
  stats.add(Stat::k_verifications, out.verifications);
  stats.add(Stat::k_failures, out.rejected);
  if (cancelled()) return ir::make_error(ir::Code::kCANCELLED, "cancelled");
  if (!task.pinned.empty() && status.ok()) return record_pinned(context, task, search, std::move(out));
  if (!status.ok() || decided->winner < 0) {
    if (status.ok() && out.rejected > 0) return ir::internal_error("no schedule computes what the kernel says: {}", search.reason());
    const SearchOutcome counts = out;
    LATHE_ASSIGN(out, record_unmeasured(context, task, fallback, like, status.ok() ? search.reason() : status.message()));
    out.measurements = counts.measurements;
    out.verifications = counts.verifications;
    out.rejected = counts.rejected;
    out.rejected_by = counts.rejected_by;
    return out;
  }
  out.measured = true;
  out.tie = decided->tie;
  out.best_us = decided->best_us;
  out.default_us = decided->default_us;
  out.schedule = search.texts()[static_cast<size_t>(decided->winner)];
  LATHE_RETURN_IF_ERROR(record(context, task, out.schedule, decision_of(*decided, search)));
  out.recorded = true;
  return out;
}

}  // namespace lathe::runtime
