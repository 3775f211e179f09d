// The searches of a workload: one task per Kernel and hinted shape, measurements dealt out by a TaskScheduler, tuning
// specs applied, shards divided, the whole checked at the end. Records what it finds as it goes; prints nothing. Not
// thread-safe.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/manifest.h"
#include "runtime/measure/machine_profile.h"
#include "runtime/measure/worker_client.h"
#include "runtime/tune/search_knowledge.h"
#include "runtime/tune/task_scheduler.h"
#include "runtime/tune/warmup.h"
#include "runtime/tune/warmup_search.h"

namespace lathe::runtime {

// An operator of the workload.
struct SearchedOp {
  const ops::Workload* item = nullptr;
  std::shared_ptr<Operator> op;  // prepared
  PrepareRequest request;
};

enum class TaskVerdict : uint8_t {
  pending,    // budget or cancel came first
  elsewhere,  // another shard's
  stored,     // decided before, nothing done
  won,
  tie,         // measured
  pinned,      // by a tuning spec
  unmeasured,  // no worker, no memory: a similar shape's winner or the default, provisionally
  dropped,     // won, and cost the whole workload: the default serves
  failed,
};
const char* verdict_name(TaskVerdict verdict);

struct WorkloadTask {
  size_t op = 0;  // the first of those that share the decision, by number of add()
  int kernel = 0;
  SymbolValues dims;
  double weight = 1;  // calls of all that share it
  TaskVerdict verdict = TaskVerdict::pending;
  SearchOutcome outcome;      // of the last quantum; measurements of all
  std::vector<double> curve;  // us, best so far after each measurement
  double search_ms = 0;       // wall clock of all its quanta
  ir::Status failure;
};

class WorkloadSearch {
 public:
  WorkloadSearch(const std::shared_ptr<Context>& context, const WarmupBudget& budget, const MachineProfile& profile);

  void add(const SearchedOp& op);
  // until: milliseconds of the steady clock at which the wall budget ends. progress: after each quantum, with the share
  // done.
  void run(double until_ms, const std::function<void(const WorkloadTask&, double done)>& progress);
  // What there was no time for serves by its default, from the store; another run searches it.
  void serve_pending();
  // The same without a search, for hinted ranges whose default is another than the one a first call waits for, or than
  // the whole range's, since a sealed process makes none; the operators that got one.
  std::vector<size_t> serve_defaults();
  // Kernels of one symbol that is hinted at several lengths: the ranges that nobody hinted, up to four times the
  // largest hint, serve by their own defaults, from the store. How many decisions that made.
  int serve_unhinted();
  // Runs the workload untuned against tuned and replaces what costs the whole by its default. Fills in the report's
  // fields of the check.
  ir::Status check(WarmupReport* report);

  const std::vector<WorkloadTask>& tasks() const { return tasks_; }
  // What decides this Kernel of an operator at these dims.
  const WorkloadTask& task(size_t op, int kernel, const SymbolValues& dims) const;

 private:
  bool cancelled() const { return budget_.cancelled && budget_.cancelled(); }
  bool stored(const WorkloadTask& t);
  ScheduledTask estimate(const WorkloadTask& t) const;
  void search(size_t index, int measurements, double allowance_ms);
  SearchTask search_task(const WorkloadTask& t) const;
  std::string default_text(const SearchTask& task) const;
  bool own_range(const WorkloadTask& t, const SearchTask& task) const;
  int serve_unhinted(size_t number, int kernel);

  const std::shared_ptr<Context>& context_;
  const WarmupBudget& budget_;
  const MachineProfile& profile_;
  std::string query_id(size_t op, int kernel, const SymbolValues& dims) const;

  std::vector<SearchedOp> ops_;
  std::vector<WorkloadTask> tasks_;
  std::map<std::string, size_t> by_id_;
  std::unique_ptr<TaskScheduler> scheduler_;
  WorkerClient worker_;
  SearchKnowledge knowledge_;
  std::map<std::string, std::optional<search::Schedule>>
      winners_;  // by naive Kernel: the last Schedule that was measured best
};

}  // namespace lathe::runtime
