// See online_tuner.h.
#include "runtime/live/online_tuner.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>

#include "runtime/base/clock.h"
#include "runtime/measure/work.h"
#include "runtime/measure/worker_client.h"

namespace lathe::runtime {

namespace {

constexpr int64_t kStepNs = 50'000'000;      // between two looks
constexpr int64_t kSavedNs = 20'000'000;     // CPU time that may be saved up
constexpr int64_t kIdleNs = 30'000'000'000;  // then the child goes
constexpr double kDecayS = 5;                // calls a second are averaged over about that
constexpr int64_t kMoveNs = 500'000'000;     // between looks where calls run
constexpr double kRooflineShare = 0.95;      // nobody gets closer

int64_t cpu_of(pid_t pid) {
  clockid_t clock = 0;
  return pid > 0 && clock_getcpuclockid(pid, &clock) == 0 ? clock_ns(clock) : 0;
}

std::string range_id(int kernel, const DecisionQuery& query, bool packed) {
  std::string out = fmt::format("{} {} {}", kernel, packed, query.threads);
  for (const SymbolRange& r : query.ranges) out += fmt::format(" {}..{}", r.lo, r.hi);
  return out;
}

}  // namespace

double tune_priority(double calls_per_s, double us, double floor_us, int slots, double cost) {
  return calls_per_s * std::max(0.0, us - floor_us) * 1e-6 * (1 - std::exp(-1.0 / (slots + 1))) / std::max(cost, 1e-9);
}

OnlineOptions online_options(const ir::Options& options) {
  OnlineOptions online;
  online.mode = static_cast<TuneMode>(options.integer(ir::OptionId::tune));
  online.thread = options.integer(ir::OptionId::background_threads) != 0;
  online.jobs = options.integer(ir::OptionId::background_threads) == 1;
  online.rules.cpu_share = static_cast<double>(options.integer(ir::OptionId::tune_cpu)) / 100;
  return online;
}

OnlineTuner::OnlineTuner(OnlineOptions options)
    : options_(std::move(options)), mode_(options_.mode), signal_(std::make_shared<Signal>()) {
  if (!options_.now_ns) options_.now_ns = now_ns;
  if (!options_.sleep) options_.sleep = [](int64_t ns) { std::this_thread::sleep_for(std::chrono::nanoseconds(ns)); };
}

OnlineTuner::~OnlineTuner() { stop(); }

void OnlineTuner::stop() {
  stopped_ = true;
  {
    const std::lock_guard lock(signal_->mutex);
    signal_->stop = true;
  }
  signal_->changed.notify_all();
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    thread.swap(thread_);
  }
  if (!thread.joinable()) return;
  // A forked child has no such thread.
  if (owner_ != getpid()) {
    thread.detach();
  } else {
    thread.join();
  }
}

void OnlineTuner::watch(const std::shared_ptr<Operator>& op, const PrepareRequest& request) {
  auto watched = std::make_unique<Watched>();
  watched->op = op;
  watched->request = request;
  const std::lock_guard lock(mutex_);
  arrived_.push_back(std::move(watched));
}

void OnlineTuner::take_arrived() {
  const std::lock_guard lock(mutex_);
  std::move(arrived_.begin(), arrived_.end(), std::back_inserter(watched_));
  arrived_.clear();
}

void OnlineTuner::set_mode(const std::shared_ptr<Context>& context, TuneMode mode) {
  mode_.store(mode, std::memory_order_relaxed);
  off_since_ns_ = mode == TuneMode::off ? now_ns() : 0;
  if (mode == TuneMode::off || !options_.thread) return;
  const std::lock_guard lock(mutex_);
  start_thread(context);
}

bool OnlineTuner::later(const std::shared_ptr<Context>& context, Job job) {
  if (!options_.thread || (!options_.jobs && mode() == TuneMode::off)) return false;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_ || (thread_.joinable() && owner_ != getpid())) return false;
    jobs_.push_back(std::move(job));
    start_thread(context);
  }
  {
    const std::lock_guard lock(signal_->mutex);
    signal_->job = true;
  }
  signal_->changed.notify_all();
  return true;
}

// The caller holds mutex_.
void OnlineTuner::start_thread(const std::shared_ptr<Context>& context) {
  if (thread_.joinable() || stopped_) return;
  owner_ = getpid();
  thread_ = std::thread(&OnlineTuner::run, this, std::weak_ptr<Context>(context), signal_);
}

bool OnlineTuner::run_job() {
  Job job;
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.empty()) return false;
    job = std::move(jobs_.front());
    jobs_.pop_front();
  }
  job([this] { return stopped_.load(); });
  return true;
}

// Holds the context only while it works.
void OnlineTuner::run(OnlineTuner* tuner, std::weak_ptr<Context> context, std::shared_ptr<Signal> signal) {
  work_aside();
  while (true) {
    bool more = false;
    {
      const std::shared_ptr<Context> alive = context.lock();
      if (alive == nullptr) return;
      // What never tuned has nothing to put down, either.
      more = tuner->run_job() || ((tuner->mode() != TuneMode::off || tuner->budget_ != nullptr) && tuner->step(*alive));
    }
    std::unique_lock lock(signal->mutex);
    const auto rest = more ? std::chrono::nanoseconds(0) : std::chrono::nanoseconds(kStepNs);
    if (signal->changed.wait_for(lock, rest, [&] { return signal->stop || signal->job; }) && signal->stop) return;
    signal->job = false;
  }
}

bool OnlineTuner::off(const Context& context) const {
  return stopped_ || mode() == TuneMode::off || context.seal() != Seal::off;
}

// A search that is switched off rests, and goes on if it is switched on again soon.
bool OnlineTuner::cancelled(const Context& context) const {
  const int64_t since = off_since_ns_;
  return stopped_ || context.seal() != Seal::off || (since != 0 && now_ns() - since > kIdleNs);
}

// While it is switched off, nothing is earned and calls are not counted; on again, they are, in the middle of a search
// as well.
bool OnlineTuner::paused(const Context& context) {
  const int64_t now = options_.now_ns();
  if (!off(context)) {
    if (off_from_ns_ == 0) return false;
    off_ns_ += now - std::exchange(off_from_ns_, 0);
    switch_on();
    return false;
  }
  if (off_from_ns_ == 0) off_from_ns_ = now;
  budget_->pause(now);
  switch_off();
  return true;
}

// By this thread and the child since the last time.
int64_t OnlineTuner::used_ns() {
  if (options_.cpu_ns) {
    const int64_t told = options_.cpu_ns();
    return told - std::exchange(told_cpu_ns_, told);
  }
  const int64_t thread = thread_cpu_ns(), child = worker_ == nullptr ? 0 : cpu_of(worker_->pid());
  int64_t used = options_.thread ? thread - thread_cpu_ns_ : 0;
  if (child > worker_cpu_ns_) used += child - worker_cpu_ns_;
  thread_cpu_ns_ = thread;
  worker_cpu_ns_ = child;
  return used;
}

void OnlineTuner::charge(Context& context, int64_t now) {
  (void)paused(context);
  const int64_t used = used_ns();
  budget_->charge(now, used);
  context.stats().add(Stat::k_tune_cpu_ns, used);
  keep_off(now);
}

// The thread and the child go where no calls are.
void OnlineTuner::keep_off(int64_t now) {
  if (off_ == nullptr || now - moved_ns_ < kMoveNs) return;
  moved_ns_ = now;
  cpu_set_t calls;
  CPU_ZERO(&calls);
  bool parallel = false;
  for (const auto& w : watched_) {
    const std::shared_ptr<Operator> op = w->op.lock();
    if (op == nullptr) continue;
    parallel |= w->request.threads > 1;
    for (const LiveShape& s : op->shapes().live_shapes()) s.heat->take_cpus(&calls);
  }
  off_->update(calls, parallel, worker_ == nullptr ? -1 : worker_->pid(), now);
}

// Calls of all operators are counted.
void OnlineTuner::switch_on() {
  for (const auto& w : watched_) {
    const std::shared_ptr<Operator> op = w->op.lock();
    if (!w->hot && op != nullptr) op->shapes().set_heat(options_.period);
    w->hot = true;
  }
}

// Calls are counted no more, and none is a trial.
void OnlineTuner::switch_off() {
  for (const auto& w : watched_) {
    const std::shared_ptr<Operator> op = w->op.lock();
    if (w->hot && op != nullptr) op->shapes().set_heat(0);
    w->hot = false;
  }
}

void OnlineTuner::drop_worker() {
  worker_.reset();
  worker_cpu_ns_ = 0;
}

bool OnlineTuner::step(Context& context) {
  const int64_t now = options_.now_ns();
  if (budget_ == nullptr) {
    budget_ = std::make_unique<CpuBudget>(options_.rules.cpu_share, kSavedNs, now);
    (void)used_ns();
    last_ns_ = worked_ns_ = now;
    if (options_.thread) off_ = std::make_unique<KeepOff>();
    knowledge_ = std::make_unique<SearchKnowledge>(context, SearchKnowledge::Training::never);
  }
  if (paused(context)) {
    charge(context, now);
    if (cancelled(context)) drop_worker();
    return false;
  }
  take_arrived();
  switch_on();  // new operators too
  const double dt_s = static_cast<double>(std::max<int64_t>(now - last_ns_ - std::exchange(off_ns_, 0), 0)) * 1e-9;
  if (dt_s > 0) refresh(dt_s);
  last_ns_ = now;
  const TuneMode mode = this->mode();
  CandidacyTools tools{context,
                       options_.rules,
                       paced(context),
                       [this, &context] { return cancelled(context); },
                       [this, &context] { return paused(context); },
                       options_.now_ns,
                       [this, &context](int64_t cpu_ns) {
                         budget_->charge(options_.now_ns(), cpu_ns);
                         context.stats().add(Stat::k_tune_cpu_ns, cpu_ns);
                       },
                       knowledge_.get(),
                       mode != TuneMode::replay,
                       mode == TuneMode::trials};
  bool worked = poll(tools, budget_->wait_ns(now) == 0);
  if (!worked && budget_->wait_ns(now) == 0) {
    const Choice choice = choose(context, tools.trials);
    worked = choice.priority > 0;
    if (worked) propose(tools, choice);
  }
  charge(context, options_.now_ns());
  if (worked) worked_ns_ = now;
  if (now - worked_ns_ > kIdleNs) drop_worker();
  return worked;
}

// True if the child was used: once a step.
bool OnlineTuner::poll(const CandidacyTools& tools, bool may_work) {
  bool worked = false;
  for (const auto& w : watched_) {
    for (const auto& c : w->candidacies) {
      const bool costly = c->ready();
      if (costly && (worked || !may_work)) continue;
      if (!tools.trials) {
        c->end_trial();
      } else {
        c->poll(tools);
      }
      worked |= costly;
    }
  }
  return worked;
}

void OnlineTuner::refresh(double dt_s) {
  for (size_t i = 0; i < watched_.size();) {
    Watched& w = *watched_[i];
    const std::shared_ptr<Operator> op = w.op.lock();
    if (op == nullptr) {
      watched_.erase(watched_.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    ++i;
    for (const LiveShape& s : op->shapes().live_shapes()) {
      auto rate = std::find_if(w.rates.begin(), w.rates.end(), [&](const Rate& r) { return r.heat == s.heat; });
      if (rate == w.rates.end()) {
        w.rates.push_back({s.heat, s.heat->calls(), 0});
        continue;
      }
      const uint64_t calls = s.heat->calls();
      const double fresh = static_cast<double>(calls - rate->calls) / dt_s;
      rate->per_s += (fresh - rate->per_s) * (1 - std::exp(-dt_s / kDecayS));
      rate->calls = calls;
    }
  }
}

double OnlineTuner::floor_us(Context& context, const Operator& op, const LiveShape& shape, Watched& watched) {
  const PrepareRequest& request = watched.request;
  if (!profile_read_) {
    if (ir::Result<MachineProfile> stored = parse_profile(context.find_profile()); stored.ok())
      profile_ = std::move(*stored);
    profile_read_ = true;
  }
  if (!watched.arithmetic) watched.arithmetic = op.arithmetic(request);
  return roofline_us(work_at(op.graph(), shape.call.symbols), *watched.arithmetic, profile_, context.target(),
                     request.cold, request.threads) /
         kRooflineShare;
}

OnlineTuner::Choice OnlineTuner::choose(Context& context, bool trials) {
  Choice best;
  for (size_t i = 0; i < watched_.size(); ++i) {
    Watched& w = *watched_[i];
    const std::shared_ptr<Operator> op = w.op.lock();
    if (op == nullptr) continue;
    for (const LiveShape& s : op->shapes().live_shapes()) {
      const auto rate = std::find_if(w.rates.begin(), w.rates.end(), [&](const Rate& r) { return r.heat == s.heat; });
      const double us = s.heat->mean_ns() * 1e-3;
      if (rate == w.rates.end() || us <= 0 || rate->per_s * us * 1e-6 < options_.least_load ||
          s.call.threads != w.request.threads)
        continue;
      // One Kernel of a shape is on trial at a time.
      const auto own = [&](const auto& c) { return c->heat() == s.heat; };
      const bool busy = std::any_of(w.candidacies.begin(), w.candidacies.end(),
                                    [&](const auto& c) { return own(c) && !c->settled(); });
      if (busy && trials) continue;
      const auto slots =
          static_cast<int>(std::count_if(w.candidacies.begin(), w.candidacies.end(), own)) * options_.rules.candidates;
      const double cost = 1 + static_cast<double>(slots) / options_.rules.candidates;
      const double priority = tune_priority(rate->per_s, us, floor_us(context, *op, s, w), slots, cost);
      if (priority <= best.priority) continue;
      for (size_t k = 0; k < s.body->steps.size(); ++k) {
        const auto kernel = static_cast<int>(k);
        std::string id = range_id(kernel, op->query(kernel, s.call.symbols, w.request), s.call.packed);
        if (std::find(w.covered.begin(), w.covered.end(), id) != w.covered.end()) continue;
        if (s.body->steps[k].stage->tier >= 2) {  // measured before this process
          w.covered.push_back(std::move(id));
          continue;
        }
        best = {i, kernel, s, std::move(id), priority};
        break;
      }
    }
  }
  return best;
}

void OnlineTuner::propose(const CandidacyTools& tools, const Choice& choice) {
  Watched* const w = watched_[choice.watched].get();
  const std::shared_ptr<Operator> op = w->op.lock();
  if (op == nullptr) return;
  for (const auto& c : w->candidacies) {
    if (c->heat() == choice.shape.heat) c->end_trial();  // the one that serves is watched no more
  }
  auto candidacy = std::make_unique<Candidacy>(op, w->request, choice.kernel, choice.shape);
  const bool proposed = candidacy->propose(tools);
  if (!proposed && tools.search) return;  // cancelled: it may come again
  w->covered.push_back(choice.id);
  if (proposed) w->candidacies.push_back(std::move(candidacy));
}

// What was used is paid for before more is done.
void OnlineTuner::rest(Context& context) {
  charge(context, options_.now_ns());
  for (int64_t left = budget_->wait_ns(options_.now_ns()); !cancelled(context);) {
    const bool off = paused(context);
    if (left <= 0 && !off) return;
    const int64_t ns = off ? kStepNs : std::min(left, kStepNs);
    options_.sleep(ns);
    if (!off) left -= ns;
  }
}

// One candidate at a time, and rests between them.
class OnlineTuner::Paced final : public Evaluation {
 public:
  Paced(OnlineTuner* tuner, Context& context, std::unique_ptr<Evaluation> inner)
      : tuner_(tuner), context_(context), inner_(std::move(inner)) {}

  ir::Result<std::vector<CandidateResult>> screen(const std::vector<CandidateSpec>& batch) override {
    std::vector<CandidateResult> out;
    for (const CandidateSpec& spec : batch) {
      tuner_->rest(context_);
      LATHE_ASSIGN(std::vector<CandidateResult> one, inner_->screen({spec}));
      out.insert(out.end(), std::make_move_iterator(one.begin()), std::make_move_iterator(one.end()));
    }
    return out;
  }
  ir::Result<FinalResult> decide(const std::vector<int>& finalists, int incumbent) override {
    tuner_->rest(context_);
    return inner_->decide(finalists, incumbent);
  }

 private:
  OnlineTuner* tuner_;
  Context& context_;
  std::unique_ptr<Evaluation> inner_;
};

Evaluator OnlineTuner::worker(Context& context) {
  return [this, &context](const EvaluateTask& task) -> ir::Result<std::unique_ptr<Evaluation>> {
    if (worker_ == nullptr) {
      WorkerOptions options;
      options.path = context.options().text(ir::OptionId::worker);
      options.plugin_dir = context.options().text(ir::OptionId::plugin_dir);
      options.store = &context.store();
      worker_ = std::make_unique<WorkerClient>(std::move(options));
    }
    return worker_->begin(task, [this, &context](int, EvaluatePhase) {
      charge(context, options_.now_ns());
      return !cancelled(context);
    });
  };
}

Evaluator OnlineTuner::paced(Context& context) {
  const Evaluator evaluate = options_.evaluator ? options_.evaluator : worker(context);
  return [this, &context, evaluate](const EvaluateTask& task) -> ir::Result<std::unique_ptr<Evaluation>> {
    LATHE_ASSIGN(std::unique_ptr<Evaluation> inner, evaluate(task));
    return std::unique_ptr<Evaluation>(std::make_unique<Paced>(this, context, std::move(inner)));
  };
}

std::vector<OnlineRow> OnlineTuner::rows() const {
  std::vector<OnlineRow> out;
  for (const auto& w : watched_) {
    const std::shared_ptr<Operator> op = w->op.lock();
    for (const auto& c : w->candidacies) {
      if (op != nullptr && c->promotion() != nullptr)
        out.push_back({op->graph().name, c->kernel(), c->dims(), c->promotion()->steps(), c->ratio()});
    }
  }
  return out;
}

}  // namespace lathe::runtime
