// Names of a device program that may mean something else in another thread of the block, and in another one of the same
// warp.
#pragma once
#include <algorithm>
#include <set>
#include <string>

#include "ir/core/names.h"
#include "jit/cuda/device_program.h"

namespace lathe::jit {

class DifferingNames {
 public:
  enum class Among : uint8_t { none, block, warp };  // of which warps differ; of which threads of a warp do

  // Of an integer.
  Among of(const ir::Expr& e) const {
    if (in_warp(e)) return Among::warp;
    bool out = false;
    ir::for_each_node(e, [&](const ir::ExprNode& n) { out |= block_.count(n.name) != 0; });
    return out ? Among::block : Among::none;
  }
  // Of what an `aligned` statement asks.
  Among of(const DeviceStmt& s) const {
    const auto alike = [&](const DevicePlace& at) { return of(at.offset) == Among::none; };
    if (!std::all_of(s.places.begin(), s.places.end(), alike)) return Among::warp;
    return s.integer ? of(s.integer) : Among::none;
  }
  void add(const std::string& name, Among among) {
    if (among != Among::none) block_.insert(name);
    if (among == Among::warp) warp_.insert(name);
  }

 private:
  static bool whole_warps(const ir::Expr& e) { return ir::is_const_int(e) && e->ival % kWarpThreads == 0; }
  // The number of the warp, or of several together, is the same in all threads of it.
  static bool numbers_warps(const ir::Expr& e) {
    if (e->op != ir::Op::k_floordiv || !whole_warps(e->args[1])) return false;
    const ir::Expr &of = e->args[0], &thread = of->op == ir::Op::k_mod && whole_warps(of->args[1]) ? of->args[0] : of;
    return thread->op == ir::Op::k_iter && thread->name == "thread";
  }
  bool in_warp(const ir::Expr& e) const {
    if (numbers_warps(e)) return false;
    if (warp_.count(e->name) != 0) return true;
    for (const ir::Expr& a : e->args) {
      if (in_warp(a)) return true;
    }
    return false;
  }

  std::set<std::string> block_, warp_;
};

}  // namespace lathe::jit
