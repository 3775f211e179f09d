// A Schedule written line by line.
#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "search/moves/schedule.h"
#include "search/moves/transform.h"

namespace lathe::search {

class MoveList {
 public:
  MoveList(const ir::Kernel& kernel, std::string recipe) : kernel_(kernel) {
    schedule_.family = kernel.family;
    schedule_.recipe = std::move(recipe);
  }
  template <class... A>
  void move(fmt::format_string<A...> format, A&&... args) {
    ir::Result<Move> m = parse_move(fmt::format(format, std::forward<A>(args)...));
    if (m.ok()) schedule_.moves.push_back(std::move(*m));
    if (status_.ok()) status_ = m.status();
  }
  // Scopes that stand in each other alone come into the order that is wanted, by exchanges of neighbours.
  void sort(std::vector<std::string> is, const std::vector<std::string>& wanted) {
    for (size_t at = 0; at < wanted.size(); ++at) {
      auto from = static_cast<size_t>(std::find(is.begin(), is.end(), wanted[at]) - is.begin());
      for (; from > at; --from) {
        move("swap_scopes {} {}", is[from - 1], is[from]);
        std::swap(is[from - 1], is[from]);
      }
    }
  }
  // Whether a scope's number of iterations is known after the moves so far. One that there is not is no such scope.
  bool is_constant(const std::string& scope) {
    if (!so_far_) so_far_ = kernel_;
    // What is refused here is refused by finish(), which says so.
    for (; applied_ < schedule_.moves.size(); ++applied_) {
      if (!apply_in_place(*so_far_, schedule_.moves[applied_], {.verify = false}).ok()) return false;
    }
    const ir::Stmt* found = ir::find_scope(*so_far_, scope);
    return found != nullptr && ir::is_const_int(found->extent);
  }
  void knob(const std::string& name, int64_t value) { schedule_.knobs[name] = value; }
  // Applies the moves.
  ir::Result<Scheduled> finish() const {
    if (!status_.ok()) return status_;
    return schedule_kernel(kernel_, schedule_);
  }

 private:
  const ir::Kernel& kernel_;
  Schedule schedule_;
  ir::Status status_;
  std::optional<ir::Kernel> so_far_;  // after so many of the moves
  size_t applied_ = 0;
};

}  // namespace lathe::search
