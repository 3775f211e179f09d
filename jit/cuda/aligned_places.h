// Where elements of parameters are found to be aligned, and with them those that lie multiples of it apart.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "ir/analysis/analysis.h"
#include "jit/cuda/device_program.h"

namespace lathe::jit {

class AlignedPlaces {
 public:
  // Under a condition that was found to hold, which may say that sizes are multiples: e1 % 8 == 0.
  void find(const std::vector<DevicePlace>& places, int lanes, const ir::Expr& condition) {
    for (const DevicePlace& at : places) found_.emplace_back(at, lanes);
    if (condition) learn(condition);
  }
  bool covers(const DevicePlace& at, int lanes) const {
    return std::any_of(found_.begin(), found_.end(), [&](const std::pair<DevicePlace, int>& a) {
      return a.second >= lanes && a.first.space == DevicePlace::Space::param && a.first.index == at.index &&
             (equal(a.first.offset, at.offset) || ir::proves_divisible(at.offset - a.first.offset, lanes, multiples_));
    });
  }

 private:
  void learn(const ir::Expr& condition) {
    const auto& args = condition->args;
    if (condition->op == ir::Op::k_logical_and) {
      for (const ir::Expr& e : args) learn(e);
      return;
    }
    const bool divides = condition->op == ir::Op::k_eq && args[0]->op == ir::Op::k_mod && ir::is_const_int(args[1], 0);
    if (divides && args[0]->args[0]->op == ir::Op::k_symbol && ir::is_const_int(args[0]->args[1]))
      multiples_.set(args[0]->args[0]->name, {0, INT64_MAX}, args[0]->args[1]->ival);
  }

  std::vector<std::pair<DevicePlace, int>> found_;  // to so many lanes
  ir::Ranges multiples_;                            // sizes
};

}  // namespace lathe::jit
