// The few calls of a hot shape that are looked at: timed, copied for the worker, or served by the body on trial. Off
// the fast path; never waits, compiles or allocates.
#pragma once
#include "runtime/serve/bound_op.h"
#include "runtime/serve/hot_shapes.h"

namespace lathe::runtime {

// place: of HotShape::tick(), not -1. may_try: a trial may touch this call (not pinned, not sealed).
void serve_sampled(const BoundOp& bound, HotShape& heat, int place, bool may_try, void* const* args, void* workspace,
                   ThreadTeam* team);

// A call as the C ABI makes it: counted if the shape is, now and then looked at closely.
inline void run_counted(const BoundOp& bound, bool may_try, void* const* args, void* workspace, ThreadTeam* team) {
  HotShape* heat = bound.heat.load(std::memory_order_acquire);
  const int place = heat == nullptr ? -1 : heat->tick();
  if (place < 0) return bound.run(args, workspace, team);
  serve_sampled(bound, *heat, place, may_try, args, workspace, team);
}

}  // namespace lathe::runtime
