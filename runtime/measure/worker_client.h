// Evaluates in a child process, so that a candidate that crashes, hangs or eats memory costs that candidate only: it is
// marked, quarantined in the store, and the evaluation goes on in a new child. The child is started at the first task.
// Not thread-safe.
#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "runtime/measure/evaluate.h"
#include "runtime/measure/worker_process.h"

namespace lathe::runtime {

class Stats;
class Store;

struct WorkerOptions {
  std::string path;  // the worker; empty: find_worker()
  std::string plugin_dir;
  int memory_mb = 0;  // RLIMIT_AS; 0: none
  int cpu_s = 120;    // RLIMIT_CPU per batch; one that lives on for five times as long without it hangs, too
  // Longest silence in each phase: beyond, the candidate hangs, unless it got hardly any processor time meanwhile: then
  // five times as long. Building includes the packing; verifying the reference.
  int build_ms = 2'000, verify_ms = 10'000, time_ms = 5'000;
  std::vector<std::string> environment;  // "NAME=value": all that it has beside LD_LIBRARY_PATH
  Store* store = nullptr;                // quarantine; may be null
  Stats* stats = nullptr;                // failures, measurements, verifications; may be null
};

class WorkerClient {
 public:
  explicit WorkerClient(WorkerOptions options);
  ~WorkerClient();
  WorkerClient(const WorkerClient&) = delete;
  WorkerClient& operator=(const WorkerClient&) = delete;

  // Before work on a candidate, on the caller's thread; false gives up: the child is ended, UNSUPPORTED "cancelled".
  using Progress = std::function<bool(int candidate, EvaluatePhase)>;

  // As begin_evaluation. The client outlives it; one at a time: an older one starts over when it is asked again. IO:
  // the worker cannot be used, it is missing, does not start, dies or speaks another protocol; the message names its
  // path. TIMEOUT, of its evaluation too: the time is up, and the child has ended.
  ir::Result<std::unique_ptr<Evaluation>> begin(const EvaluateTask& task, Progress progress = {});
  // Until when answers are waited for, in milliseconds of the steady clock, whatever the child says or does not say.
  void give_up_at(int64_t ms);
  pid_t pid() const;  // of the running child; -1: none
  int spawned() const;

 private:
  struct Impl;
  class Session;
  std::unique_ptr<Impl> impl_;
};

// What names a Schedule of a Kernel in quarantine; target: the machine it was built for, of which the level counts;
// empty: the host. on_device: a GPU, whose code has an epoch of its own.
struct ObjectKey;
ObjectKey quarantine_key(const std::string& kernel_text, const std::string& schedule, const std::string& target,
                         bool on_device);

}  // namespace lathe::runtime
