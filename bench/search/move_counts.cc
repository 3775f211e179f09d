// See move_counts.h.
#include "bench/search/move_counts.h"

#include <fmt/format.h>

#include <set>

namespace lathe::bench {

void MoveCounts::add(const search::Schedule& schedule, bool winner) {
  std::set<std::string> names;
  for (const search::Move& m : schedule.moves) names.insert(m.name);
  for (const std::string& n : names) {
    ++moves_[n].timed;
    moves_[n].winners += winner;
  }
  ++timed_;
  winners_ += winner;
}

std::string MoveCounts::text() const {
  std::string out =
      fmt::format("{:<22}{:>10}{:>10}   of {} timed, {} winners\n", "move", "timed", "winners", timed_, winners_);
  for (const search::Transform& t : search::transforms()) {
    const auto at = moves_.find(t.name);
    const Count c = at == moves_.end() ? Count{} : at->second;
    out += fmt::format("{:<22}{:>9.2f}%{:>10}\n", t.name, timed_ == 0 ? 0.0 : 100.0 * c.timed / timed_, c.winners);
  }
  return out;
}

}  // namespace lathe::bench
