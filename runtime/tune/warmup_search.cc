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
using search::Outcome;

namespace {

std::string schedule_hash(const std::string& text) { return fmt::format("{:016x}", ir::hash_text(text)); }

// From the proposal to the record.
struct Candidate {
  search::Scheduled scheduled;
  std::string text;  // of its Schedule
  int point = -1;    // of the space; -1: evaluated apart from the strategy
  double predicted =
      0;  // log2 of the best so far over its time, as the strategy expects; with sigma 0 it has no opinion
  double sigma = 0;
  CandidateResult result;
};

// The search itself: what is proposed, what came of it.
class Search {
 public:
  Search(const Context& context, const SearchTask& task, const search::Scheduled& by_default, Evaluation& evaluation,
         SearchOutcome* out)
      : target_(context.target()),
        task_(task),
        by_default_(by_default),
        evaluation_(evaluation),
        out_(*out),
        start_(Clock::now()) {
    out_.memory = task.memory;
    out_.measurements = task.memory.timed;
    out_.curve = task.memory.curve;
  }

  // One that is evaluated apart from the strategy: the default, the incumbent, a pinned one. The number of the
  // candidate that it is; -1: it is refused.
  Result<int> try_first(search::Scheduled scheduled) {
    const uint64_t hash = ir::hash_text(ir::print(scheduled.kernel));
    std::vector<Candidate> batch;
    propose(std::move(scheduled), {}, &batch);
    LATHE_RETURN_IF_ERROR(screen(std::move(batch)));
    const auto at = seen_.find(hash);
    return at == seen_.end() ? -1 : static_cast<int>(at->second);
  }
  Result<int> try_first(const search::Schedule& schedule) {
    Result<search::Scheduled> scheduled = search::schedule_kernel(task_.problem.kernel, schedule);
    if (scheduled.ok()) return try_first(std::move(scheduled).value());
    refuse(scheduled.status().to_string());
    return -1;
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
      std::vector<Candidate> batch;
      for (int i = 0; i < n; ++i) {
        Result<search::Scheduled> scheduled = space_->scheduled(proposals[i].point);
        if (!scheduled.ok()) {
          refuse(scheduled.status().message());
          strategy->tell({proposals[i].point, Outcome::refused, 0});
        } else if (const auto known = propose(std::move(scheduled).value(), proposals[i], &batch)) {
          strategy->tell(*known);
        }
      }
      const size_t first = candidates_.size();
      LATHE_RETURN_IF_ERROR(screen(std::move(batch)));
      for (size_t i = first; i < candidates_.size(); ++i) strategy->tell(told(candidates_[i]));
    }
    return {};
  }

  // The best of the candidates against default and incumbent, a candidate's number; -1: there is none.
  Result<FinalResult> decide(int incumbent) {
    std::vector<CandidateResult> results;
    for (const Candidate& c : candidates_) results.push_back(c.result);
    LATHE_ASSIGN(FinalResult decided,
                 evaluation_.decide(choose_finalists(results, task_.problem.cold, beliefs()), incumbent));
    for (auto& [i, result] : decided.finalists) {
      CandidateResult& before = candidates_[static_cast<size_t>(i)].result;
      out_.rejected += rejected(result.outcome) && !rejected(before.outcome);
      before = result;
    }
    out_.further = decided.further;
    return decided;
  }

  // What was measured, for searches to come; the default first.
  search::TaskRecord rows() const {
    search::TaskRecord out;
    out.problem = task_.problem;
    out.isa = ir::isa_name(target_.level);
    out.policy = task_.problem.cold ? "cold" : "hot";
    out.epoch = kCodegenEpoch;
    for (const Candidate& c : candidates_) {
      if (c.result.outcome == Outcome::skipped) continue;
      const search::Schedule& schedule = c.scheduled.schedule;
      search::MeasuredRow row;
      row.recipe = schedule.recipe;
      row.knobs = schedule.knobs;
      if (c.point >= 0)
        row.extra = space_->at(c.point).extra;
      else if (row.recipe.empty())
        row.extra = schedule.moves;
      row.outcome = c.result.outcome;
      row.samples_us = c.result.samples_us;
      row.reference_us = c.result.reference_us;
      out.rows.push_back(std::move(row));
    }
    return out;
  }

  const std::vector<Candidate>& candidates() const { return candidates_; }
  // Why the first one that is not timed is not.
  const std::string& reason() const { return reason_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kBatch = 4;  // as many as share a sample of the reference

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

  // What is believed of each candidate, all of them evaluated; empty: the strategy was not asked.
  std::vector<double> beliefs() const {
    if (!space_) return {};
    std::vector<search::MeasuredPoint> measured;
    std::vector<size_t> of;
    double fastest = 0;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const search::Tell c = told(candidates_[i]);
      if (c.us <= 0) continue;
      fastest = fastest == 0 ? c.us : std::min(fastest, c.us);
      if (c.point < 0) continue;
      measured.push_back({c.point, c.us});
      of.push_back(i);
    }
    std::vector<double> out;
    // Of what is no point of the space (an incumbent from elsewhere) its time is all there is.
    for (const Candidate& c : candidates_) {
      const double us = told(c).us;
      out.push_back(us > 0 ? std::log2(fastest / us) : -1e9);
    }
    const std::vector<double> known = search::believed(search_problem(), measured);
    for (size_t n = 0; n < of.size(); ++n) out[of[n]] = known[n];
    return out;
  }

  // Into the batch; else what the strategy is to be told.
  std::optional<search::Tell> propose(search::Scheduled scheduled, const search::Proposal& by,
                                      std::vector<Candidate>* batch) {
    const bool allowed = (scheduled.kernel.numeric & ~task_.query.allowed) == 0;
    const bool served = task_.admits   ? task_.admits(scheduled.kernel)
                        : task_.pinned ? true
                                       : packs_as_default(task_, scheduled.kernel, by_default_);
    if (!allowed || !served) {
      refuse(allowed ? "cannot be served here" : "takes liberties that are not allowed");
      return search::Tell{by.point, Outcome::refused, 0};
    }
    std::string text = search::to_text(scheduled.schedule);
    if (const auto known = task_.memory.candidates.find(text);
        known != task_.memory.candidates.end() && by.point >= 0 && !evaluated(text)) {
      return search::Tell{by.point, known->second.outcome, known->second.share * base_us_};
    }
    const auto [same, fresh] =
        seen_.emplace(ir::hash_text(ir::print(scheduled.kernel)), candidates_.size() + batch->size());
    if (fresh) {
      batch->push_back({std::move(scheduled), std::move(text), by.point, by.predicted, by.sigma, {}});
      return std::nullopt;
    }
    // What was evaluated without the strategy's asking.
    if (same->second < candidates_.size() && candidates_[same->second].point < 0 && by.point >= 0) {
      candidates_[same->second].point = by.point;
      return told(candidates_[same->second]);
    }
    ++out_.duplicates;
    ++out_.rejected_by["duplicate"];
    return search::Tell{by.point, Outcome::skipped, 0};
  }

  bool evaluated(const std::string& text) const {
    return std::any_of(candidates_.begin(), candidates_.end(), [&](const Candidate& c) { return c.text == text; });
  }

  void refuse(std::string reason) {
    ++out_.refused;
    ++out_.rejected_by["refused"];
    if (reason_.empty()) reason_ = std::move(reason);
  }

  ir::Status screen(std::vector<Candidate> batch) {
    if (batch.empty()) return {};
    std::vector<CandidateSpec> specs;
    for (const Candidate& c : batch) specs.push_back({c.text, true});
    const double best_us = out_.curve.empty() ? 0 : out_.curve.back();
    LATHE_ASSIGN(std::vector<CandidateResult> results, evaluation_.screen(specs));
    for (size_t i = 0; i < batch.size(); ++i) {
      batch[i].result = std::move(results[i]);
      candidates_.push_back(std::move(batch[i]));
      take(candidates_.back(), best_us);
    }
    return {};
  }

  // Counts what came of one that was screened when the best took best_us.
  void take(const Candidate& candidate, double best_us) {
    const CandidateResult& c = candidate.result;
    out_.verifications += c.gate != Gate::none;
    out_.rejected += rejected(c.outcome);
    out_.refused += c.outcome == Outcome::refused;
    const double us = c.us(task_.problem.cold);
    const SearchMemory::Known known{c.outcome, c.reference_us > 0 ? us / c.reference_us : 0};
    const bool fresh = out_.memory.candidates.insert_or_assign(candidate.text, known).second;
    if (c.outcome == Outcome::timed && fresh) {
      ++out_.measurements;
      out_.curve.push_back(out_.curve.empty() ? us : std::min(out_.curve.back(), us));
      if (candidate.sigma > 0 && best_us > 0)
        out_.memory.expected.emplace_back(best_us * std::exp2(-candidate.predicted), us);
    } else if (c.outcome != Outcome::timed) {
      ++out_.rejected_by[outcome_name(c.outcome)];
      if (reason_.empty()) reason_ = c.reason;
    }
    if (base_us_ == 0) base_us_ = c.reference_us;
  }

  search::Tell told(const Candidate& c) const {
    const bool timed = c.result.outcome == Outcome::timed && c.result.reference_us > 0;
    return {c.point, c.result.outcome, timed ? c.result.us(task_.problem.cold) / c.result.reference_us * base_us_ : 0};
  }

  const ir::Target& target_;
  const SearchTask& task_;
  const search::Scheduled& by_default_;
  Evaluation& evaluation_;
  SearchOutcome& out_;
  const Clock::time_point start_;
  std::unique_ptr<search::RecipeSpace> space_;
  std::map<uint64_t, size_t> seen_;    // scheduled Kernels: which candidate
  std::vector<Candidate> candidates_;  // what was evaluated
  double base_us_ = 0;                 // of the default at first
  std::string reason_;
};

Decision decision_of(const FinalResult& decided, const std::vector<Candidate>& candidates) {
  Decision d;
  d.status = decided.tie ? DecisionStatus::tie : DecisionStatus::verified;
  d.default_us = decided.default_us;
  d.best_us = decided.best_us;
  const CandidateResult& winner = candidates[static_cast<size_t>(decided.winner)].result;
  d.oracle = {3, winner.err_over_bound, gate_name(winner.gate)};
  for (const Candidate& c : candidates) {
    const CandidateResult& r = c.result;
    if (r.outcome != Outcome::timed) continue;
    const auto samples = static_cast<int64_t>(r.samples_us.size());
    d.candidates.push_back({schedule_hash(c.text), samples, r.us(false), r.us(true), r.interval_lo, r.interval_hi});
  }
  return d;
}

// Serves although it may be slower than the default: somebody said so. Wrong ones do not.
Result<SearchOutcome> record_pinned(Context& context, const SearchTask& task, const Search& search, int pinned,
                                    SearchOutcome out) {
  const std::vector<Candidate>& candidates = search.candidates();
  if (pinned < 0 || candidates[static_cast<size_t>(pinned)].result.outcome != Outcome::timed)
    return ir::unsupported("the pinned schedule is not served: {}", search.reason());
  const Candidate& winner = candidates[static_cast<size_t>(pinned)];
  const auto first = std::find_if(candidates.begin(), candidates.end(),
                                  [](const Candidate& c) { return c.result.outcome == Outcome::timed; });
  FinalResult decided;
  decided.winner = pinned;
  decided.tie = false;
  decided.default_us = first->result.us(task.problem.cold);
  decided.best_us = winner.result.us(task.problem.cold);
  LATHE_RETURN_IF_ERROR(record(context, task, winner.scheduled, decision_of(decided, candidates), true));
  out.recorded = true;
  out.measured = true;
  out.tie = false;
  out.best_us = decided.best_us;
  out.default_us = decided.default_us;
  out.winner = winner.scheduled;
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
                                        const std::optional<search::Schedule>& like) {
  // The oracle keeps operands before and after guard pages, and packed forms of constants.
  constexpr int64_t kCopies = 4;
  const search::Scheduled fallback = allowed_default(context, task);
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

  Search search(context, task, fallback, **evaluation, &out);
  Result<FinalResult> decided = FinalResult{};
  const Result<int> by_default = search.try_first(fallback);
  ir::Status status = by_default.status();
  int named = -1;  // the candidate that is pinned, or else the incumbent
  if (const std::optional<search::Schedule>& given = task.pinned ? task.pinned : task.incumbent; given && status.ok()) {
    const Result<int> tried = search.try_first(*given);
    status = tried.status();
    if (tried.ok()) named = *tried;
  }
  if (status.ok() && !task.pinned) {
    status = search.run();
    if (status.ok()) decided = search.decide(named);
    if (status.ok()) status = decided.status();
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
  if (task.pinned && status.ok()) return record_pinned(context, task, search, named, std::move(out));
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
  out.winner = search.candidates()[static_cast<size_t>(decided->winner)].scheduled;
  const ir::Status recorded =
      record(context, task, out.winner, decision_of(*decided, search.candidates()), decided->winner == *by_default);
  if (!recorded.ok()) {
    out.tie = true;
    out.best_us = out.default_us;
    out.winner = fallback;
    out.note = recorded.message();
    LATHE_RETURN_IF_ERROR(record_default(context, task, out.default_us));
  }
  out.recorded = true;
  return out;
}

}  // namespace lathe::runtime
