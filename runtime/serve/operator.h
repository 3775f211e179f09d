// An operator as it is served: a finished graph, its Kernels, the Stages that exist for them, and the shapes bound so
// far.
//
//   prepare()  stages: per Kernel one for each hinted range that has a decision (T2), those that warm-up found for the
//              ranges between, one for the whole range (T1), and, where constants are packed, one that reads them as
//              they lie (or the first call that needs it)
//   bound()    exact dims -> nests: a lock-free look-up once seen
//   run()      walks the nests in order
//   live       while calls run: a candidate stage beside those that serve, then in their place, and back
//              (operator_live.cc)
//
// Thread-safe once it is prepared. Stages and bound nests live as long as the operator. Its lock is held for tables
// only: nobody binds, compiles or reads a file under it, so a call that binds a shape waits for no other and for no
// promotion.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ops/lower.h"
#include "runtime/compile/compiler.h"
#include "runtime/serve/context.h"
#include "runtime/serve/dispatch.h"
#include "runtime/serve/hot_shapes.h"
#include "runtime/serve/recorded_calls.h"

namespace lathe::runtime {

using ir::SymbolRanges;

struct ServedStage {
  Stage stage;
  SymbolRanges range;
  int tier = 1;          // 0, 1, 2
  bool decided = false;  // by a record, for its range; else over the whole range
  int threads = 1;
  bool packed = true;                  // constants in their packed layout (if they have one)
  double best_us = 0, default_us = 0;  // as measured at warm-up; 0: not measured
};

// One exact call shape, ready to run.
struct BoundOp {
  struct Step {
    const ServedStage* stage = nullptr;
    BoundNest nest;
    std::vector<int> args;  // per parameter: >= 0 argument number, < 0: temporary -1-i
  };
  std::vector<Step> steps;
  std::vector<int64_t> temp_offsets;  // in the workspace
  int64_t nest_offset = 0;            // of the nests' own scratch
  int64_t workspace_bytes = 0;
  int tier = 0;
  bool empty = false;                            // no output has an element: nothing runs
  mutable std::atomic<HotShape*> heat{nullptr};  // counts the calls; null: nobody wants to know
};

struct PrepareRequest {
  int threads = 1;
  bool cold = false;
  uint32_t allowed = 0;  // NumericClass bits; 0: reassociate + contract
  bool llvm = false;     // leaves that xbyak refuses go to LLVM (warm-up), else to T0
  // Only what the next calls are likely to need: where constants are packed, what reads them as they lie is made for
  // the first such call; images are written later (LeafCache::publish).
  bool caller_waits = false;
};

inline constexpr uint32_t kDefaultAllowed = ir::kReassociate | ir::kContract;
inline uint32_t allowed_classes(const PrepareRequest& request) {
  return request.allowed == 0 ? kDefaultAllowed : request.allowed;
}

struct PrepareInfo {
  int tier = 2;
  LeafOrigin origin = LeafOrigin::memory;
  uint32_t numeric = 0;
  bool made = false;  // this call made the operator
  MissReason miss = MissReason::k_never_seen;
  bool missed = false;      // some decision was not in the store
  bool unmeasured = false;  // some decision there is a guess; `miss` says so unless another was missed
};

// The Kernel that serves constants as they lie: they are inputs like others.
ir::Kernel constants_as_inputs(const ir::Kernel& kernel, const ir::Target& target);

class Operator : public std::enable_shared_from_this<Operator> {
 public:
  static ir::Result<std::shared_ptr<Operator>> create(std::shared_ptr<Context> context, const ops::Graph& finished);

  const ops::Graph& graph() const { return graph_; }
  const ops::Lowered& lowered() const { return lowered_; }
  Context& context() { return *context_; }
  // Tensors of the graph by argument: inputs, then outputs.
  const std::vector<int>& arg_tensors() const { return arg_tensors_; }
  // The hinted combinations of symbol values; one with every symbol's largest value where nothing is hinted.
  std::vector<SymbolValues> hinted_dims() const;
  // The Kernel's problem at these dims: symbols restricted to the range that serves them.
  search::Problem problem(int kernel, const SymbolValues& dims, const PrepareRequest& request) const;
  DecisionQuery query(int kernel, const SymbolValues& dims, const PrepareRequest& request) const;
  // The same over ranges of the Kernel's symbols, in their order.
  search::Problem problem_in(int kernel, const std::vector<SymbolRange>& ranges, const SymbolValues& dims,
                             const PrepareRequest& request) const;
  DecisionQuery query_in(int kernel, const std::vector<SymbolRange>& ranges, const PrepareRequest& request) const;
  // The Kernel's problem over its whole range, for the largest hint; plain: constants as they lie.
  search::Problem general_problem(int kernel, bool packed, const PrepareRequest& request) const;

  // Before the operator is shared. MISS: sealed with ERROR (or `compiled_only`), and something is not in the store.
  ir::Result<PrepareInfo> prepare(const PrepareRequest& asked, bool compiled_only = false);

  struct Call {
    SymbolValues symbols;
    int threads = 1;
    bool packed = false;
    std::vector<ArgLayout> layouts;  // by argument; empty: all compact
  };
  ir::Result<const BoundOp*> bound(const Call& call);
  // The same without allocating, null if not bound yet: dims in the graph's order of symbols, threads, whether packed.
  const BoundOp* find(const DispatchKey& key) const { return dispatch_.find(key); }
  // Makes what prepare() left for later: before a seal, after which nothing is made.
  ir::Status complete();
  // The most workspace that any hinted dims need, constants packed or as they lie. Shapes with their constants packed,
  // where some are, stay bound: their first calls are quick.
  ir::Result<int64_t> hinted_workspace(int threads, bool packed, bool plain);
  // Bound for the caller alone: when bound() says NOMEM because it keeps no more shapes.
  ir::Result<std::unique_ptr<BoundOp>> bind_once(const Call& call);
  // args: addresses of first elements, by argument; workspace 64-byte aligned, workspace_bytes of it.
  void run(const BoundOp& op, void* const* args, void* workspace, ThreadTeam* team) const;
  // One of its steps, and the addresses that it is given.
  void run_step(const BoundOp& op, size_t step, void* const* args, void* workspace, ThreadTeam* team) const;
  void step_params(const BoundOp& op, size_t step, void* const* args, void* workspace, void** params) const;

  // Packing of constant argument `arg`; null if it is served as it lies.
  const PackedParam* packing(int arg) const;
  const std::vector<std::unique_ptr<ServedStage>>& stages(int kernel) const { return stages_[kernel]; }
  // Moves when another body serves some shape.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  // --- live: see operator_live.cc ---
  // From now on every bound shape counts its calls, or none does (period 0).
  void set_heat(uint32_t period);
  struct LiveShape {
    Call call;
    HotShape* heat = nullptr;       // lives as long as the operator
    const BoundOp* body = nullptr;  // that serves it now
  };
  std::vector<LiveShape> live_shapes();
  // Kept with the operator: calls may hold them.
  Trial* new_trial(const BoundOp* other, std::unique_ptr<RecordedCalls> recorder, int kernel);
  // problem() and query() for a Schedule that can take over from `serving` without the host noticing: constants in the
  // layouts in use.
  search::Problem live_problem(int kernel, const SymbolValues& dims, const PrepareRequest& request,
                               const ServedStage& serving) const;
  DecisionQuery live_query(int kernel, const SymbolValues& dims, const PrepareRequest& request,
                           const ServedStage& serving) const;
  static bool same_layouts(const ir::Kernel& scheduled, const ServedStage& serving);
  // Compiles it; serves nothing yet. UNSUPPORTED: other layouts, or no code. Takes the lock only to keep it.
  ir::Result<const ServedStage*> add_candidate(int kernel, const search::Problem& problem,
                                               const search::Schedule& schedule, const ServedStage& serving,
                                               const PrepareRequest& request);
  // The call with the candidate for that Kernel. UNSUPPORTED: it needs more workspace than the host was told.
  ir::Result<const BoundOp*> bind_candidate(int kernel, const ServedStage* candidate, const Call& call);
  // It serves its range, also shapes bound later; UNSUPPORTED as bind_candidate, for any shape bound so far. Calls that
  // run go on, and shapes are bound meanwhile.
  ir::Status promote(int kernel, const ServedStage* candidate);
  // What served before serves again.
  ir::Status demote(int kernel, const ServedStage* candidate);

 private:
  using Bodies = std::vector<std::vector<const ServedStage*>>;  // per Kernel
  Operator() = default;
  ir::Result<const ServedStage*> keep_stage(int kernel, const search::Problem& problem, ServedStage attributes,
                                            PrepareInfo& info);
  ir::Result<const ServedStage*> decided_stage(int kernel, const search::Problem& problem, const Decision& decision,
                                               const PrepareRequest& request, LeafPolicy policy, PrepareInfo& info,
                                               MissReason* why);
  bool add_decided(int kernel, const search::Problem& problem, const DecisionQuery& query, const Decision& decision,
                   const PrepareRequest& request, const LeafPolicy& policy, PrepareInfo& info, MissReason* why);
  // operator_general.cc
  KnownPacks known_packs(int kernel) const;
  search::Scheduled general_default(const search::Problem& problem, const PrepareRequest& request) const;
  // cut: the default's stage without leaves, if it is there already.
  ir::Result<Stage> default_stage(const search::Problem& problem, const PrepareRequest& request,
                                  const LeafPolicy& policy, const KnownPacks& known, const Stage* cut = nullptr) const;
  ir::Status add_general(int kernel, const PrepareRequest& request, bool packed, const LeafPolicy& policy,
                         PrepareInfo& info);
  ir::Status add_plain(int kernel, const PrepareRequest& request, const LeafPolicy& policy, PrepareInfo& info);
  ir::Status add_missing(int kernel, const PrepareRequest& request, const LeafPolicy& policy, PrepareInfo& info);
  struct Late;
  ir::Result<const ServedStage*> late_stage(Late& late, bool leaves);
  // Those that prepare() left for later; leaves: to be run, not only to be measured out.
  ir::Result<Bodies> late_stages(bool leaves);
  void add_between(int kernel, const PrepareRequest& request, LeafPolicy policy, PrepareInfo& info);
  std::vector<SymbolRange> ranges_at(int kernel, const SymbolValues& dims) const;
  bool decided(int kernel, const search::Problem& problem, const PrepareRequest& request) const;
  static bool holds(const SymbolRanges& range, const SymbolValues& values);
  DispatchKey dispatch_key(const Call& call) const;
  bool suits(int kernel, const ServedStage& stage, const Call& call) const;
  const ServedStage* pick(int kernel, const Call& call, const Bodies& promoted, const Bodies& late) const;
  // only: this stage for that Kernel, whatever pick() says; null: none is set.
  // The stages that prepare() made, the promoted and the late ones: neither changes while it binds.
  ir::Result<std::unique_ptr<BoundOp>> bind(const Call& call, const Bodies& promoted, const Bodies& late,
                                            int kernel = -1, const ServedStage* only = nullptr) const;
  // What calls like this one need of the late stages: nothing where constants come packed.
  ir::Result<Bodies> late_for(const Call& call);
  std::shared_ptr<const Bodies> promoted() const;
  SymbolRanges range_of(int kernel, const search::Problem& problem) const;
  ir::Status serve_by(std::shared_ptr<const Bodies> next, int kernel, const ServedStage& candidate,
                      bool within_workspace);
  // Tells f of each shape, with the lock held for a few at a time.
  template <class F>
  void each_shape(F f);

  std::shared_ptr<Context> context_;
  ops::Graph graph_;
  ops::Lowered lowered_;
  std::vector<int> arg_tensors_;
  mutable std::mutex mutex_;
  std::vector<std::vector<std::unique_ptr<ServedStage>>> stages_;  // per Kernel; they stay as prepare() leaves them
  std::deque<std::unique_ptr<BoundOp>> bound_;                     // all there ever were
  struct Kept {
    DispatchKey key;
    Call call;
    const BoundOp* body = nullptr;
    std::unique_ptr<HotShape> heat;
  };
  void heat_up(Kept& kept);
  std::deque<Kept> kept_;  // one per shape; key and call never change
  uint32_t heat_period_ = 0;
  std::vector<std::unique_ptr<ServedStage>> candidates_;
  std::vector<std::unique_ptr<RecordedCalls>> recorders_;
  std::vector<std::unique_ptr<Trial>> trials_;
  std::mutex swaps_;                        // one promotion at a time; no call takes it
  std::shared_ptr<const Bodies> promoted_;  // replaced as a whole
  // A stage for constants as they lie, which the first one that wants it makes, unlocked. Under the lock it is put
  // here, once, and it stays.
  struct Late {
    int kernel = 0;
    PrepareRequest request;
    std::unique_ptr<const ServedStage> cut;  // has no leaves: says what workspace calls need
    std::unique_ptr<const ServedStage> whole;
  };
  std::deque<Late> later_;  // as many as prepare() left
  Dispatch<BoundOp> dispatch_;
  std::atomic<uint64_t> generation_{0};
};

}  // namespace lathe::runtime
