// See transpose_schedule.h.
#include "search/gpu/rows/transpose_schedule.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "search/gpu/move_list.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kSide = 32, kRows = 8;  // of a square; that a block of 32 x 8 threads copies at once
constexpr int64_t kLeastSide = 8;

}  // namespace

Result<Scheduled> transpose_schedule(const GeneralKernel& copy, const SymbolValues& sizes) {
  const Kernel& k = copy.kernel;
  std::vector<const Stmt*> nest;
  const std::vector<Stmt>* body = &k.body;
  while (body->size() == 1 && body->front().kind == Stmt::Kind::scope) {
    nest.push_back(&body->front());
    body = &body->front().body;
  }
  const auto no = [&](const char* why) { return unsupported("{} is no transpose: {}", k.name, why); };
  if (nest.size() < 2 || body->size() != 1 || body->front().kind != Stmt::Kind::assign ||
      body->front().op != AssignOp::set || body->front().value->op != Op::k_load)
    return no("it is no nest around one copy");
  const Stmt& s = body->front();
  const auto is_iter = [](const Expr& e) { return e->op == Op::k_iter; };
  const std::vector<Expr>& from = s.value->args;
  if (from.size() < 2 || !std::all_of(from.begin(), from.end(), is_iter) ||
      !std::all_of(s.index.begin(), s.index.end(), is_iter))
    return no("its indices are no iterators");
  const std::string row = from.back()->name, column = s.index.back()->name, source = s.value->name;
  const auto at = std::find_if(nest.begin(), nest.end(), [&](const Stmt* n) { return n->iter == row; });
  if (row == column || at == nest.end() || nest.back()->iter != column) return no("both memories have the same rows");
  const auto extent = [&](const Stmt& n) { return evaluate(n.extent, sizes).value_or(kSide); };
  if (extent(**at) < kLeastSide || extent(*nest.back()) < kLeastSide) return no("a side is short");

  MoveList list(k, "squares.1");
  list.move("tile_scope {0} {1} tail=mask as {0}b,{0}i", row, kSide);
  list.move("tile_scope {0} {1} tail=mask as {0}b,{0}i", column, kSide);
  for (auto inner = at + 1; inner + 1 != nest.end(); ++inner) list.move("swap_scopes {}i {}", row, (*inner)->iter);
  list.move("swap_scopes {}i {}b", row, column);
  list.move("create_temporary {0} {0}_s at={1}b mode=stage", source, column);
  list.move("move_to_stack {}_s {}b", source, column);
  for (const Stmt* n : nest) {
    const bool tiled = n->iter == row || n->iter == column;
    list.move("parallelize_grid {}{}", n->iter, tiled ? "b" : "");
  }
  list.move("move_to_shared {}_s {}b", source, column);
  // A row of 33 elements: neighbours in a column lie in different banks.
  list.move("increment_padding {}_s 1 {}", source, kSide + 1);
  list.move("tile_scope {0}_s_0 {1} tail=mask as {0}_r,{0}_t", source, kRows);
  list.move("unroll_scope {}_r", source);
  list.move("parallelize_block {}_t", source);
  list.move("parallelize_block {}_s_1", source);
  list.move("tile_scope {0}i {1} tail=mask as {0}r,{0}t", row, kRows);
  list.move("unroll_scope {}r", row);
  list.move("parallelize_block {}t", row);
  list.move("parallelize_block {}i", column);
  return list.finish();
}

}  // namespace lathe::search
