// See serve_sampled.h.
#include "runtime/serve/serve_sampled.h"

#include "runtime/base/clock.h"
#include "runtime/serve/recorded_calls.h"

namespace lathe::runtime {
namespace {

// All Kernels of the call, one of them recorded.
void run_recorded(const BoundOp& bound, const Trial& trial, void* const* args, void* workspace, ThreadTeam* team) {
  for (size_t i = 0; i < bound.steps.size(); ++i) {
    void* params[kMaxNestBuffers];
    if (i == trial.step) bound.step_params(i, args, workspace, params);
    const int call = i == trial.step ? trial.recorder->begin(params) : -1;
    bound.run_step(i, args, workspace, team);
    if (call >= 0) trial.recorder->end(call, params);
  }
}

}  // namespace

void serve_sampled(const BoundOp& bound, HotShape& heat, int place, bool may_try, void* const* args, void* workspace,
                   ThreadTeam* team) {
  Trial* trial = may_try ? heat.trial() : nullptr;
  if (trial != nullptr && trial->recorder != nullptr) {
    run_recorded(bound, *trial, args, workspace, team);
    return;
  }
  if (place == kWindow) return bound.run(args, workspace, team);
  const bool other = trial != nullptr && trial->other != nullptr && place < kBurst;
  const int64_t start = now_ns();
  (other ? *trial->other : bound).run(args, workspace, team);
  heat.note(place, now_ns() - start, trial);
}

}  // namespace lathe::runtime
