// A context: everything hangs off it. Options, target, store, leaves, counters, threads, the seal, and the decisions
// made so far. Shared by handles; thread-safe.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/base/options.h"
#include "ir/base/status.h"
#include "ir/base/target.h"
#include "runtime/base/stats.h"
#include "runtime/base/tasks.h"
#include "runtime/compile/executable.h"
#include "runtime/compile/leaf_cache.h"
#include "runtime/store/decision.h"
#include "runtime/store/key.h"
#include "runtime/store/store.h"
#include "runtime/walk/threads.h"

namespace lathe::runtime {

class CudaDevice;
class DeviceCodes;

enum class Seal : uint8_t { off, fallback, warn, error };

// What a decision is wanted for: one Kernel over a range of its symbols, on this context's machine or on a GPU.
struct DecisionQuery {
  std::string structure;            // of its group (ops/structure.h)
  std::vector<SymbolRange> ranges;  // of its symbols, in their order
  int threads = 1;
  bool cold = false;
  uint32_t allowed = 0;
  std::shared_ptr<const DecisionHome> home;  // null: this context's machine
};

// What binds an Executable to a shape: its bind(), or a test's.
using Binder = std::function<ir::Result<std::unique_ptr<const BoundExecutable>>(
    const Executable&, const SymbolValues&, const std::vector<ArgLayout>&, int threads)>;

struct ContextConfig {
  ir::Options options;
  std::vector<LayerSpec> layers;  // empty: by the placement rules
  int own_threads = 0;            // > 1: a team of Lathe's own, and tasks on as many threads
  std::vector<int> own_cpus;      // where its threads run; empty: as the thread that first uses it
  LeafCompiler compiler;          // tests; empty: the back ends
  Binder binder;                  // tests; empty: Executable::bind
};

class Context : public std::enable_shared_from_this<Context> {
 public:
  static ir::Result<std::shared_ptr<Context>> create(ContextConfig config);

  const ir::Options& options() const { return config_.options; }
  const ir::Target& target() const { return target_; }
  Store& store() { return *store_; }
  LeafCache& leaves() { return *leaves_; }
  Stats& stats() { return stats_; }
  const Stats& stats() const { return stats_; }
  ThreadTeam* team() { return team_.get(); }   // for calls; null: the caller's thread
  TaskArena* tasks() { return tasks_.get(); }  // for coarse work; null: the caller's thread
  const Binder& binder() const { return config_.binder; }
  // As lathe_policy.device counts them: 1 is the first GPU. No driver is opened before.
  ir::Result<std::shared_ptr<CudaDevice>> device(int number) const;
  DeviceCodes& device_codes() { return *device_codes_; }

  Seal seal() const { return seal_.load(std::memory_order_relaxed); }
  void set_seal(Seal seal);
  // What leaves may do now: nothing is generated once sealed.
  LeafPolicy leaf_policy() const;

  // From memory, then the store. One that does not parse, belongs to another key or was made by another epoch of the
  // code is a counted miss.
  std::optional<Decision> find_decision(const DecisionQuery& query, MissReason* reason = nullptr);
  // Says that a decision that was found cannot serve: counted, and from then on not found in this process, so that a
  // search replaces it.
  void reject_decision(const DecisionQuery& query, MissReason reason);
  // Fills in key, environment, epoch and the liberties that the Schedules state; publishes to memory and to the first
  // writable layer.
  void record_decision(const DecisionQuery& query, Decision decision);
  // The ranges that decisions are stored for, whatever the query's own; of its Kernel on its machine.
  std::vector<std::vector<SymbolRange>> decision_ranges(DecisionQuery query);
  void forget_decision(const DecisionQuery& query);
  // Hash of the decision environment: rows and decisions of others do not mix.
  const std::string& environment() const { return home_.environment.hash; }
  // The measured ceilings of this machine, kept in the store beside the decisions; empty if never measured.
  std::string find_profile();
  void record_profile(const std::string& text);

 private:
  Context() = default;
  ContextConfig config_;
  ir::Target target_;
  Stats stats_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<LeafCache> leaves_;
  std::shared_ptr<DeviceCodes> device_codes_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<TaskArena> tasks_;
  std::atomic<Seal> seal_{Seal::off};
  const DecisionHome& home_of(const DecisionQuery& query) const { return query.home ? *query.home : home_; }
  ObjectKey decision_object(const DecisionQuery& query) const;

  DecisionHome home_;  // of this machine
};

}  // namespace lathe::runtime
