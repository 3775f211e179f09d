// What changes about an operator while it serves: candidate stages built beside those that serve, tried on real calls,
// promoted to their place, and demoted. Nothing is freed before the operator goes: calls may hold it. No call takes its
// locks; candidates are built and shapes bound without the one that guards its lists.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/serve/bound_shapes.h"
#include "runtime/serve/recorded_calls.h"

namespace lathe::runtime {

class Live {
 public:
  Live(Context& context, const Definition& definition, BoundShapes& shapes)
      : context_(context), definition_(definition), shapes_(shapes) {}

  // Definition::problem() and query() for a Schedule that can take over from `serving` without the host noticing:
  // constants in the layouts in use.
  search::Problem problem(int kernel, const SymbolValues& dims, const PrepareRequest& request,
                          const ServedStage& serving) const;
  DecisionQuery query(int kernel, const SymbolValues& dims, const PrepareRequest& request,
                      const ServedStage& serving) const;
  // The parameters that a scheduled Kernel packs, by number, and how.
  static std::vector<std::pair<int, uint64_t>> layouts_of(const ir::Kernel& scheduled);
  static bool same_layouts(const ir::Kernel& scheduled, const ServedStage& serving);
  // Compiles it; serves nothing yet. UNSUPPORTED: other layouts, or no code.
  ir::Result<const ServedStage*> add_candidate(int kernel, const search::Problem& problem,
                                               const search::Scheduled& scheduled, const ServedStage& serving,
                                               const PrepareRequest& request);
  // Kept with the operator.
  Trial* new_trial(const BoundOp* other, std::unique_ptr<RecordedCalls> recorder, int kernel);
  // It serves its range, also shapes bound later; UNSUPPORTED as BoundShapes::bind_candidate, for any shape bound so
  // far. Calls that run go on, and shapes are bound meanwhile.
  ir::Status promote(int kernel, const ServedStage* candidate);
  // What served before serves again.
  ir::Status demote(int kernel, const ServedStage* candidate);

 private:
  Context& context_;
  const Definition& definition_;
  BoundShapes& shapes_;
  std::mutex mutex_;  // of the lists
  std::vector<std::unique_ptr<ServedStage>> candidates_;
  std::vector<std::unique_ptr<RecordedCalls>> recorders_;
  std::vector<std::unique_ptr<Trial>> trials_;
  std::mutex swaps_;  // one promotion at a time
};

}  // namespace lathe::runtime
