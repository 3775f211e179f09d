// See serve_sampled.h.
#include "runtime/serve/serve_sampled.h"

#include "runtime/base/clock.h"
#include "runtime/serve/recorded_calls.h"

namespace lathe::runtime {
namespace {

// All Kernels of the call, one of them recorded.
void run_recorded(const Operator& op, const BoundOp& bound, const Trial& trial, void* const* args, void* workspace,
                  ThreadTeam* team) {
  for (size_t i = 0; i < bound.steps.size(); ++i) {
    void* params[kMaxNestBuffers];
    if (i == trial.step) op.step_params(bound, i, args, workspace, params);
    const int call = i == trial.step ? trial.recorder->begin(params) : -1;
    op.run_step(bound, i, args, workspace, team);
    if (call >= 0) trial.recorder->end(call, params);
  }
}

}  // namespace

void serve_sampled(const Operator& op, const BoundOp& bound, HotShape& heat, int place, bool may_try, void* const* args,
                   void* workspace, ThreadTeam* team) {
  Trial* trial = may_try ? heat.trial() : nullptr;
  if (trial != nullptr && trial->recorder != nullptr) {
    run_recorded(op, bound, *trial, args, workspace, team);
    return;
  }
  if (place == kWindow) return op.run(bound, args, workspace, team);
  const bool other = trial != nullptr && trial->other != nullptr && place < kBurst;
  const int64_t start = now_ns();
  op.run(other ? *trial->other : bound, args, workspace, team);
  heat.note(place, now_ns() - start, trial);
}

}  // namespace lathe::runtime
