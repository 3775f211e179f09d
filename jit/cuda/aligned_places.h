// What a device program knows of addresses: places that it has found aligned, and with them those that lie multiples
// of it apart. Where sizes are multiples, so is what is multiples of them away.
//   if e1 % 8 == 0 and aligned x8 p0[0]:  p0[e1*i + 8*j] is aligned x8
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "ir/analysis/analysis.h"
#include "jit/cuda/device_program.h"

namespace lathe::jit {

class AlignedPlaces {
 public:
  explicit AlignedPlaces(const DeviceProgram& program) : p_(&program) {}

  // What holds in the body of an `aligned` statement.
  void find(const DeviceStmt& s) {
    for (const DevicePlace& at : s.places) found_.emplace_back(at, s.lanes);
    if (s.integer) learn(s.integer);
  }
  // Of a parameter: to so many lanes, or 16 bytes.
  bool covers(const DevicePlace& at, int lanes) const {
    const int64_t whole = std::min(lanes, lanes_at_once(p_->params[static_cast<size_t>(at.index)].type));
    return std::any_of(found_.begin(), found_.end(), [&](const std::pair<DevicePlace, int>& f) {
      return f.second >= lanes && f.first.space == DevicePlace::Space::param && f.first.index == at.index &&
             (equal(f.first.offset, at.offset) || ir::proves_divisible(at.offset - f.first.offset, whole, multiples_));
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
      know(args[0]->args[0]->name, args[0]->args[1]->ival);
  }

  void know(const std::string& size, int64_t multiple) {
    multiples_.set(size, {0, INT64_MAX}, std::lcm(multiples_.multiple_of(size), multiple));
  }

  const DeviceProgram* p_;
  std::vector<std::pair<DevicePlace, int>> found_;  // to so many lanes
  ir::Ranges multiples_;                            // sizes
};

}  // namespace lathe::jit
