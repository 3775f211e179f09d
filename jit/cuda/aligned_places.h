// What a device program knows of addresses: places that it has found aligned, and what follows from them. Where a
// parameter begins at a multiple of 16 bytes and sizes are multiples, so is all that is multiples of them away.
//   if e1 % 8 == 0 and aligned x16 p0[0]:  p0[e1*i + 8*j] is aligned x8
#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include "ir/analysis/analysis.h"
#include "jit/cuda/device_program.h"

namespace lathe::jit {

class AlignedPlaces {
 public:
  explicit AlignedPlaces(const DeviceProgram& program) : p_(program) {}

  // The body of an `aligned` statement.
  void enter(const DeviceStmt& s) {
    outside_.emplace_back(found_.size(), sizes_);
    for (const DevicePlace& at : s.places) found_.emplace_back(at, s.lanes);
    if (s.integer) learn(s.integer);
  }
  void leave() {
    found_.resize(outside_.back().first);
    sizes_ = std::move(outside_.back().second);
    outside_.pop_back();
  }
  // Of a parameter: to so many lanes, or 16 bytes.
  bool known(const DevicePlace& at, int lanes) const {
    const int64_t whole = std::min(lanes, lanes_at_once(p_.params[static_cast<size_t>(at.index)].type));
    return std::any_of(found_.begin(), found_.end(), [&](const auto& f) {
      if (f.second < lanes || f.first.space != DevicePlace::Space::param || f.first.index != at.index) return false;
      return equal(f.first.offset, at.offset) ||
             (ir::is_const_int(f.first.offset, 0) && ir::proves_divisible(at.offset, whole, sizes_));
    });
  }

 private:
  void learn(const ir::Expr& e) {
    using ir::Op;
    if (e->op == Op::k_logical_and) {
      for (const ir::Expr& part : e->args) learn(part);
    } else if (e->op == Op::k_eq && ir::is_const_int(e->args[1], 0) && e->args[0]->op == Op::k_mod) {
      const auto& mod = e->args[0]->args;
      if (mod[0]->op == Op::k_symbol && ir::is_const_int(mod[1])) sizes_.set(mod[0]->name, {}, mod[1]->ival);
    }
  }

  const DeviceProgram& p_;
  std::vector<std::pair<DevicePlace, int>> found_;
  ir::Ranges sizes_;
  std::vector<std::pair<size_t, ir::Ranges>> outside_;
};

}  // namespace lathe::jit
