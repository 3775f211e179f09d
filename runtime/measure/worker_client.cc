// See worker_client.h. What was measured is kept on this side. A child that ends takes its session with it: a new one
// is told the task, times the reference again and goes on with what is left; finalists it does not know are built and
// verified there before they are decided on.
#include "runtime/measure/worker_client.h"

#include <signal.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "ir/analysis/analysis.h"
#include "jit/cuda/text/cuda_text.h"
#include "jit/host/host_cpu.h"
#include "runtime/base/stats.h"
#include "runtime/measure/worker_process.h"
#include "runtime/measure/worker_protocol.h"
#include "runtime/store/key.h"
#include "runtime/store/store.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;
using search::Outcome;

ObjectKey quarantine_key(const std::string& kernel_text, const std::string& schedule, const std::string& target,
                         bool on_device) {
  const std::string level =
      target.empty() ? ir::isa_name(jit::host_target().level) : target.substr(0, target.find(' '));
  const int64_t epoch = on_device ? jit::kCudaTextEpoch : kCodegenEpoch;
  const std::string text = fmt::format("codegen {}\nisa {}\n{}\n{}", epoch, level, kernel_text, schedule);
  return {ObjectKind::k_quarantine, "", ir::content_hash(text.data(), text.size()).substr(0, 40)};
}

namespace {

// Silence of a child that was hardly given a processor is not its own: it may last this many times as long.
constexpr int kStarvedFactor = 5;

}  // namespace

struct WorkerClient::Impl {
  WorkerOptions options;
  WorkerProcess process;
  int64_t sessions = 0;  // begun
  int64_t current = -1;  // known to the child
  int64_t give_up = INT64_MAX;

  int timeout(EvaluatePhase phase) const {
    return phase == EvaluatePhase::build  ? options.build_ms
           : phase == EvaluatePhase::time ? options.time_ms
                                          : options.verify_ms;
  }

  struct Answer {
    bool done = false;
    FinalResult decision;
    // Not done: the child ended. Who was at work, in its numbers; -1: unknown.
    int candidate = -1;
    EvaluatePhase phase = EvaluatePhase::build;
    Outcome outcome = Outcome::crashed;
    std::string reason;
    bool killed = false;  // by a signal that no candidate sends itself
  };
  // The worker cannot be used.
  Status unusable(std::string_view why) const {
    const std::string path = options.path.empty() ? find_worker() : options.path;
    return ir::make_error(ir::Code::kIO, "{}{}{}", path, path.empty() ? "" : ": ", why);
  }
  Status out_of_time() {
    process.stop();
    current = -1;
    return ir::make_error(ir::Code::kTIMEOUT, "the time for measuring is up");
  }
  Result<Answer> ask(const std::string& request, const Progress& progress,
                     const std::function<void(int, CandidateResult)>& settled);
};

Result<WorkerClient::Impl::Answer> WorkerClient::Impl::ask(const std::string& request, const Progress& progress,
                                                           const std::function<void(int, CandidateResult)>& settled) {
  Answer out;
  out.phase = EvaluatePhase::verify;  // generous until something is heard
  const int64_t begun = WorkerProcess::now_ms(), longest = begun + int64_t{kStarvedFactor} * 1000 * options.cpu_s;
  const Status sent = process.send(request, std::min(give_up, begun + int64_t{kStarvedFactor} * timeout(out.phase)));
  bool asked = false;
  std::string hung;  // why it was asked
  WorkerMessage last_words;
  int64_t since = WorkerProcess::now_ms(), deadline = since + timeout(out.phase), cpu = process.cpu_ms();
  while (true) {
    if (WorkerProcess::now_ms() >= give_up) return out_of_time();
    if (sent.code() == ir::Code::kTIMEOUT) process.end();
    Result<std::string> line =
        sent.ok() ? process.receive(std::min({deadline, give_up, longest})) : Result<std::string>(sent);
    if (line.ok() && WorkerProcess::now_ms() >= longest) {
      hung = fmt::format("no end after {} ms", WorkerProcess::now_ms() - begun);
      asked = true;
      process.end();
      line = ir::unsupported("the worker comes to no end");
    }
    if (!line.ok()) {
      current = -1;
      out.reason = process.end_of_child(&out.killed);
      if (last_words.kind == WorkerMessage::Kind::fault) {
        out.reason = last_words.signal == 0 ? last_words.what : strsignal(last_words.signal);
        if (last_words.signal != 0 && !last_words.what.empty()) out.reason += " at " + last_words.what;
        if (last_words.candidate >= 0) out.candidate = last_words.candidate;
        out.killed = !asked && last_words.signal == SIGTERM;
      }
      if (asked) {
        out.outcome = Outcome::hung;
        out.reason = hung;
      }
      return out;
    }
    if (line->empty()) {
      const int64_t now = WorkerProcess::now_ms();
      if (now < deadline) continue;  // the time is up
      if (!asked && process.cpu_ms() - cpu < timeout(out.phase) / 2 &&
          now - since < int64_t{kStarvedFactor} * timeout(out.phase)) {
        deadline = now + timeout(out.phase) / 2;
        continue;
      }
      // Silence: ask where it is, then end it.
      if (asked)
        process.end();
      else
        process.ask();
      if (!asked) hung = fmt::format("no sign of life for {} ms in phase {}", now - since, phase_name(out.phase));
      asked = true;
      deadline = now + WorkerProcess::kGraceMs;
      continue;
    }
    Result<WorkerMessage> message = decode_message(*line);
    if (!message.ok()) {
      process.stop();
      current = -1;
      return unusable(message.status().message());
    }
    switch (message->kind) {
      case WorkerMessage::Kind::progress:
        out.candidate = message->candidate;
        out.phase = message->phase;
        if (!asked) {
          since = WorkerProcess::now_ms();
          deadline = since + timeout(out.phase);
          cpu = process.cpu_ms();
        }
        if (progress && !progress(message->candidate, out.phase)) {
          process.stop();
          current = -1;
          return ir::unsupported("cancelled");
        }
        break;
      case WorkerMessage::Kind::settled:
        settled(message->candidate, std::move(message->result));
        break;
      case WorkerMessage::Kind::fault:
        last_words = *message;
        break;
      case WorkerMessage::Kind::error:
        if (message->code == ir::Code::kDEVICE) {  // which may have failed for all that child does
          process.stop();
          current = -1;
        }
        return ir::make_error_impl(message->code, message->what);
      case WorkerMessage::Kind::decision:
      case WorkerMessage::Kind::done:
        out.done = true;
        out.decision = std::move(message->decision);
        return out;
    }
  }
}

class WorkerClient::Session final : public Evaluation {
 public:
  Session(Impl* impl, EvaluateTask task, Progress progress)
      : impl_(impl), task_(std::move(task)), progress_(std::move(progress)), id_(impl->sessions++) {}

  // A child that knows the task and has timed the reference.
  Status join() {
    while (true) {
      const WorkerOptions& o = impl_->options;
      if (WorkerProcess::now_ms() >= impl_->give_up) return impl_->out_of_time();
      const Status started = impl_->process.start(o.path, o.memory_mb, o.cpu_s, o.plugin_dir, o.environment);
      if (!started.ok()) return ir::make_error(ir::Code::kIO, "{}", started.message());
      if (impl_->current == id_) return {};
      in_child_.clear();
      LATHE_ASSIGN(const Impl::Answer begun, impl_->ask(encode_begin(task_), {}, [](int, const CandidateResult&) {}));
      if (begun.done) {
        impl_->current = id_;
        if (reference_ < 0) return {};
        LATHE_ASSIGN(const Impl::Answer timed, submit({reference_}, false, true));
        if (timed.done) return {};
        LATHE_RETURN_IF_ERROR(blame(timed));
        continue;
      }
      if (++lost_ > 1) return impl_->unusable("ends before it starts: " + begun.reason);
    }
  }

  Result<std::vector<CandidateResult>> screen(const std::vector<CandidateSpec>& batch) override {
    const size_t first = entries_.size();
    for (const CandidateSpec& spec : batch) {
      entries_.push_back({spec, {}, false});
      check_quarantine(&entries_.back());
    }
    while (true) {
      LATHE_RETURN_IF_ERROR(join());
      std::vector<int> left;
      for (size_t i = first; i < entries_.size(); ++i) {
        if (!entries_[i].settled) left.push_back(static_cast<int>(i));
      }
      if (left.empty()) break;
      LATHE_ASSIGN(const Impl::Answer answer, submit(left, true));
      if (!answer.done) {
        LATHE_RETURN_IF_ERROR(blame(answer));
        continue;
      }
      for (const int i : left) entries_[static_cast<size_t>(i)].settled = true;
      break;
    }
    std::vector<CandidateResult> out;
    for (size_t i = first; i < entries_.size(); ++i) {
      if (reference_ < 0 && entries_[i].result.outcome == Outcome::timed) reference_ = static_cast<int>(i);
      count(entries_[i].result);
      out.push_back(entries_[i].result);
    }
    return out;
  }

  Result<FinalResult> decide(const std::vector<int>& finalists, int incumbent) override {
    FinalResult out;
    if (reference_ < 0) return out;
    while (true) {
      LATHE_RETURN_IF_ERROR(join());
      std::vector<int> chosen, unknown;
      const auto take = [&](int i) {
        if (i < 0 || i >= static_cast<int>(entries_.size()) ||
            rejected(entries_[static_cast<size_t>(i)].result.outcome))
          return;
        if (std::find(chosen.begin(), chosen.end(), i) != chosen.end()) return;
        chosen.push_back(i);
        if (number_of(i) < 0) unknown.push_back(i);
      };
      for (const int i : finalists) take(i);
      take(incumbent);
      if (!unknown.empty()) {
        LATHE_ASSIGN(const Impl::Answer admitted, submit(unknown, false));
        if (!admitted.done) {
          LATHE_RETURN_IF_ERROR(blame(admitted));
          continue;
        }
      }
      std::vector<int> numbers;
      for (const int i : chosen) {
        if (i != incumbent) numbers.push_back(number_of(i));
      }
      LATHE_ASSIGN(Impl::Answer answer, ask(encode_decide(numbers, incumbent < 0 ? -1 : number_of(incumbent)), true));
      if (!answer.done) {
        LATHE_RETURN_IF_ERROR(blame(answer));
        continue;
      }
      LATHE_RETURN_IF_ERROR(translate(&answer.decision));
      for (const auto& [i, result] : answer.decision.finalists) entries_[static_cast<size_t>(i)].result = result;
      return std::move(answer.decision);
    }
  }

 private:
  struct Entry {
    CandidateSpec spec;
    CandidateResult result;
    bool settled = false;
  };

  int number_of(int i) const {
    const auto at = std::find(in_child_.begin(), in_child_.end(), i);
    return at == in_child_.end() ? -1 : static_cast<int>(at - in_child_.begin());
  }

  void check_quarantine(Entry* e) {
    Store* store = impl_->options.store;
    if (store == nullptr) return;
    const Lookup known =
        store->find(quarantine_key(task_.kernel_text, e->spec.schedule, task_.target, task_.device != 0));
    if (!known.found) return;
    const std::string reason = known.bytes.substr(0, known.bytes.find('\n'));
    e->result.outcome = reason.rfind("hung", 0) == 0 ? Outcome::hung : Outcome::crashed;
    e->result.step = Step::V0;
    e->result.reason = "quarantined: " + reason;
    e->settled = true;
  }

  // Sends candidates to the child, to be screened or only to be known. keep: their results count.
  Result<Impl::Answer> submit(const std::vector<int>& which, bool keep, bool time = false) {
    std::vector<CandidateSpec> batch;
    for (const int i : which) {
      batch.push_back(entries_[static_cast<size_t>(i)].spec);
      batch.back().time = batch.back().time && (keep || time);
      in_child_.push_back(i);
    }
    return ask(encode_screen(batch), keep);
  }

  Result<Impl::Answer> ask(const std::string& request, bool keep) {
    Progress progress;
    if (progress_) {
      progress = [this](int number, EvaluatePhase phase) {
        const bool known = number >= 0 && number < static_cast<int>(in_child_.size());
        return !known || progress_(in_child_[static_cast<size_t>(number)], phase);
      };
    }
    return impl_->ask(request, progress, [&](int number, CandidateResult result) {
      if (!keep || number < 0 || number >= static_cast<int>(in_child_.size())) return;
      Entry& e = entries_[static_cast<size_t>(in_child_[static_cast<size_t>(number)])];
      e.result = std::move(result);
      e.settled = true;
    });
  }

  // The child ended: the candidate at hand is rejected for good, unless somebody else ended it, once.
  Status blame(const Impl::Answer& answer) {
    const bool known = answer.candidate >= 0 && answer.candidate < static_cast<int>(in_child_.size());
    const int i = known ? in_child_[static_cast<size_t>(answer.candidate)] : -1;
    if ((answer.killed || !known) && ++kills_[i] == 1) return {};
    if (!known) return impl_->unusable("ends before it starts: " + answer.reason);
    Entry& e = entries_[static_cast<size_t>(i)];
    e.settled = true;
    e.result.outcome = answer.outcome;
    e.result.step = answer.phase == EvaluatePhase::build    ? Step::V0
                    : answer.phase == EvaluatePhase::verify ? Step::V3
                                                            : Step::after;
    e.result.reason = answer.reason;
    if (i == reference_)
      return ir::internal_error("the reference of the timing {}: {}", outcome_name(answer.outcome), answer.reason);
    if (Store* store = impl_->options.store) {
      // A store that cannot be written to keeps it in memory.
      (void)store
          ->put(quarantine_key(task_.kernel_text, e.spec.schedule, task_.target, task_.device != 0),
                fmt::format("{}: {}\n{}\n{}", outcome_name(answer.outcome), answer.reason, e.spec.schedule,
                            task_.kernel_text))
          .ok();
    }
    return {};
  }

  Status translate(FinalResult* decision) const {
    const auto known = [&](int n) { return n >= 0 && n < static_cast<int>(in_child_.size()); };
    if (!known(decision->winner)) return ir::internal_error("the worker answered another task");
    decision->winner = in_child_[static_cast<size_t>(decision->winner)];
    for (auto& [number, result] : decision->finalists) {
      if (!known(number)) return ir::internal_error("the worker answered another task");
      number = in_child_[static_cast<size_t>(number)];
      // What a second child knows without having screened it.
      const CandidateResult& before = entries_[static_cast<size_t>(number)].result;
      if (result.outcome != Outcome::skipped) continue;
      const double lo = result.interval_lo, hi = result.interval_hi;
      result = before;
      result.interval_lo = lo;
      result.interval_hi = hi;
    }
    return {};
  }

  void count(const CandidateResult& c) {
    Stats* stats = impl_->options.stats;
    if (stats == nullptr) return;
    stats->add(Stat::k_failures, rejected(c.outcome));
    stats->add(Stat::k_verifications, c.outcome == Outcome::wrong || c.outcome == Outcome::timed);
    stats->add(Stat::k_measurements, c.outcome == Outcome::timed);
  }

  Impl* const impl_;
  const EvaluateTask task_;
  const Progress progress_;
  const int64_t id_;
  std::vector<Entry> entries_;
  std::vector<int> in_child_;  // by the child's number
  std::map<int, int> kills_;   // ended from outside while this one was at hand
  int reference_ = -1;
  int lost_ = 0;
};

WorkerClient::WorkerClient(WorkerOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->options = std::move(options);
}
WorkerClient::~WorkerClient() = default;
void WorkerClient::give_up_at(int64_t ms) { impl_->give_up = ms; }
pid_t WorkerClient::pid() const { return impl_->process.pid(); }
int WorkerClient::spawned() const { return impl_->process.spawned(); }

Result<std::unique_ptr<Evaluation>> WorkerClient::begin(const EvaluateTask& task, Progress progress) {
  auto session = std::make_unique<Session>(impl_.get(), task, std::move(progress));
  LATHE_RETURN_IF_ERROR(session->join());
  return std::unique_ptr<Evaluation>(std::move(session));
}

}  // namespace lathe::runtime
