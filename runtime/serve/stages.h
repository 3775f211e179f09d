// What is ready to serve the Kernels of an operator: per Kernel a stage for each hinted range with a decision, those
// stored for ranges between, and one by the default Schedule over the whole range. prepare() makes them before the
// operator is shared, and they stay. On a GPU so are those of hinted ranges with a default of their own, since calls
// there make nothing. On the CPU two kinds are late: for a hinted range with a default of its own, and, where
// constants are packed, one that reads them as they lie. Whoever wants one first makes it, unlocked, and puts it down
// under the lock, where it stays, too. Who comes second may make one as well, and takes the first one's; nobody waits
// for another.
//
//   stages.cc           what was decided, and which stage serves a call
//   default_stages.cc   those of default Schedules: over the whole range and hinted ones, also of constants as they
//                       lie
#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/compile/tensor_packing.h"
#include "runtime/serve/definition.h"
#include "runtime/serve/dispatch.h"

namespace lathe::runtime {

// The Schedule of a record, where the record is sound and the caller allows the Schedule's class; else *why says what
// it counts as (docs/store.md).
ir::Result<search::Schedule> stated_schedule(const Decision& decision, uint32_t allowed, MissReason* why);

struct ServedStage {
  Stage stage;
  SymbolRanges range;
  int tier = 1;          // 0, 1, 2
  bool decided = false;  // by a record, for its range; else by a default
  int threads = 1;
  bool packed = true;                  // constants in their packed layout (if they have one)
  double best_us = 0, default_us = 0;  // as measured at warm-up; 0: not measured
};

// Stages that serve beside those that prepare() made, by Kernel.
using Bodies = std::vector<std::vector<const ServedStage*>>;

struct PrepareInfo {
  int tier = 2;
  LeafOrigin origin = LeafOrigin::memory;
  uint32_t numeric = 0;
  bool made = false;  // this call made the operator
  MissReason miss = MissReason::k_never_seen;
  bool missed = false;      // some decision was not in the store
  bool unmeasured = false;  // some decision there is a guess; `miss` says so unless another was missed
};

// What a shape is bound for.
struct CallShape {
  SymbolValues symbols;
  int threads = 1;
  bool packed = false;             // constants in their packed layout
  std::vector<ArgLayout> layouts;  // by argument; empty: all compact
};

// What code for a GPU may be made for that request.
struct DevicePolicy;
DevicePolicy device_policy(const Context& context, const PrepareRequest& request);

class Stages {
 public:
  Stages(Context& context, const Definition& definition);

  // Before the operator is shared. MISS: sealed with ERROR (or `compiled_only`), and something is not in the store.
  ir::Result<PrepareInfo> prepare(const PrepareRequest& asked, bool compiled_only = false);
  // The same for a GPU. MISS: some code is not stored, and may not be compiled. UNSUPPORTED: some Kernel has no
  // Schedule for a GPU. DEVICE: there is no driver, no such device, or it failed. TIMEOUT, CANCELLED: of a compilation.
  ir::Result<PrepareInfo> prepare_on_device(const PrepareRequest& request);
  // Makes what prepare() left for later: before a seal, after which nothing is made.
  ir::Status complete();

  const std::vector<std::unique_ptr<ServedStage>>& of(int kernel) const { return stages_[static_cast<size_t>(kernel)]; }
  // What serves where nothing is decided: the default Schedule, or the first simpler one that is allowed and has a leaf
  // form, and code where there is any. cut: the default's stage without leaves, if it is there already.
  ir::Result<Stage> default_stage(const search::Problem& problem, const PrepareRequest& request,
                                  const LeafPolicy& policy, const KnownPacks& known, const Stage* cut = nullptr) const;
  // The stage over the whole range by the default Schedule, with packed constants; null: there is none.
  const ServedStage* whole_default(int kernel, int threads) const;
  // The default of that hinted range, if its moves are other ones than those of the whole range's.
  std::optional<search::Scheduled> own_default(int kernel, const SymbolValues& dims,
                                               const PrepareRequest& request) const;
  // Packing of constant argument `arg`; no parts if it is served as it lies. Errors as of tensor_packing().
  ir::Result<TensorPacking> packing(int arg, const SymbolValues& symbols = {}) const;

  // Its values, and its constants as they come: where some stage packs a constant, those that come packed are for
  // stages that pack.
  bool suits(int kernel, const ServedStage& stage, const CallShape& call) const;
  // The narrowest stage that suits the call; of equals, one that was promoted. Null: none.
  const ServedStage* pick(int kernel, const CallShape& call, const Bodies& promoted, const Bodies& late) const;
  // Those for constants as they lie that prepare() left for later; leaves: to be run, not only to be measured out.
  ir::Result<Bodies> late_stages(bool leaves);
  // What calls like this one need of all that was left for later.
  ir::Result<Bodies> late_for(const CallShape& call);
  // Whether late_for() would make something for a range: what serves such a call then is not what would serve it now.
  bool awaits_range(const CallShape& call) const;

 private:
  // A stage for constants as they lie, which the first one that wants it makes, unlocked. Under the lock it is put
  // here, once, and it stays.
  struct Late {
    int kernel = 0;
    PrepareRequest request;
    std::unique_ptr<const ServedStage> cut;  // has no leaves: says what workspace calls need
    std::unique_ptr<const ServedStage> whole;
  };
  // A hinted range of which nothing is decided. The first call there makes a stage, unlocked, or finds that there is
  // nothing better than what serves the whole range. Under the lock it is put here, once, and it stays.
  struct LateRange {
    int kernel = 0;
    SymbolValues dims;  // hinted
    SymbolRanges range;
    PrepareRequest request;
    bool beyond = false;  // one too many: it is only asked whether that matters
    bool tried = false;
    std::unique_ptr<const ServedStage> stage;
  };
  ir::Result<const ServedStage*> keep_stage(int kernel, const search::Problem& problem, ServedStage attributes,
                                            PrepareInfo& info);
  ir::Result<const ServedStage*> decided_stage(int kernel, const search::Problem& problem, const Decision& decision,
                                               const PrepareRequest& request, LeafPolicy policy, PrepareInfo& info,
                                               MissReason* why);
  bool add_decided(int kernel, const search::Problem& problem, const DecisionQuery& query, const Decision& decision,
                   const PrepareRequest& request, const LeafPolicy& policy, PrepareInfo& info, MissReason* why);
  bool decided(int kernel, const search::Problem& problem, const PrepareRequest& request) const;
  void add_between(int kernel, const PrepareRequest& request, LeafPolicy policy, PrepareInfo& info);
  struct OnDevice;
  ir::Status add_on_device(int kernel, bool packed, const PrepareRequest& request, const OnDevice& on,
                           PrepareInfo& info);
  void add_range_on_device(int kernel, const search::Problem& problem, const PrepareRequest& request,
                           const OnDevice& on, PrepareInfo& info);
  ir::Result<bool> add_decided_on_device(int kernel, const search::Problem& problem, const DecisionQuery& query,
                                         const Decision& decision, const OnDevice& on, PrepareInfo& info,
                                         MissReason* why);
  // default_stages.cc
  KnownPacks known_packs(int kernel) const;
  search::Scheduled general_default(const search::Problem& problem, const PrepareRequest& request) const;
  ir::Status add_general(int kernel, const PrepareRequest& request, bool packed, const LeafPolicy& policy,
                         PrepareInfo& info);
  ir::Status add_plain(int kernel, const PrepareRequest& request, const LeafPolicy& policy, PrepareInfo& info);
  ir::Status add_missing(int kernel, const PrepareRequest& request, const LeafPolicy& policy, PrepareInfo& info);
  ir::Result<const ServedStage*> late_stage(Late& late, bool leaves);
  // Of hinted ranges.
  bool may_differ(int kernel, const SymbolValues& dims) const;
  void left_to_whole(const SymbolRanges& range, std::string_view why) const;
  void add_range(int kernel, const SymbolValues& dims, const PrepareRequest& request);
  bool wants(const LateRange& late, const CallShape& call) const;
  ir::Result<std::unique_ptr<const ServedStage>> make_range(const LateRange& late) const;
  const ServedStage* range_stage(LateRange& late);

  Context& context_;
  const Definition& definition_;
  std::vector<std::vector<std::unique_ptr<ServedStage>>> stages_;  // per Kernel; they stay as prepare() leaves them
  mutable std::mutex mutex_;                                       // of what later_ and ranges_ hold
  std::deque<Late> later_;                                         // as many as prepare() left
  std::deque<LateRange> ranges_;                                   // likewise
};

}  // namespace lathe::runtime
