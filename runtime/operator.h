// An operator as it is served: a finished graph, its Kernels, the Stages that exist for them, and the shapes bound so far.
//
//   prepare()  stages: per Kernel one for each hinted range that has a decision (T2), those that warm-up found for the ranges between,
//              one for the whole range (T1), and, where constants are packed, one that reads them as they lie
//   bound()    exact dims -> nests: a lock-free look-up once seen
//   run()      walks the nests in order
//   live       while calls run: a candidate stage beside those that serve, then in their place, and back (operator_live.cc)
//
// Thread-safe. Stages and bound nests live as long as the operator.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ops/lower.h"
#include "runtime/compiler.h"
#include "runtime/context.h"
#include "runtime/dispatch.h"
#include "runtime/hot_shapes.h"
#include "runtime/recorded_calls.h"

namespace lathe::runtime {

using SymbolRanges = std::map<std::string, std::pair<int64_t, int64_t>>;

struct ServedStage {
  Stage stage;
  SymbolRanges range;
  int tier = 1;             // 0, 1, 2
  int threads = 1;
  bool packed = true;       // constants in their packed layout (if they have one)
  bool has_leaves = true;   // else bind() makes them for the first call
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
  bool empty = false;                 // an output has no element: nothing runs
  mutable std::atomic<HotShape*> heat{nullptr};  // counts the calls; null: nobody wants to know
};

struct PrepareRequest {
  int threads = 1;
  bool cold = false;
  uint32_t allowed = 0;               // NumericClass bits; 0: reassociate + contract
  bool llvm = false;                  // leaves that xbyak refuses go to LLVM (warm-up), else to T0
  // Only what the next calls are likely to need: where constants are packed, what reads them as they lie is made for the first such call;
  // images are written later (LeafCache::publish).
  bool caller_waits = false;
};

inline constexpr uint32_t kDefaultAllowed = ir::kReassociate | ir::kContract;
inline uint32_t allowed_classes(const PrepareRequest& request) { return request.allowed == 0 ? kDefaultAllowed : request.allowed; }

struct PrepareInfo {
  int tier = 2;
  LeafOrigin origin = LeafOrigin::memory;
  uint32_t numeric = 0;
  bool made = false;                  // this call made the operator
  MissReason miss = MissReason::k_never_seen;
  bool missed = false;                // some decision was not in the store
};

// The Kernel that serves constants as they lie: they are inputs like others.
ir::Kernel constants_as_inputs(const ir::Kernel& kernel);

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
  search::Problem problem_in(int kernel, const std::vector<SymbolRange>& ranges, const SymbolValues& dims, const PrepareRequest& request) const;
  DecisionQuery query_in(int kernel, const std::vector<SymbolRange>& ranges, const PrepareRequest& request) const;
  // The Kernel's problem over its whole range, for the largest hint; plain: constants as they lie.
  search::Problem general_problem(int kernel, bool packed, const PrepareRequest& request) const;

  // MISS: sealed with ERROR (or `compiled_only`), and something is not in the store.
  ir::Result<PrepareInfo> prepare(const PrepareRequest& request, bool compiled_only = false);

  struct Call {
    SymbolValues symbols;
    int threads = 1;
    bool packed = false;
    std::vector<ArgLayout> layouts;   // by argument; empty: all compact
  };
  ir::Result<const BoundOp*> bound(const Call& call);
  // The same without allocating, null if not bound yet: dims in the graph's order of symbols, threads, align_class 1 if packed.
  const BoundOp* find(const DispatchKey& key) const { return dispatch_.find(key); }
  // What prepare() left for later: before a seal, after which nothing is made.
  ir::Status complete();
  // The most workspace that any hinted dims need, constants packed or as they lie. Shapes with their constants packed, where some are, stay
  // bound: their first calls are quick.
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
    HotShape* heat = nullptr;         // lives as long as the operator
    const BoundOp* body = nullptr;    // that serves it now
  };
  std::vector<LiveShape> live_shapes() const;
  // Kept with the operator: calls may hold them.
  Trial* new_trial(const BoundOp* other, std::unique_ptr<RecordedCalls> recorder, int kernel);
  // problem() and query() for a Schedule that can take over from `serving` without the host noticing: constants in the layouts in use.
  search::Problem live_problem(int kernel, const SymbolValues& dims, const PrepareRequest& request, const ServedStage& serving) const;
  DecisionQuery live_query(int kernel, const SymbolValues& dims, const PrepareRequest& request, const ServedStage& serving) const;
  static bool same_layouts(const ir::Kernel& scheduled, const ServedStage& serving);
  // Compiles it; serves nothing yet. UNSUPPORTED: other layouts, or no code. Takes the lock only to keep it.
  ir::Result<const ServedStage*> add_candidate(int kernel, const search::Problem& problem, const search::Schedule& schedule,
                                               const ServedStage& serving, const PrepareRequest& request);
  // The call with the candidate for that Kernel. UNSUPPORTED: it needs more workspace than the host was told.
  ir::Result<const BoundOp*> bind_candidate(int kernel, const ServedStage* candidate, const Call& call);
  // It serves its range, also shapes bound later; UNSUPPORTED as bind_candidate, for any shape bound so far. Calls that run go on.
  ir::Status promote(int kernel, const ServedStage* candidate);
  // What served before serves again.
  ir::Status demote(int kernel, const ServedStage* candidate);

 private:
  Operator() = default;
  ir::Result<const ServedStage*> add_stage(int kernel, const search::Problem& problem, Stage stage, ServedStage attributes, PrepareInfo& info);
  ir::Result<const ServedStage*> add_decided(int kernel, const search::Problem& problem, const search::Schedule& schedule, const Decision& decision,
                                             const PrepareRequest& request, LeafPolicy policy, PrepareInfo& info);
  ir::Status add_general(int kernel, const PrepareRequest& request, bool packed, const LeafPolicy& policy, PrepareInfo& info);
  ir::Status add_plain(int kernel, const PrepareRequest& request, const LeafPolicy& policy, PrepareInfo& info);
  void add_between(int kernel, const PrepareRequest& request, LeafPolicy policy, PrepareInfo& info);
  std::vector<SymbolRange> ranges_at(int kernel, const SymbolValues& dims) const;
  bool decided(int kernel, const search::Problem& problem, const PrepareRequest& request) const;
  static bool holds(const SymbolRanges& range, const SymbolValues& values);
  DispatchKey dispatch_key(const Call& call) const;
  bool suits(int kernel, const ServedStage& stage, const Call& call) const;
  const ServedStage* pick(int kernel, const Call& call) const;
  // only: this stage for that Kernel, whatever pick() says; null: none is set.
  ir::Result<std::unique_ptr<BoundOp>> bind(const Call& call, int kernel = -1, const ServedStage* only = nullptr, bool leaves = true);
  // operator_general.cc
  KnownPacks known_packs(int kernel) const;
  search::Scheduled general_default(const search::Problem& problem, const PrepareRequest& request) const;
  ir::Status add_later();
  ir::Status add_late_leaves(int kernel);
  SymbolRanges range_of(int kernel, const search::Problem& problem) const;
  ir::Status rebind(int kernel, const ServedStage& candidate, bool within_workspace);
  void heat_up(size_t kept);

  std::shared_ptr<Context> context_;
  ops::Graph graph_;
  ops::Lowered lowered_;
  std::vector<int> arg_tensors_;
  std::vector<std::string> texts_;  // of the Kernels, printed: what decisions are named by
  mutable std::mutex mutex_;
  std::vector<std::vector<std::unique_ptr<ServedStage>>> stages_;  // per Kernel
  std::vector<std::unique_ptr<BoundOp>> bound_;   // all there ever were
  struct Kept {
    DispatchKey key;
    Call call;
    const BoundOp* body = nullptr;
    std::unique_ptr<HotShape> heat;
  };
  std::vector<Kept> kept_;                        // one per shape
  uint32_t heat_period_ = 0;
  std::vector<std::unique_ptr<ServedStage>> candidates_;
  std::vector<std::unique_ptr<RecordedCalls>> recorders_;
  std::vector<std::unique_ptr<Trial>> trials_;
  std::vector<std::vector<const ServedStage*>> promoted_;   // per Kernel
  std::vector<std::pair<int, PrepareRequest>> later_;       // Kernels of which prepare() left out the stage for constants as they lie
  std::vector<std::vector<std::unique_ptr<ServedStage>>> late_;  // per Kernel: those stages, made under the lock while others serve
  Dispatch<BoundOp> dispatch_;
  std::atomic<uint64_t> generation_{0};
};

}  // namespace lathe::runtime
