// What @vector scopes do: all lanes at once where that is possible, else one by one; and values that are 0 beyond a
// bound (the move fill_scope), of which a thread stores what is inside or zeros, all lanes alike or each by itself.
#include <algorithm>

#include "ir/analysis/dependence.h"
#include "ir/analysis/filled.h"
#include "ir/core/names.h"
#include "jit/cuda/lower/guards.h"
#include "jit/cuda/lower/lowering.h"

namespace lathe::jit {

using ir::Expr;
using ir::Op;
using ir::Result;
using ir::Status;
using ir::Stmt;
using ir::unsupported;
using Space = DevicePlace::Space;

// Where lanes are stored one by one, registers of two that nothing else stores to start anew: what they held before,
// which nobody reads, is not kept for the halves.
Status DeviceLowering::clear_registers(const Stmt& s, int64_t lanes, List& to) {
  for (const Stmt& a : s.body) {
    const DevicePlace& target = place_of_.at(a.target);
    if (target.space != Space::local || lanes % 2 != 0) continue;
    const auto all = ir::collect_accesses(kernel_.body, {}, &a.target);
    if (std::count_if(all.begin(), all.end(), [](const ir::Access& x) { return x.write; }) != 1) continue;
    std::vector<DevicePlace> places;
    Result<DeviceStmt> store = ir::internal_error("no place");
    (void)at_once(s, static_cast<int>(lanes), places, [&] {
      store = access(a.target, a.index, to);
      return Status();
    });
    LATHE_RETURN_IF_ERROR(store.status());
    if (!ir::is_const_int(store->step, 1) || !ir::proves_divisible(store->places[0].offset, 2, ranges_)) continue;
    store->kind = DeviceStmt::Kind::store;
    store->bits = true;
    store->operands = {{-1, 0}};
    to.push_back(std::move(*store));
  }
  return {};
}

// Elements of 2 bytes that are moved as they are go all at once where they lie together.
Result<bool> DeviceLowering::halves_lie_together(const Stmt& s, int64_t lanes) {
  bool together = true;
  for (const Stmt& a : s.body) {
    if (!moves_halves(a)) continue;
    const Expr& source = ir::unfilled(a.value);
    std::vector<DevicePlace> places;
    List unused;
    LATHE_RETURN_IF_ERROR(at_once(s, static_cast<int>(lanes), places, [&] {
      LATHE_ASSIGN(const DeviceStmt load, access(source->name, source->args, unused));
      together &= load.lanes == 1 || ir::is_const_int(load.step, 1);
      return Status();
    }));
  }
  return together;
}

// Statements of a @vector scope, all lanes at once where that is possible.
Status DeviceLowering::vector(const Stmt& s, int64_t threads, List& to) {
  const int64_t lanes = ir::interval(s.extent, ranges_).hi;
  if (lanes < 1 || lanes > kMaxLanes || (lanes & (lanes - 1)) != 0)
    return unsupported("vector scope {} of {} elements, expected 1, 2, 4, 8 or 16", s.iter, lanes);
  const bool moves = std::all_of(s.body.begin(), s.body.end(), [&](const Stmt& a) { return moves_halves(a); });
  const FilledLanes filled = filled_lanes(s, lanes);
  const bool alike = filled.alike && ir::running_sums(kernel_, s).empty() && take_ahead(s, to).ok();
  List single;
  if (moves && lanes > 1) LATHE_RETURN_IF_ERROR(clear_registers(s, lanes, single));
  LATHE_RETURN_IF_ERROR(loop(s, threads, single));
  bool together = true;
  if (lanes > 1 && alike) {
    LATHE_ASSIGN(together, halves_lie_together(s, lanes));
  }
  if (lanes == 1 || !alike || !together) {
    std::move(single.begin(), single.end(), std::back_inserter(to));
    return {};
  }
  // Where sizes are multiples of the lanes, all of them are inside or none is.
  const bool all = lines_ && filled.values.empty() && ir::proves_divisible(s.extent, lanes, ranges_);
  Expr whole;
  if (!ir::is_const_int(s.extent)) whole = guard_of(Expr(all ? 0 : lanes - 1), s.extent, ranges_);
  const auto both = [](const Expr& a, const Expr& b) { return !a ? b : !b ? a : ir::make(Op::k_logical_and, {a, b}); };
  DeviceStmt wide;
  wide.kind = DeviceStmt::Kind::aligned;
  wide.lanes = static_cast<int>(lanes);
  wide.integer = both(whole, filled.all);
  if (wide.integer) {
    LATHE_ASSIGN(wide.integer, taken(wide.integer, to));
  }
  LATHE_RETURN_IF_ERROR(at_once(s, wide.lanes, wide.places, [&] {
    // The plan knows statements by their place: those of s itself, where nothing is filled.
    return body(filled.values.empty() ? s.body : filled.values, threads, wide.body);
  }));
  if (wide.places.empty() && !wide.integer) {
    std::move(wide.body.begin(), wide.body.end(), std::back_inserter(to));
    return {};
  }
  if (wide.places.empty()) {
    wide.kind = DeviceStmt::Kind::when;
    wide.lanes = 1;
  }
  if (filled.none) {
    DeviceStmt zeros;
    zeros.kind = DeviceStmt::Kind::when;
    LATHE_ASSIGN(zeros.integer, taken(both(whole, filled.none), wide.otherwise));
    std::vector<DevicePlace> places;
    LATHE_RETURN_IF_ERROR(
        at_once(s, static_cast<int>(lanes), places, [&] { return store_zero(s.body[0], threads, zeros.body); }));
    zeros.otherwise = std::move(single);
    wide.otherwise.push_back(std::move(zeros));
  } else if (!all || wide.kind == DeviceStmt::Kind::aligned) {
    wide.otherwise = std::move(single);
  }
  to.push_back(std::move(wide));
  return {};
}

// Lanes of an assignment whose value is 0 beyond a bound: conditions under which all or none of them are inside.
DeviceLowering::FilledLanes DeviceLowering::filled_lanes(const Stmt& s, int64_t lanes) const {
  FilledLanes out;
  const auto is_filled = [](const Stmt& a) {
    return a.kind == Stmt::Kind::assign && a.op == ir::AssignOp::set && &ir::unfilled(a.value) != &a.value;
  };
  if (std::none_of(s.body.begin(), s.body.end(), is_filled)) return out;
  const Expr less = s.body[0].value->args[0]->args[0], than = s.body[0].value->args[0]->args[1];
  const auto at = [&](int64_t lane) { return ir::simplify(ir::substitute(less, {{s.iter, Expr(lane)}}), ranges_); };
  const Expr step = ir::simplify(ir::substitute(less, {{s.iter, ir::iter(s.iter) + Expr(1)}}) - less);
  out.alike = s.body.size() == 1 && ir::is_const_int(step) && step->ival >= 0 && !ir::uses(than, s.iter) &&
              plan_.barrier_before.count(&s.body[0]) == 0;
  out.values = {s.body[0]};
  out.values[0].value = ir::unfilled(s.body[0].value);
  out.all = guard_of(at(lanes - 1), than, ranges_);
  const Expr some = guard_of(at(0), than, ranges_);
  if (some) out.none = ir::make(Op::k_logical_not, {some});
  return out;
}

Status DeviceLowering::store_zero(const Stmt& s, int64_t threads, List& to) {
  LATHE_ASSIGN(DeviceStmt store, access(s.target, s.index, to));
  store.kind = DeviceStmt::Kind::store;
  const ir::DType type = type_of(*kernel_.find_buffer(s.target));
  store.operands = {value_kind(type) == 'i' ? whole_constant(0) : DeviceOperand{-1, 0}};
  store.bits = store.lanes > 1 && ir::dtype_bytes(type) == 2;
  const bool local = store.places[0].space == Space::local;
  List stores;
  stores.push_back(std::move(store));
  once(std::move(stores), local ? 1 : threads, to);
  return {};
}

// One element, or 0.
Status DeviceLowering::assign_filled(const Stmt& s, int64_t threads, List& to) {
  const Expr& condition = s.value->args[0];
  Stmt inside = s;
  inside.value = ir::unfilled(s.value);
  DeviceStmt when;
  when.kind = DeviceStmt::Kind::when;
  when.integer = guard_of(condition->args[0], condition->args[1], ranges_);
  if (!when.integer) return assign(inside, threads, to);
  LATHE_ASSIGN(when.integer, taken(when.integer, to));
  const auto outer_known = known_;
  const auto outer_taken = taken_;
  LATHE_RETURN_IF_ERROR(assign(inside, threads, when.body));
  known_ = outer_known;
  taken_ = outer_taken;
  LATHE_RETURN_IF_ERROR(store_zero(s, threads, when.otherwise));
  to.push_back(std::move(when));
  return {};
}

}  // namespace lathe::jit
