// The shapes that an operator was called with: bound once, then found in a lock-free table. Each has a body, which
// another may replace while calls run; whatever was bound stays until the operator goes, so a call keeps what it found.
//
// Thread-safe. The lock is held for tables only: nobody binds or makes a stage under it, so a call that binds a shape
// waits for no other and for no promotion.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/serve/bound_op.h"
#include "runtime/serve/dispatch.h"

namespace lathe::runtime {

// A shape whose calls are counted.
struct LiveShape {
  CallShape call;
  HotShape* heat = nullptr;       // lives as long as the operator
  const BoundOp* body = nullptr;  // that serves it now
};

class BoundShapes {
 public:
  BoundShapes(Context& context, const Definition& definition, Stages& stages);

  // Exact dims to a body: a look-up once seen. NOMEM: it keeps no more shapes.
  ir::Result<const BoundOp*> bound(const CallShape& call);
  // The same without allocating, null if not bound yet: dims in the graph's order of symbols, threads, whether packed.
  const BoundOp* find(const DispatchKey& key) const { return dispatch_.find(key); }
  // Bound for the caller alone: when bound() says NOMEM.
  ir::Result<std::unique_ptr<BoundOp>> bind_once(const CallShape& call);
  // The most workspace that any hinted dims need, constants packed or as they lie. Shapes with their constants packed,
  // where some are, stay bound, for their first calls to be quick, unless a call would make a stage for their range.
  ir::Result<int64_t> hinted_workspace(int threads, bool packed, bool plain);
  // Moves when another body serves some shape.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  // From now on every shape counts its calls, or none does (period 0).
  void set_heat(uint32_t period);
  std::vector<LiveShape> live_shapes();

  // --- For Live, which decides what is promoted ---
  std::shared_ptr<const Bodies> promoted() const;
  // The call with the candidate for that Kernel, kept. UNSUPPORTED: it needs more workspace than the host was told.
  ir::Result<const BoundOp*> bind_candidate(int kernel, const ServedStage* candidate, const CallShape& call);
  // `next` is what is promoted from now on: new bodies for the shapes that the candidate suits, or, if one cannot be
  // had, everything as it was. One at a time.
  ir::Status serve_by(std::shared_ptr<const Bodies> next, int kernel, const ServedStage& candidate,
                      bool within_workspace);

 private:
  struct Kept {
    DispatchKey key;
    CallShape call;
    const BoundOp* body = nullptr;
    std::unique_ptr<HotShape> heat;
  };
  // By the stages that prepare() made, the promoted and the late ones: none changes while it binds. only: this stage
  // for that Kernel, whatever Stages::pick() says; null: none is set.
  ir::Result<std::unique_ptr<BoundOp>> bind(const CallShape& call, const Bodies& promoted, const Bodies& late,
                                            int kernel = -1, const ServedStage* only = nullptr) const;
  static DispatchKey dispatch_key(const CallShape& call);
  void heat_up(Kept& kept);
  // Tells f of each shape, with the lock held for a few at a time.
  template <class F>
  void each_shape(F f);

  Context& context_;
  const Definition& definition_;
  Stages& stages_;
  mutable std::mutex mutex_;
  std::deque<std::unique_ptr<BoundOp>> bound_;  // all there ever were
  std::deque<Kept> kept_;                       // one per shape; key and call never change
  uint32_t heat_period_ = 0;
  std::shared_ptr<const Bodies> promoted_;  // replaced as a whole
  Dispatch<BoundOp> dispatch_;
  std::atomic<uint64_t> generation_{0};
};

}  // namespace lathe::runtime
