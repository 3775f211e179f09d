// See stage_maker.h.
#include "runtime/oracle/stage_maker.h"

namespace lathe::runtime {

ir::Result<Stage> StageMaker::build(std::string_view, const ir::Kernel& naive, const search::Schedule& schedule,
                                    const ir::Target& target, LeafCache& leaves) {
  return build_stage(naive, schedule, target, leaves, LeafPolicy{});
}

Witness::Replay StageMaker::replay(std::string_view) { return {}; }

}  // namespace lathe::runtime
