// See evaluation.h. One batch: build all, verify all, then time those that are right, so that nothing wrong is ever
// timed. Stages stay until the evaluation ends: the decision runs them again.
#include "runtime/measure/evaluation.h"

#include <deque>
#include <map>

#include "ir/base/target_text.h"
#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "jit/image/image_lint.h"
#include "runtime/base/clock.h"
#include "runtime/base/memory_limit.h"
#include "runtime/compile/compiler.h"
#include "runtime/measure/machine_profile.h"
#include "runtime/measure/own_cores.h"
#include "runtime/measure/rotating_operands.h"
#include "runtime/measure/timing.h"
#include "runtime/oracle/witness.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;
using search::Outcome;

namespace {

constexpr int64_t kCopiesPart = 4;  // of the memory that there is, copies of operands take one

class LocalEvaluation final : public Evaluation {
 public:
  LocalEvaluation(EvaluateTask task, LeafCache& leaves, EvaluationHooks hooks)
      : task_(std::move(task)), leaves_(leaves), hooks_(std::move(hooks)), start_(now_ms()) {}
  ~LocalEvaluation() override {
    if (hooks_.oracle) hooks_.oracle(nullptr);
  }

  Status begin() {
    LATHE_ASSIGN(naive_, ir::parse_kernel(task_.kernel_text));
    target_ = jit::host_target();
    if (!task_.target.empty()) {
      LATHE_ASSIGN(target_, ir::parse_target(task_.target));
    }
    if (task_.threads > 1) {
      TeamOptions team;
      team.threads = task_.threads;
      team_ = std::make_unique<ThreadTeam>(team);
    }
    witness_ = std::make_unique<Witness>(naive_, task_.seed);
    LATHE_ASSIGN(oracle_, Oracle::create({naive_, task_.dims, task_.threads, task_.seed}, team_.get()));
    TimingOptions options;
    options.cold = task_.cold;
    options.seed = task_.seed;
    options.budget_ms = task_.budget_ms;
    options.placements = task_.placements;
    options.place = [this](int placement) { operands_->place(placement); };
    options.contended = processor_contended;
    options.min_sample_us = sample_us(task_.cold || task_.threads > 1, task_.aside);
    OwnCoresOptions wait;
    if (task_.budget_ms > 0) {
      wait.first_ms = std::min(wait.first_ms, 0.05 * task_.budget_ms);
      wait.most_ms = std::min(wait.most_ms, 0.2 * task_.budget_ms);
    }
    cores_ = std::make_unique<OwnCores>(team_.get(), std::move(wait));
    timing_ = std::make_unique<TimingSession>(std::move(options), [this](int n) {
      progress(timed_[static_cast<size_t>(n)], EvaluatePhase::time);
      cores_->await();
    });
    return {};
  }

  Result<std::vector<CandidateResult>> screen(const std::vector<CandidateSpec>& batch) override {
    const int first = static_cast<int>(candidates_.size());
    for (const CandidateSpec& spec : batch) candidates_.emplace_back().spec = spec;
    LATHE_RETURN_IF_ERROR(build(first));
    LATHE_RETURN_IF_ERROR(verify_all(first));
    LATHE_RETURN_IF_ERROR(time_all(first));
    std::vector<CandidateResult> out;
    for (int i = first; i < count(); ++i) out.push_back(candidates_[static_cast<size_t>(i)].result);
    return out;
  }

  Result<FinalResult> decide(const std::vector<int>& chosen, int incumbent) override {
    FinalResult out;
    if (timed_.empty()) return out;
    verify_again();
    if (!right(candidates_[static_cast<size_t>(timed_[0])]))
      return ir::internal_error("the reference of the timing is wrong: {}",
                                candidates_[static_cast<size_t>(timed_[0])].result.reason);
    std::vector<Finalist> finalists;
    int standing = -1;
    const auto admit = [&](int i) -> Status {
      if (i < 0 || i >= count() || i == timed_[0]) return {};
      Entry& e = candidates_[static_cast<size_t>(i)];
      if (!e.stage || !right(e)) return {};
      if (e.timing < 0) LATHE_RETURN_IF_ERROR(enter(i));
      if (i == incumbent) standing = e.timing;
      for (const Finalist& f : finalists) {
        if (f.candidate == e.timing) return {};
      }
      finalists.push_back({e.timing, e.result.code_bytes, e.spec.schedule});
      return {};
    };
    for (const int i : chosen) LATHE_RETURN_IF_ERROR(admit(i));
    LATHE_RETURN_IF_ERROR(admit(incumbent));
    // What was screened stays as it was, for screening to go on.
    TimingSession timing = *timing_;
    const TimingDecision decided = timing.decide(finalists, standing);
    out.winner = timed_[static_cast<size_t>(decided.winner)];
    out.tie = decided.tie;
    out.default_us = decided.reference_us;
    out.best_us = decided.best_us;
    out.further = timing.further();
    for (const Finalist& f : finalists) {
      const TimingRow& row = timing.row(f.candidate);
      CandidateResult& c = candidates_[static_cast<size_t>(timed_[static_cast<size_t>(f.candidate)])].result;
      c.interval_lo = row.gain_lo;
      c.interval_hi = row.gain_hi;
    }
    if (!out.tie) LATHE_RETURN_IF_ERROR(confirm(&out));
    for (const Finalist& f : finalists) {
      const int i = timed_[static_cast<size_t>(f.candidate)];
      out.finalists.emplace_back(i, candidates_[static_cast<size_t>(i)].result);
    }
    return out;
  }

 private:
  struct Entry {
    CandidateSpec spec;
    CandidateResult result;
    std::unique_ptr<Stage> stage;  // null: rejected
    int timing = -1;               // its number there
    int generation = -1;           // of the oracle that passed it
  };
  static bool right(const Entry& e) { return !rejected(e.result.outcome) && e.result.outcome != Outcome::refused; }

  int count() const { return static_cast<int>(candidates_.size()); }
  void progress(int i, EvaluatePhase phase) {
    if (hooks_.progress) hooks_.progress(i, phase);
  }
  void settle(int i, Outcome outcome, Step step, std::string reason) {
    Entry& e = candidates_[static_cast<size_t>(i)];
    e.result.outcome = outcome;
    e.result.step = step;
    e.result.reason = std::move(reason);
    // One that is being timed stays mapped: the timing may still hold its number.
    if (e.timing < 0) e.stage.reset();
    if (hooks_.settled) hooks_.settled(i, e.result);
  }
  bool late(int i) const { return i > 0 && task_.budget_ms > 0 && now_ms() - start_ > 0.6 * task_.budget_ms; }

  Status build(int first) {
    for (int i = first; i < count(); ++i) {
      Entry& e = candidates_[static_cast<size_t>(i)];
      progress(i, EvaluatePhase::build);
      const Result<search::Schedule> schedule = search::parse_schedule(e.spec.schedule);
      if (!schedule.ok()) {
        settle(i, Outcome::refused, Step::V0, schedule.status().to_string());
        continue;
      }
      Result<Stage> stage = hooks_.stages->build(e.spec.schedule, naive_, *schedule, target_, leaves_);
      if (!stage.ok()) {
        settle(i, Outcome::refused, Step::V0, stage.status().to_string());
        continue;
      }
      e.stage = std::make_unique<Stage>(std::move(stage).value());
      const Entry& reference = candidates_.front();
      if (e.stage->portable && reference.stage && !reference.stage->portable) {
        settle(i, Outcome::refused, Step::V0,
               "no back end makes its leaves: the portable executor is not worth timing");
        continue;
      }
      for (const auto& image : e.stage->images) e.result.code_bytes += static_cast<int64_t>(image->code.size());
      const auto [same, fresh] = seen_.emplace(ir::print(e.stage->nest().cut.kernel), i);
      if (!fresh)
        settle(i, Outcome::skipped, Step::none, fmt::format("the same nest and leaves as candidate {}", same->second));
      if (e.stage) examine(i, *schedule);
    }
    return {};
  }

  // What can be said of a candidate without running it: does its Schedule keep the meaning, is its code what a leaf may
  // be.
  void examine(int i, const search::Schedule& schedule) {
    Entry& e = candidates_[static_cast<size_t>(i)];
    const Witness::Verdict seen = witness_->check(schedule, hooks_.stages->replay(e.spec.schedule));
    if (!seen.difference.empty()) {
      settle(i, Outcome::wrong, Step::V1, seen.difference);
      return;
    }
    for (const auto& image : e.stage->images) {
      const Status status = jit::lint_image(*image);
      if (status.ok()) continue;
      settle(i, Outcome::wrong, Step::V2, fmt::format("{}: {}", image->symbol, status.message()));
      return;
    }
  }

  Status verify_all(int first) {
    if (hooks_.oracle) hooks_.oracle(oracle_.get());
    // Once more if two that differ were both taken for right at first.
    for (int round = 0, generation = -1; round < 3 && generation != oracle_->generation(); ++round) {
      generation = oracle_->generation();
      for (int i = first; i < count(); ++i) {
        if (!candidates_[static_cast<size_t>(i)].stage) continue;
        if (late(i))
          settle(i, Outcome::skipped, Step::none, "no time left to verify");
        else
          verify(i, *oracle_, EvaluatePhase::verify);
      }
    }
    if (hooks_.oracle) hooks_.oracle(nullptr);
    return {};
  }

  bool verify(int i, Oracle& oracle, EvaluatePhase phase) {
    Entry& e = candidates_[static_cast<size_t>(i)];
    const Step step = phase == EvaluatePhase::verify ? Step::V3 : Step::after;
    const auto alive = [this, i, phase] { progress(i, phase); };
    alive();
    const Result<Verdict> verdict = oracle.verify(*e.stage, alive);
    if (!verdict.ok()) {
      settle(i, Outcome::refused, step, verdict.status().to_string());
      return false;
    }
    if (&oracle == oracle_.get()) e.generation = oracle.generation();
    e.result.gate = verdict->gate;
    e.result.err_over_bound = std::max(e.result.err_over_bound, verdict->err_over_bound);
    if (!verdict->ok) settle(i, Outcome::wrong, step, (step == Step::after ? "after timing: " : "") + verdict->reason);
    return verdict->ok;
  }

  // What was taken for right before two that differ were found.
  void verify_again() {
    for (int i = 0; i < count(); ++i) {
      const Entry& e = candidates_[static_cast<size_t>(i)];
      if (e.stage && right(e) && e.generation != oracle_->generation()) verify(i, *oracle_, EvaluatePhase::confirm);
    }
  }

  // Into the timing.
  Status enter(int i) {
    Entry& e = candidates_[static_cast<size_t>(i)];
    progress(i, EvaluatePhase::time);  // operands may be a GiB
    if (!operands_) {
      // Beside calls that run, copies take no more of their memory and caches than they must.
      const int64_t copies = task_.aside ? 2 * target_.l3_bytes : cold_bytes(target_);
      const RotatingOptions rotating{task_.dims, task_.threads, task_.cold, copies, memory_limit() / kCopiesPart};
      LATHE_ASSIGN(operands_, RotatingOperands::create(naive_, rotating, team_.get()));
    }
    LATHE_ASSIGN(const int number, operands_->add(*e.stage));
    std::function<void(int)> evict;
    if (task_.cold) evict = [this](int calls) { operands_->evict(calls); };
    timed_.push_back(i);
    e.timing = timing_->add([this, number] { operands_->call(number); }, std::move(evict));
    return {};
  }

  Status time_all(int first) {
    std::vector<int> numbers;
    for (int i = first; i < count(); ++i) {
      const Entry& e = candidates_[static_cast<size_t>(i)];
      if (!e.stage) continue;
      if (!e.spec.time) {
        if (hooks_.settled) hooks_.settled(i, e.result);  // right, as far as it was asked
        continue;
      }
      LATHE_RETURN_IF_ERROR(enter(i));
      numbers.push_back(e.timing);
    }
    timing_->screen(numbers, [this](int n) {
      const int i = timed_[static_cast<size_t>(n)];
      CandidateResult& c = candidates_[static_cast<size_t>(i)].result;
      const TimingRow& row = timing_->row(n);
      c.outcome = row.samples.empty() ? Outcome::skipped : Outcome::timed;
      if (row.samples.empty()) c.reason = "no time left to measure";
      c.samples_us = row.samples;
      c.reference_us = row.reference_us;
      c.provisional = row.provisional;
      if (hooks_.settled) hooks_.settled(i, c);
    });
    return {};
  }

  // The winner once more, on other data; if it fails, the reference stays.
  Status confirm(FinalResult* out) {
    LATHE_ASSIGN(std::unique_ptr<Oracle> oracle,
                 Oracle::create({naive_, task_.dims, task_.threads, task_.seed + 1}, team_.get()));
    if (hooks_.oracle) hooks_.oracle(oracle.get());
    const bool right = verify(out->winner, *oracle, EvaluatePhase::confirm);
    if (hooks_.oracle) hooks_.oracle(nullptr);
    if (right) return {};
    out->winner = timed_[0];
    out->tie = true;
    out->best_us = out->default_us;
    return {};
  }

  const EvaluateTask task_;
  LeafCache& leaves_;
  const EvaluationHooks hooks_;
  const double start_;
  ir::Kernel naive_;
  ir::Target target_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<OwnCores> cores_;
  std::unique_ptr<Witness> witness_;
  std::unique_ptr<Oracle> oracle_;
  std::deque<Entry> candidates_;
  std::unique_ptr<RotatingOperands> operands_;
  std::unique_ptr<TimingSession> timing_;
  std::vector<int> timed_;           // by number of the timing
  std::map<std::string, int> seen_;  // by scheduled Kernel
};

}  // namespace

Result<std::unique_ptr<Evaluation>> begin_evaluation(EvaluateTask task, LeafCache& leaves, EvaluationHooks hooks) {
  auto out = std::make_unique<LocalEvaluation>(std::move(task), leaves, std::move(hooks));
  LATHE_RETURN_IF_ERROR(out->begin());
  return std::unique_ptr<Evaluation>(std::move(out));
}

}  // namespace lathe::runtime
