// See launch_check.h.
#include "ir/analysis/launch_check.h"

#include <algorithm>

#include "ir/analysis/intrinsics.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"

namespace lathe::ir {

namespace {

bool any_marked(const std::vector<const Stmt*>& scopes, Mark mark) {
  return std::any_of(scopes.begin(), scopes.end(), [&](const Stmt* s) { return s->mark == mark; });
}

}  // namespace

Expr blocks_along(const Stmt& scope, const Ranges& outer) {
  constexpr int64_t kMostPast = 64;
  bool symbols_only = true, reads = false;
  for_each_node(scope.extent, [&](const ExprNode& n) { reads |= n.op == Op::k_load; });
  const Expr extent = reads ? with_largest_inputs(scope.extent, outer) : scope.extent;
  if (!extent) return {};
  for_each_node(extent, [&](const ExprNode& n) { symbols_only &= n.op != Op::k_iter; });
  if (symbols_only) return extent;
  const int64_t most = interval(scope.extent, outer).hi;
  return most >= 1 && most <= kMostPast ? Expr(most) : Expr();
}

// Blocks do what their scope holds: nothing stands beside it in the scope around.
static Status check_alone(const Stmt& scope, const std::vector<const Stmt*>& outer) {
  if (outer.empty() || outer.back()->body.size() == 1) return {};
  return invalid("launch: @{} scope {} holds more than @{} scope {}", mark_name(outer.back()->mark), outer.back()->iter,
                 mark_name(scope.mark), scope.iter);
}

Status check_launch_scope(const Stmt& scope, const std::vector<const Stmt*>& outer, const Ranges& ranges) {
  const bool grid = scope.mark == Mark::grid, block = scope.mark == Mark::block,
             parallel = scope.mark == Mark::parallel;
  if ((warp_lanes(scope) > 1 || copies_box(scope)) && !any_marked(outer, Mark::grid))
    return invalid("launch: @tensor({}) scope {} stands outside of @grid scopes", scope.intrinsic, scope.iter);
  if (scope.mark == Mark::role) {
    if (!any_marked(outer, Mark::grid))
      return invalid("launch: @role scope {} stands outside of @grid scopes", scope.iter);
    for (const Mark around : {Mark::block, Mark::vector, Mark::tensor, Mark::role}) {
      if (any_marked(outer, around))
        return invalid("launch: @role scope {} stands inside a @{} scope", scope.iter, mark_name(around));
    }
    if (!is_const_int(scope.extent, 1))
      return invalid("launch: @role scope {} runs {} times, expected once", scope.iter, print(scope.extent));
  }
  if (scope.mark == Mark::persistent) {
    if (outer.empty() || !std::all_of(outer.begin(), outer.end(), [](const Stmt* o) { return is_of_grid(o->mark); }))
      return invalid("launch: @persistent scope {} does not stand inside @grid scopes alone", scope.iter);
    if (!is_const_int(scope.extent, 1))
      return invalid("launch: @persistent scope {} runs {} times, expected once", scope.iter, print(scope.extent));
    return check_alone(scope, outer);
  }
  if (scope.mark == Mark::cluster) {
    if (outer.empty() || !std::all_of(outer.begin(), outer.end(), [](const Stmt* o) { return o->mark == Mark::grid; }))
      return invalid("launch: @cluster scope {} does not stand inside @grid scopes alone", scope.iter);
    if (!is_const_int(scope.extent, kClusterBlocks))
      return invalid("launch: @cluster scope {} runs {} times, expected {}", scope.iter, print(scope.extent),
                     kClusterBlocks);
    return check_alone(scope, outer);
  }
  if (!grid && !block && !parallel) return {};
  if (parallel ? any_marked(outer, Mark::grid) : any_marked(outer, Mark::parallel))
    return invalid("launch: @{} scope {} stands inside a @{} scope", mark_name(scope.mark), scope.iter,
                   parallel ? "grid" : "parallel");
  if (grid) {
    for (const Stmt* o : outer) {
      if (o->mark != Mark::grid)
        return invalid("launch: @grid scope {} stands inside {}, which is none", scope.iter, o->iter);
    }
    return check_alone(scope, outer);
  }
  if (!block) return {};
  if (!any_marked(outer, Mark::grid))
    return invalid("launch: @block scope {} stands outside of @grid scopes", scope.iter);
  if (any_marked(outer, Mark::vector) || any_marked(outer, Mark::tensor))
    return invalid("launch: @block scope {} stands inside a @vector or @tensor scope", scope.iter);
  if (interval(scope.extent, ranges).hi > kMostThreads)
    return invalid("launch: @block scope {}: no constant bounds its extent {}", scope.iter, print(scope.extent));
  return {};
}

}  // namespace lathe::ir
