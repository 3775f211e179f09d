// How a candidate becomes a Stage where it is judged: in an evaluation, in a shadow run. Tests put a maker of their own
// in its place.
#pragma once
#include <string_view>

#include "runtime/compile/compiler.h"
#include "runtime/oracle/witness.h"

namespace lathe::runtime {

class StageMaker {
 public:
  virtual ~StageMaker() = default;
  // text: the Schedule as it came.
  virtual ir::Result<Stage> build(std::string_view text, const ir::Kernel& naive, const search::Schedule& schedule,
                                  const ir::Target& target, LeafCache& leaves);
  // How the witness replays it; empty: as search::replay() does.
  virtual Witness::Replay replay(std::string_view text);
};

}  // namespace lathe::runtime
