// See device_evaluation.h.
#include "runtime/cuda/measure/device_evaluation.h"

#include <algorithm>
#include <deque>
#include <map>

#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "runtime/base/clock.h"
#include "runtime/base/tasks.h"
#include "runtime/cuda/device_stage.h"
#include "runtime/cuda/measure/device_timing.h"
#include "runtime/cuda/measure/hosted_stage.h"
#include "runtime/cuda/measure/packed_operands.h"
#include "runtime/oracle/data_sets.h"
#include "runtime/oracle/witness.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;
using search::Outcome;

namespace {

constexpr double kMustWin = 1;        // per cent of the reference's time
constexpr int64_t kCompileMs = 5000;  // of a launch of a candidate

class DeviceEvaluation final : public Evaluation {
 public:
  DeviceEvaluation(EvaluateTask task, EvaluationHooks hooks, std::function<void(int, const std::string&)> lost)
      : task_(std::move(task)),
        hooks_(std::move(hooks)),
        lost_(std::move(lost)),
        codes_(task_.nvrtc, nullptr, nullptr),
        start_(now_ms()) {}
  ~DeviceEvaluation() override {
    if (hooks_.oracle) hooks_.oracle(nullptr);
  }

  Status begin() {
    LATHE_ASSIGN(naive_, ir::parse_kernel(task_.kernel_text));
    general_ = search::general_kernel(naive_);
    LATHE_ASSIGN(device_, cuda_device(task_.cuda, task_.device - 1));
    LATHE_RETURN_IF_ERROR(begin_on_device());
    LATHE_ASSIGN(oracle_, Oracle::create({naive_, task_.dims, 1, task_.seed}, nullptr));
    timing_ = std::make_unique<DeviceTiming>(session_, [this](int n) {
      at_work_ = timed_[static_cast<size_t>(n)];
      hooks_progress(at_work_, EvaluatePhase::time);
    });
    return {};
  }

  Result<std::vector<CandidateResult>> screen(const std::vector<CandidateSpec>& batch) override {
    const int first = static_cast<int>(candidates_.size());
    for (const CandidateSpec& spec : batch) candidates_.emplace_back().spec = spec;
    compile_ahead(first);
    for (int i = first; i < count(); ++i) build(i);
    if (hooks_.oracle) hooks_.oracle(oracle_.get());
    for (int i = first; i < count(); ++i) {
      if (at(i).stage == nullptr) continue;
      if (late(i))
        settle(i, Outcome::skipped, Step::none, "no time left to verify");
      else
        verify(i, *oracle_, EvaluatePhase::verify);
    }
    if (hooks_.oracle) hooks_.oracle(nullptr);
    for (int i = first; i < count(); ++i) {
      if (at(i).stage == nullptr) continue;
      if (at(i).spec.time)
        time(i);
      else if (hooks_.settled)
        hooks_.settled(i, at(i).result);  // right, as far as it was asked
    }
    std::vector<CandidateResult> out;
    for (int i = first; i < count(); ++i) out.push_back(at(i).result);
    return out;
  }

  Result<FinalResult> decide(const std::vector<int>& chosen, int incumbent) override {
    FinalResult out;
    if (timed_.empty()) return out;
    out.winner = timed_[0];
    std::vector<int> numbers;
    const auto admit = [&](int i) {
      if (i < 0 || i >= count() || i == timed_[0] || at(i).stage == nullptr) return;
      if (at(i).timing < 0) time(i);
      if (at(i).timing > 0 && std::find(numbers.begin(), numbers.end(), at(i).timing) == numbers.end())
        numbers.push_back(at(i).timing);
    };
    for (const int i : chosen) admit(i);
    admit(incumbent);
    LATHE_RETURN_IF_ERROR(device_->working());  // else whoever broke it has been said
    const Result<DeviceTiming::Decision> made = timing_->decide(numbers);
    if (!made.ok()) return say_if_lost(at_work_, made.status());
    const DeviceTiming::Decision& decided = *made;
    out.further = decided.samples;
    out.default_us = out.best_us = decided.reference_us;
    for (const DeviceTiming::Finalist& f : decided.finalists) {
      const int i = timed_[static_cast<size_t>(f.candidate)];
      at(i).result.interval_lo = f.gain_lo;
      at(i).result.interval_hi = f.gain_hi;
      if (out.tie && f.gain_lo > kMustWin) {
        out.winner = i;
        out.tie = false;
        out.best_us = f.us;
      }
    }
    if (!out.tie) LATHE_RETURN_IF_ERROR(confirm(&out));
    for (const DeviceTiming::Finalist& f : decided.finalists) {
      const int i = timed_[static_cast<size_t>(f.candidate)];
      out.finalists.emplace_back(i, at(i).result);
    }
    return out;
  }

 private:
  struct Entry {
    CandidateSpec spec;
    CandidateResult result;
    Status compiled;               // ahead of build()
    std::unique_ptr<Stage> stage;  // null: rejected
    std::unique_ptr<const BoundExecutable> bound;
    std::vector<void*> addresses;  // of its operands for timing
    std::vector<DeviceMemory> packed;
    DeviceMemory workspace;
    int timing = -1;  // its number there
  };

  int count() const { return static_cast<int>(candidates_.size()); }
  Entry& at(int i) { return candidates_[static_cast<size_t>(i)]; }
  bool late(int i) const { return i > 0 && task_.budget_ms > 0 && now_ms() - start_ > 0.6 * task_.budget_ms; }
  void hooks_progress(int i, EvaluatePhase phase) {
    if (hooks_.progress) hooks_.progress(i, phase);
  }
  void settle(int i, Outcome outcome, Step step, std::string reason) {
    Entry& e = at(i);
    e.result.outcome = outcome;
    e.result.step = step;
    e.result.reason = std::move(reason);
    if (e.timing < 0) e.stage.reset();
    if (hooks_.settled) hooks_.settled(i, e.result);
  }
  // That status; a worker does not come back if the device is lost. i: -1: no candidate was at work.
  Status say_if_lost(int i, const Status& why) const {
    if (!why.ok() && lost_ && !device_->working().ok()) lost_(i, why.message());
    return why;
  }
  Status begin_on_device() {
    Result<std::unique_ptr<DeviceSession>> opened = DeviceSession::open(device_);
    if (opened.ok()) session_ = std::move(*opened);
    return say_if_lost(-1, opened.status());
  }
  // What the device said while it worked on a candidate.
  void failed(int i, Step step, const Status& why) {
    (void)say_if_lost(i, why);
    if (!device_->working().ok()) {
      settle(i, Outcome::crashed, step, why.message());
      at(i).stage.reset();
    } else {
      settle(i, Outcome::refused, step, why.to_string());
    }
  }

  // One for each Kernel that moves start from.
  Witness& witness_of(const search::Schedule& schedule) {
    const ir::Kernel kernel = search::kernel_of_schedule(general_, schedule);
    return witnesses_.try_emplace(ir::print(kernel), kernel, task_.seed).first->second;
  }

  DevicePolicy policy() const {
    return {.compile = true, .driver = device_->driver().version, .limits = {.most_ms = kCompileMs}};
  }
  // NVRTC takes most of a candidate's time and is parallel: code of all of them on the cores that this process
  // may use, which build() finds then.
  void compile_ahead(int first) {
    TaskArena cores(jit::host_target().cores);
    (void)for_each_index(&cores, candidates_.size() - static_cast<size_t>(first), [&](size_t n) {
      const int i = first + static_cast<int>(n);
      if (hooks_.compiles) hooks_.compiles(i, true);
      hooks_progress(i, EvaluatePhase::build);
      const Result<search::Schedule> schedule = search::parse_schedule(at(i).spec.schedule);
      if (schedule.ok())
        at(i).compiled = plan_on_device(naive_, task_.dims, &*schedule, device_->target(), codes_, policy()).status();
      if (hooks_.compiles) hooks_.compiles(i, false);
      return Status();
    });
  }

  void build(int i) {
    hooks_progress(i, EvaluatePhase::build);
    const Result<search::Schedule> schedule = search::parse_schedule(at(i).spec.schedule);
    if (!schedule.ok()) return settle(i, Outcome::refused, Step::V0, schedule.status().to_string());
    const Result<search::Scheduled> scheduled = search::replay_on_device(general_, *schedule);
    if (!scheduled.ok()) return settle(i, Outcome::refused, Step::V0, scheduled.status().to_string());
    const auto [same, fresh] = seen_.emplace(ir::print(scheduled->kernel), i);
    if (!fresh)
      return settle(i, Outcome::skipped, Step::none, fmt::format("the same launches as candidate {}", same->second));
    const Witness::Verdict seen = witness_of(*schedule).check(*schedule);
    if (!seen.difference.empty()) return settle(i, Outcome::wrong, Step::V1, seen.difference);
    if (!at(i).compiled.ok()) return failed(i, Step::V2, at(i).compiled);
    Result<Stage> stage = build_device_stage(naive_, task_.dims, &*schedule, device_, codes_, policy());
    if (!stage.ok()) return failed(i, Step::V2, stage.status());
    Result<std::unique_ptr<const BoundExecutable>> bound = stage->executable->bind(task_.dims, {}, 1);
    if (!bound.ok()) return settle(i, Outcome::refused, Step::V0, bound.status().to_string());
    at(i).stage = std::make_unique<Stage>(std::move(*stage));
    at(i).bound = std::move(*bound);
  }

  bool verify(int i, Oracle& oracle, EvaluatePhase phase) {
    const auto alive = [this, i, phase] { hooks_progress(i, phase); };
    alive();
    Entry& e = at(i);
    const Step step = phase == EvaluatePhase::verify ? Step::V3 : Step::after;
    const auto why = std::make_shared<Status>();
    const Result<Verdict> verdict = oracle.verify(hosted_stage(*e.stage, session_, why), alive);
    if (!why->ok() || !verdict.ok()) {
      failed(i, step, why->ok() ? verdict.status() : *why);
      return false;
    }
    e.result.gate = verdict->gate;
    e.result.err_over_bound = std::max(e.result.err_over_bound, verdict->err_over_bound);
    if (!verdict->ok) settle(i, Outcome::wrong, step, (step == Step::after ? "after timing: " : "") + verdict->reason);
    return verdict->ok;
  }

  // Operands for timing, shared by all: tame numbers.
  Status make_operands() {
    if (!operands_.empty()) return {};
    SymbolValues symbols = task_.dims;
    LATHE_ASSIGN(const std::vector<OperandShape> shapes, operand_shapes(naive_, &symbols));
    for (const OperandShape& s : shapes) {
      LATHE_ASSIGN(DeviceMemory memory, DeviceMemory::map(device_, static_cast<size_t>(s.bytes()), kAlign));
      std::vector<char> data(static_cast<size_t>(s.bytes()));
      fill_tame(s.type, task_.seed + operands_.size(), data.data(), s.bytes(), s.values);
      if (const auto counted = counted_integers(shapes, operands_.size())) fill_counted(*counted, data.data(), s.span);
      LATHE_RETURN_IF_ERROR(session_->to_device(memory.data(), data.data(), data.size()));
      LATHE_RETURN_IF_ERROR(session_->finish());
      addresses_.push_back(memory.data());
      operands_.push_back(std::move(memory));
    }
    return {};
  }

  Status time_it(int i) {
    Entry& e = at(i);
    LATHE_RETURN_IF_ERROR(make_operands());
    e.addresses = addresses_;
    LATHE_ASSIGN(e.packed, pack_operands(*session_, e.stage->packed, DeviceGuard::after, e.addresses));
    LATHE_ASSIGN(e.workspace, DeviceMemory::map(device_, static_cast<size_t>(e.bound->workspace_bytes()), kAlign));
    LATHE_ASSIGN(const int number, timing_->add([&e](void* stream) {
      return e.bound->launch(e.addresses.data(), e.workspace.data(), stream);
    }));
    e.timing = number;
    timed_.push_back(i);
    LATHE_ASSIGN(DeviceTiming::Row row, timing_->screen(number));
    e.result.samples_us = std::move(row.samples);
    e.result.reference_us = row.reference_us;
    e.result.outcome = Outcome::timed;
    return session_->finish();
  }

  // A reference that fails beside it is not its fault.
  void time(int i) {
    hooks_progress(i, EvaluatePhase::time);
    at_work_ = i;
    const Status timed = time_it(i);
    if (!timed.ok()) {
      failed(at_work_, Step::after, timed);
      if (at_work_ != i)
        settle(i, Outcome::skipped, Step::none, fmt::format("the reference beside it: {}", timed.message()));
      return;
    }
    if (hooks_.settled) hooks_.settled(i, at(i).result);
  }

  // The winner once more, on other data; if it fails, the reference stays.
  Status confirm(FinalResult* out) {
    LATHE_ASSIGN(std::unique_ptr<Oracle> oracle, Oracle::create({naive_, task_.dims, 1, task_.seed + 1}, nullptr));
    if (verify(out->winner, *oracle, EvaluatePhase::confirm)) return {};
    out->winner = timed_[0];
    out->tie = true;
    out->best_us = out->default_us;
    return {};
  }

  static constexpr size_t kAlign = 256;

  const EvaluateTask task_;
  const EvaluationHooks hooks_;
  const std::function<void(int, const std::string&)> lost_;
  DeviceCodes codes_;
  const double start_;
  ir::Kernel naive_;
  search::GeneralKernel general_;
  std::shared_ptr<CudaDevice> device_;
  std::shared_ptr<DeviceSession> session_;
  std::map<std::string, Witness> witnesses_;  // by Kernel
  std::unique_ptr<Oracle> oracle_;
  std::deque<Entry> candidates_;
  std::vector<DeviceMemory> operands_;
  std::vector<void*> addresses_;
  std::unique_ptr<DeviceTiming> timing_;  // after the operands that its graphs use
  std::vector<int> timed_;                // by number of the timing
  int at_work_ = -1;                      // the candidate that is made ready for timing or was sampled last
  std::map<std::string, int> seen_;       // by scheduled Kernel
};

}  // namespace

Result<std::unique_ptr<Evaluation>> begin_device_evaluation(
    EvaluateTask task, EvaluationHooks hooks, std::function<void(int candidate, const std::string& what)> lost) {
  auto out = std::make_unique<DeviceEvaluation>(std::move(task), std::move(hooks), std::move(lost));
  LATHE_RETURN_IF_ERROR(out->begin());
  return std::unique_ptr<Evaluation>(std::move(out));
}

}  // namespace lathe::runtime
