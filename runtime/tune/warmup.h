// Warm-up: every operator of a workload prepared for serving, its hinted shapes searched (T2), everything stored, so
// that a later process neither compiles nor searches. Resumable: what is stored already is not done again. Prints
// nothing.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/manifest.h"
#include "runtime/serve/context.h"
#include "runtime/serve/served_operators.h"
#include "search/strategy/tuning_spec.h"

namespace lathe::runtime {

// A budget below it measures no profile of the machine and trains no model of a family: either takes seconds.
inline constexpr double kUnhurriedMs = 10'000;

struct WarmupBudget {
  double wall_ms = 100'000;   // of searching, shared out by weight; 0: nothing is searched, nothing decided
  int tier = 2;               // 1: compile the defaults, search nothing
  int candidates = 16;        // most per Kernel and range, the default among them
  int first_look = 0;         // of them before any Kernel gets more; 0: all at once
  int quantum = 4;            // then so many at a time, where they promise most
  int measurements = 0;       // of all Kernels; 0: no limit but the others
  int shard = 0, shards = 1;  // of the Kernels and ranges, only this share
  const search::TuningSpec* spec = nullptr;  // outlives the call; what it matches is not searched
  bool check_whole = false;                  // in the end: all tuned against none; what costs the whole is dropped
  int64_t ram = int64_t{4} << 30;            // shapes whose operands need more are not timed
  bool force = false;                        // search again what is stored
  int threads = 0;                           // > 0: instead of the workload's
  uint64_t seed = 0;
  std::function<bool()> cancelled;  // asked often; may be empty
};

struct WarmupRow {
  const ops::Workload* item = nullptr;  // of run_warmup's argument
  SymbolValues dims;                    // under kernel names
  std::string dtype;
  int threads = 1;
  int tier = 1;
  LeafOrigin origin = LeafOrigin::memory;
  std::string schedule;           // recipe and knobs of each Kernel, "; " between
  double us = 0, default_us = 0;  // sums over the Kernels; 0: not measured
  double of_roofline = 0;         // by the machine's profile; 0: not measured
  double first_resolve_us =
      0;             // CPU time of the caller that resolves the operator where nothing is stored, writing it left out
  bool tie = false;  // nothing beat the defaults
  std::string verdict;        // of the search: won, tie, stored, pinned, ...; the least settled of its Kernels
  int measurements = 0;       // candidates timed
  double search_ms = 0;       // wall clock of the searches
  std::vector<double> curve;  // us, best so far after each, of an operator of one Kernel
  std::vector<std::pair<double, double>>
      expected;                 // of the same: us as the search expected a candidate, and as measured
  double flops = 0, bytes = 0;  // of one call, bytes compulsory
  double weight = 1;            // calls
  std::string note;             // why it is not T2, if it is not
};

struct WarmupReport {
  int ops = 0;
  int rows = 0;
  int from_store = 0;  // operators for which nothing was compiled or searched
  int64_t compiled_xbyak = 0, compiled_llvm = 0, compiled_nvrtc = 0;
  int searches = 0;
  int measurements = 0;                    // candidates timed
  int further = 0;                         // samples beyond three of a candidate
  int failed = 0;                          // operators or Kernels that cannot be served as they should
  int rejected = 0;                        // candidates that were wrong, crashed or hung
  std::map<std::string, int> rejected_by;  // refused, duplicate, wrong ...
  int promoted = 0;                        // Kernels that got a Schedule better than their default
  int ties = 0;
  double gain_geomean = 1;              // default over tuned time, of what was measured
  double default_us = 0, tuned_us = 0;  // weighted sums, of what was measured
  int unmeasured = 0;                   // Kernels left to their default: no worker, no memory
  int no_worker = 0;                    // of them, for lack of a worker; failed, too
  int pending = 0;                      // Kernels not searched: budget or cancel
  int between = 0;                      // ranges that nobody hinted: they got their own defaults
  bool cancelled = false;
  // The check of the whole: weighted times of its groups, the groups that the machine allowed to judge, calls it could
  // not run.
  double checked_default_us = 0, checked_us = 0;
  int check_groups = 0, check_valid_groups = 0, check_left_out = 0, dropped = 0;
  std::string check_note;  // why there was none
  double first_resolve_us_max = 0;
  double wall_ms = 0;
  std::string digest;  // of the Schedules that serve, whatever their times; 16 hex digits
};

struct WarmupProgress {
  const ops::Workload* item = nullptr;
  SymbolValues dims;
  double weight_done = 0;              // 0..1
  double best_us = 0, default_us = 0;  // of the search just finished
  double wall_ms = 0;
};

struct WarmupObserver {
  std::function<void(const WarmupRow&)> row;            // one per operator and hinted dims, when final
  std::function<void(const WarmupProgress&)> progress;  // after each search
  std::function<void(const ops::Workload& item, const ir::Status&)> failed;
};

// Failures of single operators are counted and reported, not returned.
ir::Result<WarmupReport> run_warmup(const std::shared_ptr<Context>& context, const std::vector<ops::Workload>& items,
                                    const WarmupBudget& budget, const WarmupObserver& observer = {});

// "panel.1 kc=512 mr=8 nr=32"; "naive" for a Schedule without moves.
std::string schedule_summary(const search::Schedule& schedule);
// The compiler's library is mapped into this process.
bool llvm_mapped();

// The same for one operator, within the time left.
ir::Result<Tuned> tune_operator(const std::shared_ptr<Context>& context, const ops::Graph& graph,
                                const PrepareRequest& request, double left_ms);

}  // namespace lathe::runtime
