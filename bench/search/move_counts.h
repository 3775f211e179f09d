// In which Schedules each move of the table occurs: of all that were timed, and of the winners.
#pragma once
#include <map>
#include <string>

#include "search/moves/schedule.h"

namespace lathe::bench {

class MoveCounts {
 public:
  // Recipes emit moves whatever they are for; here a move counts once a Schedule.
  void add(const search::Schedule& schedule, bool winner);
  // A line a move of search::transforms(): its share of the timed Schedules, the winners it occurs in.
  std::string text() const;

 private:
  struct Count {
    int timed = 0, winners = 0;
  };
  std::map<std::string, Count> moves_;
  int timed_ = 0, winners_ = 0;
};

}  // namespace lathe::bench
