// See candidacy.h.
#include "runtime/live/candidacy.h"

#include <chrono>

#include "ir/core/text_form.h"
#include "runtime/base/verbose.h"
#include "runtime/live/shadow.h"
#include "runtime/oracle/data_sets.h"
#include "runtime/serve/recorded_calls.h"
#include "runtime/walk/nest_bind.h"
#include "search/cut/cut.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;
using S = PromotionState;

namespace {

Stat counter(S state) {
  switch (state) {
#define LATHE_PROMOTION(id, final, help) \
  case S::id:                            \
    return Stat::k_promotions_##id;
#include "runtime/live/promotion_states.def"
#undef LATHE_PROMOTION
  }
  return Stat::k_promotions_rejected;
}

// What a call of the Kernel touches, as the serving stage has it.
Result<std::vector<RecordedParam>> recorded_params(const ir::Kernel& kernel, const SymbolValues& dims,
                                                   const Stage& serving) {
  LATHE_RETURN_IF_ERROR(check_host_memory(*serving.executable, "recording"));
  SymbolValues symbols = dims;
  LATHE_ASSIGN(const std::vector<OperandShape> shapes, operand_shapes(kernel, &symbols));
  std::vector<RecordedParam> out;
  for (const OperandShape& s : shapes) {
    if (s.kept) return ir::unsupported("{} is updated in place: its calls are not recorded", s.name);
    using Kind = RecordedParam::Kind;
    RecordedParam p = {s.place == ir::Place::out        ? Kind::out
                       : s.place == ir::Place::constant ? Kind::constant
                                                        : Kind::in,
                       s.bytes()};
    for (const PackedParam& packed : serving.packed) {
      if (packed.param != static_cast<int>(out.size())) continue;
      LATHE_ASSIGN(p.bytes, packed_bytes(packed, symbols));
    }
    out.push_back(p);
  }
  return out;
}

}  // namespace

int64_t workspace_of(const ir::Kernel& naive, const ir::Kernel& scheduled, const SymbolValues& dims, int threads) {
  SymbolValues symbols = dims;
  const Result<std::vector<OperandShape>> shapes = operand_shapes(naive, &symbols);
  const Result<ir::CutKernel> cut = search::cut(scheduled);
  if (!shapes.ok() || !cut.ok()) return INT64_MAX;
  const Result<BoundNest> nest = bind_nest(*cut, symbols, arg_layouts(naive, *shapes), threads);
  return nest.ok() ? nest->workspace_bytes : INT64_MAX;
}

Candidacy::Candidacy(const std::shared_ptr<Operator>& op, const PrepareRequest& request, int kernel, LiveShape shape)
    : op_(op),
      request_(request),
      kernel_(kernel),
      shape_(std::move(shape)),
      serving_(shape_.body->steps[static_cast<size_t>(kernel)].stage),
      problem_(op->live().problem(kernel, shape_.call.symbols, request, *serving_)),
      query_(op->live().query(kernel, shape_.call.symbols, request, *serving_)) {}

// Transitions that the state machine forbids are bugs of this file: they change nothing.
void Candidacy::enter(const CandidacyTools& tools, S state, std::string reason) {
  if (!promotion_->advance(state, std::move(reason)).ok()) return;
  tools.context.stats().add(counter(state));
  if (tools.context.leaves().options().verbose < Verbosity::create) return;
  verbose_line(
      {"promotion", problem_.kernel.name, promotion_name(state), "online", promotion_->steps().back().reason, 0});
}

bool Candidacy::propose(const CandidacyTools& tools) {
  const std::shared_ptr<Operator> op = op_.lock();
  if (op == nullptr) return false;
  promotion_ = std::make_unique<Promotion>(tools.trials);
  if (!find(tools, *op)) {
    promotion_.reset();
    return false;
  }
  tools.context.stats().add(Stat::k_promotions_proposed);
  if (state() == S::faster) take_up(tools, *op);
  return true;
}

// To Faster, or out; false: nobody knows.
bool Candidacy::find(const CandidacyTools& tools, Operator&) {
  const std::optional<Decision> known = tools.context.find_decision(query_);
  if (known && known->status != DecisionStatus::provisional) {
    enter(tools, S::verified, "recorded");
    const Result<search::Schedule> schedule = search::parse_schedule(known->schedule);
    Result<search::Scheduled> scheduled = schedule.ok() ? search::schedule_kernel(problem_.kernel, *schedule)
                                                        : Result<search::Scheduled>(schedule.status());
    if (!scheduled.ok()) {
      enter(tools, S::rejected, scheduled.status().to_string());
      return true;
    }
    scheduled_ = std::move(scheduled).value();
    text_ = known->schedule;
    enter(tools, known->status == DecisionStatus::tie ? S::tie : S::faster, "recorded");
    return true;
  }
  if (!tools.search) return false;
  SearchTask task;
  task.problem = problem_;
  task.query = query_;
  task.dims = shape_.call.symbols;
  task.candidates = tools.rules.candidates;
  task.ram = tools.rules.ram;
  task.cancelled = tools.cancelled;
  task.incumbent = serving_->stage.schedule;
  // What the host was told is all there is.
  const int64_t workspace = shape_.body->workspace_bytes - shape_.body->scratch_offset;
  task.admits = [this, workspace](const ir::Kernel& scheduled) {
    return Live::same_layouts(scheduled, *serving_) &&
           workspace_of(problem_.kernel, scheduled, shape_.call.symbols, request_.threads) <= workspace;
  };
  task.aside = true;
  if (tools.knowledge != nullptr) tools.knowledge->equip(&task);
  task.keep = nullptr;  // short samples beside other work teach nobody
  const int64_t start = tools.now_ns();
  const Result<SearchOutcome> found = search_and_record(tools.context, task, tools.evaluate, std::nullopt);
  tools.context.stats().add(Stat::k_tune_ns, tools.now_ns() - start);
  if (!found.ok()) {
    if (found.status().code() == ir::Code::kCANCELLED || (tools.cancelled && tools.cancelled())) return false;
    enter(tools, found.status().code() == ir::Code::kINTERNAL ? S::quarantined : S::rejected,
          found.status().to_string());
    return true;
  }
  if (tools.cancelled && tools.cancelled() && !found->measured) return false;
  return judge_search(tools, *found);
}

bool Candidacy::judge_search(const CandidacyTools& tools, const SearchOutcome& found) {
  scheduled_ = found.winner;
  text_ = search::to_text(scheduled_.schedule);
  if (!found.measured) {
    enter(tools, S::rejected, found.note);
    return true;
  }
  enter(tools, S::verified);
  if (found.tie) {
    enter(tools, S::tie, "nothing beats the default");
  } else {
    enter(tools, S::faster, fmt::format("{:.2f} us, the default {:.2f}", found.best_us, found.default_us));
  }
  return true;
}

// Compiled and bound here, on the tuner's thread; no call waits for it.
void Candidacy::take_up(const CandidacyTools& tools, Operator& op) {
  const Result<const ServedStage*> built = op.live().add_candidate(kernel_, problem_, scheduled_, *serving_, request_);
  if (!built.ok()) return enter(tools, S::rejected, built.status().to_string());
  candidate_ = *built;
  if ((candidate_->stage.schedule.numeric & ~query_.allowed) != 0)
    return enter(tools, S::rejected, "takes liberties that are not allowed");
  const Result<const BoundOp*> bound = op.shapes().bind_candidate(kernel_, candidate_, shape_.call);
  if (!bound.ok()) return enter(tools, S::rejected, bound.status().to_string());
  after_ = *bound;
  if (promotion_->trials()) return start_shadow(tools, op);
  const Status status = op.live().promote(kernel_, candidate_);
  if (!status.ok()) return enter(tools, S::rejected, status.to_string());
  enter(tools, S::active);
}

void Candidacy::start_shadow(const CandidacyTools& tools, Operator& op) {
  const Result<std::vector<RecordedParam>> params =
      recorded_params(problem_.kernel, shape_.call.symbols, serving_->stage);
  if (!params.ok()) return enter(tools, S::rejected, params.status().to_string());
  Result<std::unique_ptr<RecordedCalls>> recorder = RecordedCalls::create(*params, tools.rules.shadow_calls);
  if (!recorder.ok()) return enter(tools, S::rejected, recorder.status().to_string());
  trial_ = op.live().new_trial(nullptr, std::move(*recorder), kernel_);
  shape_.heat->set_trial(trial_);
  enter(tools, S::shadow);
}

bool Candidacy::ready() const {
  return promotion_ != nullptr && promotion_->state() == S::shadow && trial_ != nullptr && trial_->recorder->complete();
}

void Candidacy::poll(const CandidacyTools& tools) {
  const std::shared_ptr<Operator> op = op_.lock();
  if (op == nullptr || promotion_ == nullptr || trial_ == nullptr) return;
  if (shape_.heat->trial() != trial_ && !ready()) shape_.heat->set_trial(trial_);  // it was switched off meanwhile
  switch (state()) {
    case S::shadow:
      return run_shadow(tools, *op);
    case S::canary:
      return poll_canary(tools, *op);
    case S::active:
      return watch(tools, *op);
    default:
      return;
  }
}

void Candidacy::end_trial() {
  if (trial_ == nullptr) return;
  shape_.heat->set_trial(nullptr);
  if (trial_->recorder != nullptr) trial_->recorder->release();
  trial_ = nullptr;
}

void Candidacy::run_shadow(const CandidacyTools& tools, Operator& op) {
  if (!ready()) return;
  shape_.heat->set_trial(nullptr);
  ShadowTask task;
  task.kernel_text = ir::print(problem_.kernel);
  task.schedule = text_;
  task.dims = shape_.call.symbols;
  task.threads = request_.threads;
  task.target = tools.context.target().to_string();
  task.recorded = trial_->recorder->path();
  task.cpu_share = tools.rules.cpu_share;
  ShadowChild child;
  child.path = tools.context.options().text(ir::OptionId::worker);
  child.plugin_dir = tools.context.options().text(ir::OptionId::plugin_dir);
  child.cancelled = tools.cancelled;
  child.paused = tools.paused;
  child.used = tools.charge;
  const Result<ShadowResult> result = shadow_in_child(task, child);
  if (!result.ok() && result.status().code() == ir::Code::kCANCELLED) return;  // the calls are still there
  end_trial();
  using Outcome = ShadowResult::Outcome;
  if (!result.ok()) return enter(tools, S::rejected, result.status().to_string());
  if (result->outcome == Outcome::refused) return enter(tools, S::rejected, result->reason);
  if (result->outcome != Outcome::agrees) {
    tools.context.stats().add(Stat::k_failures);
    disown(tools, op);
    return enter(tools, S::quarantined, result->reason);
  }
  enter(tools, S::canary, fmt::format("{} calls agree", result->calls));
  judge_ = TrialJudge(tools.rules.trial);
  start_pairs(op, after_);
}

void Candidacy::start_pairs(Operator& op, const BoundOp* other) {
  trial_ = op.live().new_trial(other, nullptr, kernel_);
  shape_.heat->set_trial(trial_);
}

void Candidacy::poll_canary(const CandidacyTools& tools, Operator& op) {
  for (const Trial::Pair& p : trial_->take()) judge_.add(p.other_ns, p.serving_ns);
  const TrialVerdict verdict = judge_.verdict();
  if (verdict == TrialVerdict::undecided) return;
  const std::string reason =
      fmt::format("{:.3f} of the incumbent's time over {} calls", judge_.median(), judge_.calls());
  end_trial();
  if (verdict == TrialVerdict::tie) return enter(tools, S::tie, reason);
  if (verdict == TrialVerdict::worse) {
    disown(tools, op);
    return enter(tools, S::rolled_back, reason);
  }
  const Status status = op.live().promote(kernel_, candidate_);
  if (!status.ok()) return enter(tools, S::rejected, status.to_string());
  enter(tools, S::active, reason);
  judge_ = TrialJudge(tools.rules.trial);
  start_pairs(op, shape_.body);
}

// A few calls go on with what served before, so that a candidate which turns slow is noticed. Its median is of the
// latest calls.
void Candidacy::watch(const CandidacyTools& tools, Operator& op) {
  for (const Trial::Pair& p : trial_->take()) judge_.add(p.serving_ns, p.other_ns);
  if (judge_.verdict() == TrialVerdict::worse) {
    const std::string reason =
        fmt::format("{:.3f} of the former's time over {} calls", judge_.median(), judge_.calls());
    end_trial();
    if (!op.live().demote(kernel_, candidate_).ok()) return;
    disown(tools, op);
    return enter(tools, S::rolled_back, reason);
  }
  if (judge_.calls() >= tools.rules.trial.least_calls) judge_ = TrialJudge(tools.rules.trial);
}

// The record says that nothing beats the default of a first call, so that neither this process nor a later one takes
// the candidate up again.
void Candidacy::disown(const CandidacyTools& tools, Operator&) {
  Decision decision;
  decision.status = DecisionStatus::tie;
  decision.op = problem_.kernel.family;
  decision.kernel = problem_.kernel.name;
  search::Problem serves = problem_;
  serves.unhurried = false;
  decision.schedule = search::to_text(search::default_schedule(serves, tools.context.target()));
  tools.context.record_decision(query_, std::move(decision));
}

}  // namespace lathe::runtime
