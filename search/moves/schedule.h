// A Schedule: the list of moves that turns a naive Kernel into a scheduled one; the thing Lathe persists. Text form:
//   schedule 1 family matmul class reassociate,contract
//   from panel.1 mr=8 nr=32 kc=512          (origin: recipe.version and knobs; informative)
//   tile_scope n 32 tail=mask as n0,n1
//   ...
// Replay is total and deterministic: a Kernel, or UNSUPPORTED naming the move and the reason.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "search/moves/transform.h"

namespace lathe::search {

struct Schedule {
  std::string family;
  uint32_t numeric = 0;  // filled by replay; checked on load
  std::string recipe;    // "panel.1"; empty: none
  std::map<std::string, int64_t> knobs;
  std::vector<Move> moves;
};
// A Schedule and the Kernel that its moves end with.
struct Scheduled {
  Schedule schedule;
  ir::Kernel kernel;
};
std::string to_text(const Schedule& schedule);
ir::Result<Schedule> parse_schedule(std::string_view text);
// More than any recipe or search makes, by far: what a replay costs is bounded, whoever wrote the text.
inline constexpr size_t kMaxMoves = 256;
inline constexpr size_t kMaxBuffers = 64;
inline constexpr size_t kMaxStatements = 512;  // scopes and prefetches among them
// Applies the moves in order. steps, if not null, gets the kernel after each move. UNSUPPORTED beyond those limits as
// well. verify: the result; who proves it safe in any case leaves it out.
ir::Result<ir::Kernel> replay(const ir::Kernel& kernel, const Schedule& schedule,
                              std::vector<ir::Kernel>* steps = nullptr, bool verify = true);
// Liberties that rows of the table take and after which a Kernel computes something else, not the same with other
// roundings of sums. Such moves come first in a Schedule: the Kernel after the last one is what all others keep.
// `kernel` where there is none.
inline constexpr uint32_t kRedefining = ir::kQuantisedActivations | ir::kBf16Dots;
ir::Result<ir::Kernel> redefined(const ir::Kernel& kernel, const Schedule& schedule);
// The moves up to that one.
std::vector<Move> redefining_moves(const Schedule& schedule);
// The same with the Schedule, its numeric class as replayed.
ir::Result<Scheduled> schedule_kernel(const ir::Kernel& kernel, const Schedule& schedule);
// Applies further moves to what is scheduled, within the same limits, and verifies the Kernel where there are any. On
// failure `scheduled` holds the Kernel of some of the moves.
ir::Status extend(Scheduled& scheduled, const std::vector<Move>& moves);

}  // namespace lathe::search
