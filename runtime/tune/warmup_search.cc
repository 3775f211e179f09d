// See warmup_search.h.
#include "runtime/tune/warmup_search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"
#include "runtime/compile/compiler.h"
#include "runtime/measure/worker_client.h"
#include "runtime/oracle/data_sets.h"
#include "runtime/store/key.h"
#include "runtime/tune/search_record.h"
#include "search/cut/cut.h"
#include "search/strategy/prior.h"
#include "search/strategy/strategy_lathe.h"

namespace lathe::runtime {

using ir::Result;
using Outcome = CandidateResult::Outcome;

namespace {

std::string schedule_hash(const std::string& text) { return fmt::format("{:016x}", ir::hash_text(text)); }

// The search itself: what is proposed, what came of it.
class Search {
 public:
  Search(const Context& context, const SearchTask& task, Evaluation& evaluation, SearchOutcome* out)
      : target_(context.target()), task_(task), evaluation_(evaluation), out_(*out), start_(Clock::now()) {
    out_.memory = task.memory;
    out_.measurements = task.memory.timed;
    out_.curve = task.memory.curve;
  }

  // One that is evaluated apart from the strategy: the default, the incumbent, a pinned one.
  ir::Status try_first(const std::string& text) {
    std::vector<Proposed> batch;
    propose(text, -1, &batch);
    return screen(batch);
  }

  ir::Status run() {
    const search::MachineRates rates = task_.rates ? *task_.rates : search::MachineRates::assumed(target_);
    space_ = std::make_unique<search::RecipeSpace>(task_.problem, target_, rates);
    const std::unique_ptr<search::Strategy> strategy = search::make_lathe_strategy();
    strategy->start(search_problem());
    while (!cancelled() && !late()) {
      search::Proposal proposals[kBatch];
      // The first proposal is the default, which is measured already.
      const int room = task_.candidates - out_.measurements + (out_.proposals == 0);
      const int wanted = std::min<int>(kBatch, room);
      const int n = wanted > 0 ? strategy->next({proposals, static_cast<size_t>(wanted)}) : 0;
      out_.exhausted = n == 0 && wanted > 0;
      if (n == 0) break;
      out_.proposals += n;
      std::vector<Proposed> batch;
      for (int i = 0; i < n; ++i) {
        const ir::Result<search::Schedule> schedule = space_->schedule(proposals[i].point);
        if (!schedule.ok()) {
          refuse(schedule.status().message());
          strategy->tell({proposals[i].point, search::OutcomeKind::refused, 0});
        } else if (const auto kind = propose(search::to_text(*schedule), proposals[i].point, &batch)) {
          strategy->tell(*kind);
        } else {
          batch.back().share = proposals[i].predicted;
          batch.back().sigma = proposals[i].sigma;
        }
      }
      const size_t first = results_.size();
      LATHE_RETURN_IF_ERROR(screen(batch));
      for (size_t i = first; i < results_.size(); ++i) strategy->tell(told(i));
    }
    return {};
  }

  // The best of the candidates against default and incumbent.
  Result<FinalResult> decide() {
    const auto incumbent =
        task_.incumbent.empty() ? texts_.end() : std::find(texts_.begin(), texts_.end(), task_.incumbent);
    LATHE_ASSIGN(FinalResult decided,
                 evaluation_.decide(choose_finalists(results_, task_.problem.cold, beliefs()),
                                    incumbent == texts_.end() ? -1 : static_cast<int>(incumbent - texts_.begin())));
    for (auto& [i, result] : decided.finalists) {
      out_.rejected += result.rejected() && !results_[static_cast<size_t>(i)].rejected();
      results_[static_cast<size_t>(i)] = result;
    }
    out_.further = decided.further;
    return decided;
  }

  // What is believed of each result, all of them known; empty: the strategy was not asked.
  std::vector<double> beliefs() const {
    if (!space_) return {};
    std::vector<search::MeasuredPoint> measured;
    std::vector<size_t> of;
    double fastest = 0;
    for (size_t i = 0; i < results_.size(); ++i) {
      const double us = told(i).us;
      if (us <= 0) continue;
      fastest = fastest == 0 ? us : std::min(fastest, us);
      if (points_[i] < 0) continue;
      measured.push_back({points_[i], us});
      of.push_back(i);
    }
    std::vector<double> out(results_.size(), 0);
    // Of what is no point of the space (an incumbent from elsewhere) its time is all there is.
    for (size_t i = 0; i < results_.size(); ++i) out[i] = told(i).us > 0 ? std::log2(fastest / told(i).us) : -1e9;
    const std::vector<double> known = search::believed(search_problem(), measured);
    for (size_t n = 0; n < of.size(); ++n) out[of[n]] = known[n];
    return out;
  }

  // What was measured, for searches to come; the default first.
  search::TaskRecord rows() const {
    search::TaskRecord out;
    out.problem = task_.problem;
    out.isa = ir::isa_name(target_.level);
    out.policy = task_.problem.cold ? "cold" : "hot";
    out.epoch = kCodegenEpoch;
    for (size_t i = 0; i < results_.size(); ++i) {
      if (results_[i].outcome == Outcome::skipped) continue;
      const Result<search::Schedule> schedule = search::parse_schedule(texts_[i]);
      if (!schedule.ok()) continue;
      search::MeasuredRow row;
      row.recipe = schedule->recipe;
      row.knobs = schedule->knobs;
      if (points_[i] >= 0)
        row.extra = space_->at(points_[i]).extra;
      else if (row.recipe.empty())
        row.extra = schedule->moves;
      row.outcome = kind_of(results_[i].outcome);
      row.samples_us = results_[i].samples_us;
      row.reference_us = results_[i].reference_us;
      out.rows.push_back(std::move(row));
    }
    return out;
  }

  const std::vector<CandidateResult>& results() const { return results_; }
  const std::vector<std::string>& texts() const { return texts_; }
  // Why the first one that is not timed is not.
  const std::string& reason() const { return reason_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kBatch = 4;  // as many as share a sample of the reference
  struct Proposed {
    CandidateSpec spec;
    int point = -1;    // of the space
    double share = 0;  // log2 of the best so far over its time, as the strategy expects; with sigma 0 it has no opinion
    double sigma = 0;
  };

  search::SearchProblem search_problem() const {
    search::SearchProblem problem;
    problem.problem = &task_.problem;
    problem.target = &target_;
    problem.space = space_.get();
    problem.model = task_.model.get();
    problem.rates = task_.rates.get();
    problem.budget = std::max(task_.candidates, task_.planned);
    problem.seed = task_.seed;
    problem.limit_us = task_.limit_us;
    problem.stop_early = task_.stop_early;
    return problem;
  }

  bool cancelled() const { return task_.cancelled && task_.cancelled(); }
  bool late() const {
    return task_.budget_ms > 0 &&
           std::chrono::duration<double, std::milli>(Clock::now() - start_).count() > 0.6 * task_.budget_ms;
  }

  // Into the batch; else what the strategy is to be told.
  std::optional<search::Tell> propose(const std::string& text, int point, std::vector<Proposed>* batch) {
    const Result<search::Schedule> schedule = search::parse_schedule(text);
    const Result<ir::Kernel> scheduled =
        schedule.ok() ? search::replay(task_.problem.kernel, *schedule) : Result<ir::Kernel>(schedule.status());
    const bool allowed = scheduled.ok() && (scheduled->numeric & ~task_.query.allowed) == 0;
    const bool admitted = allowed && (!task_.admits || task_.admits(*scheduled));
    if (!admitted) {
      refuse(!scheduled.ok() ? scheduled.status().to_string()
             : allowed       ? "cannot be served here"
                             : "takes liberties that are not allowed");
      return search::Tell{point, search::OutcomeKind::refused, 0};
    }
    if (const auto known = task_.memory.candidates.find(text);
        known != task_.memory.candidates.end() && point >= 0 && !evaluated(text)) {
      return search::Tell{point, known->second.kind, known->second.share * base_us_};
    }
    const auto [same, fresh] = seen_.emplace(ir::hash_text(ir::print(*scheduled)), texts_.size() + batch->size());
    if (fresh) {
      batch->push_back({{text, true}, point, 0, 0});
      return std::nullopt;
    }
    // What was evaluated without the strategy's asking.
    if (same->second < points_.size() && points_[same->second] < 0 && point >= 0) {
      points_[same->second] = point;
      return told(same->second);
    }
    ++out_.duplicates;
    ++out_.rejected_by["duplicate"];
    return search::Tell{point, search::OutcomeKind::duplicate, 0};
  }

  bool evaluated(const std::string& text) const {
    return std::find(texts_.begin(), texts_.end(), text) != texts_.end();
  }

  void refuse(std::string reason) {
    ++out_.refused;
    ++out_.rejected_by["refused"];
    if (reason_.empty()) reason_ = std::move(reason);
  }

  ir::Status screen(const std::vector<Proposed>& batch) {
    if (batch.empty()) return {};
    std::vector<CandidateSpec> specs;
    for (const Proposed& p : batch) specs.push_back(p.spec);
    const double best_us = out_.curve.empty() ? 0 : out_.curve.back();
    LATHE_ASSIGN(const std::vector<CandidateResult> results, evaluation_.screen(specs));
    for (size_t i = 0; i < batch.size(); ++i) {
      const CandidateResult& c = results[i];
      texts_.push_back(batch[i].spec.schedule);
      points_.push_back(batch[i].point);
      results_.push_back(c);
      out_.verifications += c.gate != Gate::none;
      out_.rejected += c.rejected();
      out_.refused += c.outcome == Outcome::refused;
      const double us = c.us(task_.problem.cold);
      const bool fresh =
          out_.memory.candidates
              .insert_or_assign(batch[i].spec.schedule,
                                SearchMemory::Known{kind_of(c.outcome), c.reference_us > 0 ? us / c.reference_us : 0})
              .second;
      if (c.outcome == Outcome::timed && fresh) {
        ++out_.measurements;
        out_.curve.push_back(out_.curve.empty() ? us : std::min(out_.curve.back(), us));
        if (batch[i].sigma > 0 && best_us > 0)
          out_.memory.expected.emplace_back(best_us * std::exp2(-batch[i].share), us);
      } else if (c.outcome != Outcome::timed) {
        ++out_.rejected_by[outcome_name(c.outcome)];
      }
      if (base_us_ == 0) base_us_ = c.reference_us;
      if (reason_.empty() && c.outcome != Outcome::timed) reason_ = c.reason;
    }
    return {};
  }

  static search::OutcomeKind kind_of(Outcome outcome) {
    switch (outcome) {
      case Outcome::timed:
        return search::OutcomeKind::timed;
      case Outcome::refused:
        return search::OutcomeKind::refused;
      case Outcome::wrong:
        return search::OutcomeKind::wrong;
      case Outcome::crashed:
        return search::OutcomeKind::crashed;
      case Outcome::hung:
        return search::OutcomeKind::hung;
      case Outcome::skipped:
        break;
    }
    return search::OutcomeKind::duplicate;
  }

  search::Tell told(size_t i) const {
    const CandidateResult& c = results_[i];
    const double us =
        c.outcome == Outcome::timed && c.reference_us > 0 ? c.us(task_.problem.cold) / c.reference_us * base_us_ : 0;
    return {points_[i], kind_of(c.outcome), us};
  }

  const ir::Target& target_;
  const SearchTask& task_;
  Evaluation& evaluation_;
  SearchOutcome& out_;
  const Clock::time_point start_;
  std::unique_ptr<search::RecipeSpace> space_;
  std::map<uint64_t, size_t> seen_;  // scheduled Kernels: which candidate
  std::vector<std::string> texts_;   // of what was evaluated
  std::vector<int> points_;          // of the space; -1: evaluated apart from the strategy
  std::vector<CandidateResult> results_;
  double base_us_ = 0;  // of the default at first
  std::string reason_;
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
    d.candidates.push_back(
        {schedule_hash(search.texts()[i]), samples, c.us(false), c.us(true), c.interval_lo, c.interval_hi});
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
  const bool pinned = decided.winner >= 0 &&
                      (last == task.pinned ? search.results().back().outcome == Outcome::timed : out.duplicates > 0);
  if (!pinned) return ir::unsupported("the pinned schedule is not served: {}", search.reason());
  decided.tie = false;
  out.measured = true;
  out.tie = false;
  out.best_us = decided.best_us;
  out.default_us = decided.default_us;
  out.schedule = search.texts()[static_cast<size_t>(decided.winner)];
  LATHE_RETURN_IF_ERROR(record(context, task, out.schedule, decision_of(decided, search), true));
  out.recorded = true;
  return out;
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
    return record_unmeasured(context, task, fallback, like,
                             ir::unsupported("operands of {} MiB are too large to time", bytes >> 20));
  }
  EvaluateTask job;
  job.kernel_text = ir::print(task.problem.kernel);
  job.dims = task.dims;
  job.threads = task.problem.threads;
  job.cold = task.problem.cold;
  job.target = context.target().to_string();
  job.seed = task.seed;
  job.budget_ms = task.budget_ms;
  job.aside = task.aside;
  Stats& stats = context.stats();
  stats.add(Stat::k_searches);
  SearchOutcome out;
  Result<std::unique_ptr<Evaluation>> evaluation = evaluate(job);
  const auto cancelled = [&] { return task.cancelled && task.cancelled(); };
  if (cancelled()) return ir::make_error(ir::Code::kCANCELLED, "cancelled");
  if (evaluation.status().code() == ir::Code::kTIMEOUT) return evaluation.status();
  if (!evaluation.ok()) return record_unmeasured(context, task, fallback, like, evaluation.status());

  Search search(context, task, **evaluation, &out);
  Result<FinalResult> decided = FinalResult{};
  ir::Status status = search.try_first(fallback);
  if (status.ok() && !task.incumbent.empty() && task.pinned.empty()) status = search.try_first(task.incumbent);
  if (status.ok()) status = task.pinned.empty() ? search.run() : search.try_first(task.pinned);
  if (status.ok() && task.pinned.empty()) {
    decided = search.decide();
    status = decided.status();
  }
  evaluation->reset();
  out.memory.curve = out.curve;
  out.memory.timed = out.measurements;
  stats.add(Stat::k_measurements, out.measurements - task.memory.timed);
  stats.add(Stat::k_verifications, out.verifications);
  stats.add(Stat::k_failures, out.rejected);
  if (task.keep && out.measurements > task.memory.timed) task.keep(search.rows());
  if (cancelled()) return ir::make_error(ir::Code::kCANCELLED, "cancelled");
  if (status.code() == ir::Code::kTIMEOUT) return status;
  if (!task.pinned.empty() && status.ok()) return record_pinned(context, task, search, std::move(out));
  if (!status.ok() || decided->winner < 0) {
    if (status.ok() && out.rejected > 0)
      return ir::internal_error("no schedule computes what the kernel says: {}", search.reason());
    const SearchOutcome counts = out;
    LATHE_ASSIGN(out, record_unmeasured(context, task, fallback, like,
                                        status.ok() ? ir::unsupported("{}", search.reason()) : status));
    out.measurements = counts.measurements;
    out.proposals = counts.proposals;
    out.verifications = counts.verifications;
    out.refused = counts.refused;
    out.duplicates = counts.duplicates;
    out.rejected = counts.rejected;
    out.rejected_by = counts.rejected_by;
    return out;
  }
  out.measured = true;
  out.tie = decided->tie;
  out.best_us = decided->best_us;
  out.default_us = decided->default_us;
  out.schedule = search.texts()[static_cast<size_t>(decided->winner)];
  const ir::Status recorded =
      record(context, task, out.schedule, decision_of(*decided, search), out.schedule == fallback);
  if (!recorded.ok()) {
    out.tie = true;
    out.best_us = out.default_us;
    out.schedule = fallback;
    out.note = recorded.message();
    LATHE_RETURN_IF_ERROR(record_default(context, task, out.default_us));
  }
  out.recorded = true;
  return out;
}

}  // namespace lathe::runtime
