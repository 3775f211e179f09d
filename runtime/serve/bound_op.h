// One exact call shape of an operator, ready to run: its stages in order, each bound. Immutable but for the counter of
// its calls; any number of threads may run it, each with its own workspace.
#pragma once
#include <atomic>
#include <vector>

#include "runtime/serve/hot_shapes.h"
#include "runtime/serve/stages.h"

namespace lathe::runtime {

struct BoundOp {
  struct Step {
    const ServedStage* stage = nullptr;
    std::unique_ptr<const BoundExecutable> bound;
    std::vector<int> args;         // per parameter: >= 0 argument number, < 0: temporary -1-i
    std::vector<int64_t> offsets;  // per parameter, bytes into the argument; empty: all 0
  };
  std::vector<Step> steps;
  // All of it, where that is one call of a leaf; its addresses are those of arguments.
  std::unique_ptr<const DirectCall> direct;
  const LeafRef* direct_leaf = nullptr;
  std::vector<int64_t> temp_offsets;  // in the workspace
  int64_t scratch_offset = 0;         // of the steps' own scratch
  int64_t workspace_bytes = 0;
  int tier = 0;
  bool empty = false;                            // no output has an element: nothing runs
  mutable std::atomic<HotShape*> heat{nullptr};  // counts the calls; null: nobody wants to know

  // args: addresses of first elements, by argument; workspace 64-byte aligned, workspace_bytes of it.
  void run(void* const* args, void* workspace, ThreadTeam* team) const {
    if (direct != nullptr) return direct->run(*direct_leaf, args);
    run_steps(args, workspace, team);
  }
  void run_steps(void* const* args, void* workspace, ThreadTeam* team) const;
  // The same on a device, on the caller's stream.
  ir::Status launch(void* const* args, void* workspace, void* stream) const;
  // One of its steps, and the addresses that it is given.
  void run_step(size_t step, void* const* args, void* workspace, ThreadTeam* team) const;
  void step_params(size_t step, void* const* args, void* workspace, void** params) const;
  // Once all steps are there.
  void find_direct();
};

}  // namespace lathe::runtime
