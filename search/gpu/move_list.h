// A Schedule written line by line.
#pragma once
#include <string>
#include <utility>

#include "search/moves/schedule.h"

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
};

}  // namespace lathe::search
