// See evaluate.h.
#include "runtime/evaluate.h"

#include <chrono>
#include <map>

#include "ir/text_form.h"
#include "jit/host_cpu.h"
#include "runtime/compiler.h"
#include "runtime/plant.h"
#include "runtime/rotating_operands.h"
#include "runtime/timing.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;
using Outcome = CandidateResult::Outcome;

namespace {

double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Evaluation {
 public:
  Evaluation(const EvaluateTask& task, LeafCache& leaves, const EvaluateHooks& hooks)
      : task_(task), leaves_(leaves), hooks_(hooks), start_(now_ms()) {}

  Result<EvaluateResult> run() {
    LATHE_ASSIGN(naive_, ir::parse_kernel(task_.kernel_text));
    target_ = jit::host_target();
    if (!task_.isa.empty()) {
      const std::optional<ir::IsaLevel> level = ir::parse_isa(task_.isa);
      if (!level) return ir::invalid("unknown ISA {}", task_.isa);
      target_ = target_.cap(*level);
    }
    if (task_.schedules.empty()) return ir::invalid("no schedule to evaluate");
    if (!task_.plants.empty() && task_.plants.size() != task_.schedules.size())
      return ir::invalid("a plant for each schedule, or none");
    if (task_.threads > 1) {
      TeamOptions team;
      team.threads = task_.threads;
      team_ = std::make_unique<ThreadTeam>(team);
    }
    out_.candidates.resize(task_.schedules.size());
    stages_.resize(task_.schedules.size());
    LATHE_RETURN_IF_ERROR(build());
    LATHE_RETURN_IF_ERROR(verify_all());
    LATHE_RETURN_IF_ERROR(time_all());
    return std::move(out_);
  }

 private:
  int count() const { return static_cast<int>(stages_.size()); }
  void progress(int i, EvaluatePhase phase) {
    if (hooks_.progress) hooks_.progress(i, phase);
  }
  void settle(int i, Outcome outcome, std::string reason) {
    out_.candidates[i].outcome = outcome;
    out_.candidates[i].reason = std::move(reason);
    stages_[i].reset();
    if (hooks_.settled) hooks_.settled(i, out_.candidates[i]);
  }

  Status build() {
    std::map<std::string, int> seen;
    for (int i = 0; i < count(); ++i) {
      progress(i, EvaluatePhase::build);
      Result<search::Schedule> schedule = search::parse_schedule(task_.schedules[i]);
      if (!schedule.ok()) {
        settle(i, Outcome::refused, schedule.status().to_string());
        continue;
      }
      Result<Stage> stage = build_stage(naive_, *schedule, target_, leaves_, LeafPolicy{});
      if (!stage.ok()) {
        settle(i, Outcome::refused, stage.status().to_string());
        continue;
      }
      stages_[i] = std::make_unique<Stage>(std::move(stage).value());
      if (!task_.plants.empty())
        LATHE_RETURN_IF_ERROR(plant(task_.plants[i], stages_[i].get(), &planted_));
      const auto [same, fresh] = seen.emplace(ir::print(stages_[i]->cut.kernel), i);
      const bool planted = !task_.plants.empty() && !task_.plants[i].empty();
      if (!fresh && !planted)
        settle(i, Outcome::skipped,
               fmt::format("the same nest and leaves as candidate {}", same->second));
    }
    return {};
  }

  Status verify_all() {
    OracleTask oracle_task{naive_, task_.dims, task_.threads, task_.seed};
    LATHE_ASSIGN(std::unique_ptr<Oracle> oracle,
                 Oracle::create(std::move(oracle_task), team_.get()));
    if (hooks_.oracle) hooks_.oracle(oracle.get());
    // Once more if two that differ were both taken for right at first.
    for (int round = 0, generation = -1; round < 3 && generation != oracle->generation(); ++round) {
      generation = oracle->generation();
      for (int i = 0; i < count(); ++i) {
        if (!stages_[i]) continue;
        if (i > 0 && task_.budget_ms > 0 && now_ms() - start_ > 0.6 * task_.budget_ms) {
          settle(i, Outcome::skipped, "no time left to verify");
          continue;
        }
        verify(i, *oracle);
      }
    }
    if (hooks_.oracle) hooks_.oracle(nullptr);
    return {};
  }

  bool verify(int i, Oracle& oracle) {
    progress(i, EvaluatePhase::verify);
    const Result<Verdict> verdict = oracle.verify(*stages_[i]);
    if (!verdict.ok()) {
      settle(i, Outcome::refused, verdict.status().to_string());
      return false;
    }
    out_.candidates[i].gate = verdict->gate;
    out_.candidates[i].err_over_bound = verdict->err_over_bound;
    if (!verdict->ok) settle(i, Outcome::wrong, verdict->reason);
    return verdict->ok;
  }

  Status time_all() {
    std::vector<int> who;  // by position in the timing
    std::vector<const Stage*> stages;
    for (int i = 0; i < count(); ++i) {
      if (!stages_[i]) continue;
      who.push_back(i);
      stages.push_back(stages_[i].get());
    }
    if (who.empty()) return {};
    RotatingOptions rotating{task_.dims, task_.threads, task_.cold, target_.l3_bytes};
    LATHE_ASSIGN(std::unique_ptr<RotatingOperands> operands,
                 RotatingOperands::create(naive_, stages, rotating, team_.get()));
    std::vector<std::function<void()>> calls;
    for (size_t n = 0; n < who.size(); ++n) {
      calls.emplace_back([&operands, n] { operands->call(static_cast<int>(n)); });
    }
    TimingOptions options;
    options.cold = task_.cold;
    options.seed = task_.seed;
    if (task_.budget_ms > 0)
      options.budget_ms = std::max(task_.budget_ms - (now_ms() - start_), 0.3 * task_.budget_ms);
    const TimingResult timed = time_candidates(
        calls, options, [&](int n) { progress(who[static_cast<size_t>(n)], EvaluatePhase::time); });
    for (size_t n = 0; n < who.size(); ++n) {
      CandidateResult& c = out_.candidates[who[n]];
      const TimingRow& row = timed.rows[n];
      c.outcome = row.rounds > 0 ? Outcome::timed : Outcome::skipped;
      if (row.rounds == 0) c.reason = "no time left to measure";
      c.rounds = row.rounds;
      c.min_us = row.min_us;
      c.median_us = row.median_us;
      c.interval_lo = row.gain_lo;
      c.interval_hi = row.gain_hi;
    }
    out_.winner = who[timed.winner];
    out_.tie = timed.tie;
    out_.measurements = timed.measurements;
    out_.default_us = timed.default_us;
    out_.best_us = timed.best_us;
    return timed.tie ? Status{} : confirm(who[0]);
  }

  // The winner once more, on other data; if it fails, the default stays.
  Status confirm(int incumbent) {
    OracleTask again{naive_, task_.dims, task_.threads, task_.seed + 1};
    LATHE_ASSIGN(std::unique_ptr<Oracle> oracle, Oracle::create(std::move(again), team_.get()));
    if (hooks_.oracle) hooks_.oracle(oracle.get());
    progress(out_.winner, EvaluatePhase::confirm);
    const Result<Verdict> verdict = oracle->verify(*stages_[out_.winner]);
    if (hooks_.oracle) hooks_.oracle(nullptr);
    if (verdict.ok() && verdict->ok) return {};
    CandidateResult& c = out_.candidates[out_.winner];
    c.outcome = Outcome::wrong;
    c.reason = "after timing: " + (verdict.ok() ? verdict->reason : verdict.status().to_string());
    out_.winner = incumbent;
    out_.tie = true;
    out_.best_us = out_.default_us;
    return {};
  }

  const EvaluateTask& task_;
  LeafCache& leaves_;
  const EvaluateHooks& hooks_;
  const double start_;
  ir::Kernel naive_;
  ir::Target target_;
  std::unique_ptr<ThreadTeam> team_;
  PlantedLeaves planted_;
  std::vector<std::unique_ptr<Stage>> stages_;  // null: settled
  EvaluateResult out_;
};

}  // namespace

const char* outcome_name(Outcome outcome) {
  constexpr const char* kNames[] = {"timed", "refused", "wrong", "crashed", "hung", "skipped"};
  return kNames[static_cast<int>(outcome)];
}

const char* phase_name(EvaluatePhase phase) {
  constexpr const char* kNames[] = {"build", "verify", "time", "confirm"};
  return kNames[static_cast<int>(phase)];
}

Result<EvaluateResult> evaluate_in_process(const EvaluateTask& task, LeafCache& leaves,
                                           const EvaluateHooks& hooks) {
  return Evaluation(task, leaves, hooks).run();
}

}  // namespace lathe::runtime
