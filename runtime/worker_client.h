// Evaluates tasks in a child process, so that a candidate that crashes, hangs or eats memory costs
// that candidate only: it is marked, quarantined in the store, and the task goes on without it in a
// new child. The child is started at the first task, has a process group of its own (a Ctrl-C meant
// for the host does not reach it) and ends with this object. Not thread-safe.
#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "ir/status.h"
#include "runtime/evaluate.h"

namespace lathe::runtime {

class Stats;
class Store;

struct WorkerOptions {
  std::string path;  // the worker; empty: find_worker()
  std::string plugin_dir;
  int memory_mb = 0;  // RLIMIT_AS; 0: none
  int cpu_s = 120;    // RLIMIT_CPU per task
  // Longest silence in each phase: beyond, the candidate hangs. Building includes the packing;
  // verifying the reference.
  int build_ms = 2'000, verify_ms = 10'000, time_ms = 5'000;
  Store* store = nullptr;  // quarantine; may be null
  Stats* stats = nullptr;  // failures, measurements, verifications; may be null
};

// "../libexec/lathe-worker" as seen from the library or the executable, beside it, or the build
// tree's "../tools"; empty: none.
std::string find_worker();

class WorkerClient {
 public:
  explicit WorkerClient(WorkerOptions options);
  ~WorkerClient();
  WorkerClient(const WorkerClient&) = delete;
  WorkerClient& operator=(const WorkerClient&) = delete;

  // As evaluate_in_process. UNSUPPORTED: no worker can be started (the caller counts it and serves
  // the default). progress: before work on a candidate, on the caller's thread; false gives up: the
  // child is ended, UNSUPPORTED "cancelled".
  ir::Result<EvaluateResult> evaluate(
      const EvaluateTask& task,
      const std::function<bool(int candidate, EvaluatePhase)>& progress = {});
  pid_t pid() const;  // of the running child; -1: none
  int spawned() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lathe::runtime
