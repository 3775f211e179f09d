// Warm-up for a GPU: code of every operator of a workload compiled and stored, for each Kernel over its whole range and
// for each hinted range by a Schedule of its own. With the GPU at hand the best by rank are timed on it; without, the
// first one is stored, provisional, under the environment of its kind, and the first warm-up on such a GPU replaces it.
// Prints nothing.
#pragma once
#include "runtime/cuda/device_choice.h"
#include "runtime/tune/warmup.h"

namespace lathe::runtime {

inline constexpr size_t kTimedOnDevice = 8;  // and the default

// Of the budget: wall_ms, tier (1: nothing is timed), candidates, ram, force, seed, cancelled. Failures of single
// operators are counted and reported, not returned. UNSUPPORTED: there is no compiler, and something had to be
// compiled: the report says so of each operator.
ir::Result<WarmupReport> run_device_warmup(const std::shared_ptr<Context>& context,
                                           const std::vector<ops::Workload>& items, const DeviceChoice& on,
                                           const WarmupBudget& budget, const WarmupObserver& observer = {});

}  // namespace lathe::runtime
