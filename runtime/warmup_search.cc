// See warmup_search.h.
#include "runtime/warmup_search.h"

#include <algorithm>

#include "ir/analysis.h"
#include "ir/text_form.h"
#include "runtime/compiler.h"
#include "runtime/data_sets.h"

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

bool rejected(Outcome o) { return o == Outcome::wrong || o == Outcome::crashed || o == Outcome::hung; }

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

Decision decision_of(const EvaluateResult& result, const std::vector<std::string>& texts) {
  Decision d;
  d.status = result.tie ? DecisionStatus::tie : DecisionStatus::verified;
  d.default_us = result.default_us;
  d.best_us = result.best_us;
  const CandidateResult& winner = result.candidates[static_cast<size_t>(result.winner)];
  d.oracle = {3, winner.err_over_bound, gate_name(winner.gate)};
  for (size_t i = 0; i < result.candidates.size(); ++i) {
    const CandidateResult& c = result.candidates[i];
    if (c.outcome != Outcome::timed) continue;
    d.candidates.push_back({schedule_hash(texts[i]), c.rounds, c.min_us, c.median_us, c.interval_lo, c.interval_hi});
  }
  return d;
}

// Candidates whose liberties the caller allows; without any, the naive Kernel, which takes none.
std::vector<std::string> allowed_candidates(Context& context, const SearchTask& task) {
  std::vector<std::string> texts;
  const bool all = (~task.query.allowed & (ir::kReassociate | ir::kContract)) == 0;
  for (const search::Schedule& s : search::candidates(task.problem, context.target(), task.candidates)) {
    if (!all) {
      const Result<ir::Kernel> scheduled = search::replay(task.problem.kernel, s);
      if (!scheduled.ok() || (scheduled->numeric & ~task.query.allowed) != 0) continue;
    }
    texts.push_back(search::to_text(s));
  }
  if (texts.empty()) {
    search::Schedule naive;
    naive.family = task.problem.kernel.family;
    texts.push_back(search::to_text(naive));
  }
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

Result<SearchOutcome> search_and_record(Context& context, const SearchTask& task, const Evaluator& evaluate,
                                        const std::string& like) {
  // The oracle keeps operands before and after guard pages, and packed forms of constants.
  constexpr int64_t kCopies = 4;
  const std::vector<std::string> texts = allowed_candidates(context, task);
  const int64_t bytes = operand_bytes(task.problem.kernel, task.dims);
  if (bytes > task.ram / kCopies) {
    return record_unmeasured(context, task, texts[0], like, fmt::format("operands of {} MiB are too large to time", bytes >> 20));
  }
  EvaluateTask job;
  job.kernel_text = ir::print(task.problem.kernel);
  job.dims = task.dims;
  job.threads = task.problem.threads;
  job.cold = task.problem.cold;
  job.isa = task.isa;
  job.schedules = texts;
  job.seed = task.seed;
  job.budget_ms = task.budget_ms;
  Stats& stats = context.stats();
  stats.add(Stat::k_searches);
  const Result<EvaluateResult> result = evaluate(job);
  if (task.cancelled && task.cancelled()) return ir::make_error(ir::Code::kCANCELLED, "cancelled");
  if (!result.ok()) return record_unmeasured(context, task, texts[0], like, result.status().message());

  SearchOutcome out;
  std::string reason;
  bool wrong = false;
  for (const CandidateResult& c : result->candidates) {
    out.verifications += c.gate != Gate::none;
    out.rejected += rejected(c.outcome);
    wrong |= rejected(c.outcome);
    if (reason.empty() && c.outcome != Outcome::timed) reason = c.reason;
  }
  out.measurements = result->measurements;
  stats.add(Stat::k_measurements, out.measurements);
  stats.add(Stat::k_verifications, out.verifications);
  stats.add(Stat::k_failures, out.rejected);
  if (result->winner < 0) {
    if (wrong) return ir::internal_error("no schedule computes what the kernel says: {}", reason);
    const int measurements = out.measurements;
    LATHE_ASSIGN(out, record_unmeasured(context, task, texts[0], like, reason));
    out.measurements = measurements;
    return out;
  }
  out.measured = true;
  out.tie = result->tie;
  out.best_us = result->best_us;
  out.default_us = result->default_us;
  out.schedule = texts[static_cast<size_t>(result->winner)];
  LATHE_RETURN_IF_ERROR(record(context, task, out.schedule, decision_of(*result, texts)));
  out.recorded = true;
  return out;
}

}  // namespace lathe::runtime
