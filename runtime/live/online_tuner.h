// Tuning while calls run: counts what is hot, proposes candidates for the shapes where time times expected gain is
// largest, within a share of one CPU, and sees them through (candidacy.h). One thread per context, and only if the host
// asked for it. Calls never wait for it: it compiles, measures (in a child) and swaps beside them.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/aside.h"
#include "runtime/compile/arithmetic.h"
#include "runtime/live/candidacy.h"
#include "runtime/live/cpu_budget.h"
#include "runtime/measure/machine_profile.h"

namespace lathe::runtime {

class WorkerClient;

// off; recorded Schedules take over; searches too; and real calls are used for trials.
enum class TuneMode : uint8_t { off, replay, on, trials };

struct OnlineOptions {
  TuneMode mode = TuneMode::off;
  bool thread = true;  // false: step() is called by whoever wants something done
  bool jobs = false;   // the host allowed a thread whether anything is tuned or not
  uint32_t period = kSamplePeriod;
  double least_load = 0.001;              // of wall time that a shape takes: less is not worth a search
  CandidacyRules rules;                   // cpu_share among them
  Evaluator evaluator;                    // empty: the measuring worker
  std::function<int64_t()> now_ns;        // empty: the steady clock
  std::function<int64_t()> cpu_ns;        // what the tuner's thread and the worker have used; empty: as the kernel says
  std::function<void(int64_t ns)> sleep;  // empty: sleeps
};

// As the options of a context say.
OnlineOptions online_options(const ir::Options& options);

struct OnlineRow {
  std::string op;
  int kernel = 0;
  SymbolValues dims;
  std::vector<Promotion::Step> steps;
  double ratio = 1;  // candidate to incumbent on real calls
};

// Whose turn it is: seconds a second that could be saved, less for those that had their chance, over what a search
// costs.
double tune_priority(double calls_per_s, double us, double floor_us, int slots, double cost);

class OnlineTuner {
 public:
  explicit OnlineTuner(OnlineOptions options);
  ~OnlineTuner();
  OnlineTuner(const OnlineTuner&) = delete;
  OnlineTuner& operator=(const OnlineTuner&) = delete;

  // Calls of the operator are candidates for tuning, as long as it lives.
  void watch(const std::shared_ptr<Operator>& op, const PrepareRequest& request);
  // From now on; starts the thread at the first mode that needs it.
  void set_mode(const std::shared_ptr<Context>& context, TuneMode mode);
  // Runs the job on this tuner's thread, before what it tunes; starts the thread. False: the host allows none. A job
  // that has not begun when the tuner stops is dropped; one that runs is asked to end, and waited for.
  using Job = std::function<void(const std::function<bool()>& cancelled)>;
  bool later(const std::shared_ptr<Context>& context, Job job);
  TuneMode mode() const { return mode_.load(std::memory_order_relaxed); }
  // Ends the thread and the child. Nothing is tuned afterwards.
  void stop();
  // A bit of work; false: there is nothing to do now. One caller at a time.
  bool step(Context& context);
  std::vector<OnlineRow> rows() const;  // not while a step runs
  bool running() const { return thread_.joinable(); }

 private:
  struct Rate {
    HotShape* heat = nullptr;
    uint64_t calls = 0;
    double per_s = 0;
  };
  struct Watched {
    std::weak_ptr<Operator> op;
    PrepareRequest request;
    std::optional<Arithmetic> arithmetic;  // known once it is asked for
    std::vector<Rate> rates;
    std::vector<std::string> covered;  // ranges that have been proposed for, or need nothing
    std::vector<std::unique_ptr<Candidacy>> candidacies;
    bool hot = false;  // its calls are counted
  };
  struct Choice {
    size_t watched = 0;
    int kernel = 0;
    LiveShape shape;
    std::string id;
    double priority = 0;
  };
  struct Signal {
    std::mutex mutex;
    std::condition_variable changed;
    bool stop = false;
    bool job = false;  // one has come
  };

  void take_arrived();
  void start_thread(const std::shared_ptr<Context>& context);
  bool run_job();
  static void run(OnlineTuner* tuner, std::weak_ptr<Context> context, std::shared_ptr<Signal> signal);
  bool off(const Context& context) const;
  bool cancelled(const Context& context) const;
  void switch_on();
  void switch_off();
  bool paused(const Context& context);
  void drop_worker();
  bool poll(const CandidacyTools& tools, bool may_work);
  void refresh(double dt_s);
  Choice choose(Context& context, bool trials);
  void propose(const CandidacyTools& tools, const Choice& choice);
  int64_t used_ns();
  void charge(Context& context, int64_t now);
  void keep_off(int64_t now);
  double floor_us(Context& context, const Operator& op, const LiveShape& shape, Watched& watched);
  Evaluator worker(Context& context);
  Evaluator paced(Context& context);
  void rest(Context& context);
  class Paced;

  OnlineOptions options_;
  std::atomic<TuneMode> mode_;
  std::atomic<int64_t> off_since_ns_{0};  // 0: on
  std::atomic<bool> stopped_{false};
  std::shared_ptr<Signal> signal_;  // the thread's too: a forked child must not end what a thread waits for
  std::thread thread_;
  pid_t owner_ = 0;   // the process that has the thread
  std::mutex mutex_;  // arrived_, jobs_, thread_: a call that brings an operator waits for no step
  std::vector<std::unique_ptr<Watched>> arrived_;
  std::deque<Job> jobs_;
  // The rest belongs to step().
  std::vector<std::unique_ptr<Watched>> watched_;
  std::unique_ptr<WorkerClient> worker_;
  std::unique_ptr<CpuBudget> budget_;
  std::unique_ptr<SearchKnowledge> knowledge_;  // made at the first step
  std::unique_ptr<KeepOff> off_;                // null: the thread is not the tuner's
  int64_t moved_ns_ = 0;
  int64_t off_from_ns_ = 0, off_ns_ = 0;  // switched off since (0: it is on); for how long since the latest look
  int64_t last_ns_ = 0, told_cpu_ns_ = 0, thread_cpu_ns_ = 0, worker_cpu_ns_ = 0, worked_ns_ = 0;
  bool profile_read_ = false;
  MachineProfile profile_;
};

}  // namespace lathe::runtime
