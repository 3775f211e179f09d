// See columns_schedule.h.
#include "search/gpu/rows/columns_schedule.h"

#include <algorithm>
#include <bit>

#include "ir/analysis/analysis.h"
#include "search/gpu/move_list.h"
#include "search/gpu/vector_width.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kBlock = 256;  // threads

bool is_column(const Stmt& s) {
  return s.kind == Stmt::Kind::scope && std::all_of(s.body.begin(), s.body.end(), [](const Stmt& inner) {
           return inner.kind == Stmt::Kind::assign && inner.op == AssignOp::set;
         });
}

}  // namespace

Result<Scheduled> columns_schedule(const GeneralKernel& rows, const SymbolValues& sizes) {
  std::vector<const Stmt*> nest;
  const std::vector<Stmt>* body = &rows.kernel.body;
  while (body->size() == 1 && body->front().kind == Stmt::Kind::scope && !is_column(body->front())) {
    nest.push_back(&body->front());
    body = &body->front().body;
  }
  if (nest.empty() || !std::all_of(body->begin(), body->end(), is_column))
    return unsupported("{} has no rows with loops of plain assignments in each", rows.kernel.name);
  const auto extent = [&](const Stmt& s) { return std::max<int64_t>(evaluate(s.extent, sizes).value_or(kBlock), 1); };
  int64_t widest = 1;
  for (const Stmt& column : *body) widest = std::max(widest, extent(column));
  const auto threads_for = [](int64_t work) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::min(work, kBlock))));
  };
  const int64_t vector = vector_width(rows.kernel, widest);
  const int64_t across = threads_for((widest + vector - 1) / vector),
                down = std::min(threads_for(extent(*nest.back())), kBlock / across);
  MoveList list(rows.kernel, "columns.1");
  list.knob("columns", across);
  list.knob("rows", down);
  for (const Stmt& column : *body) {
    list.move("tile_scope {0} {1} tail=mask as {0}c,{0}v", column.iter, vector_of_row(vector, column.extent));
    list.move("tile_scope {0}c {1} tail=mask as {0}b,{0}t", column.iter, across);
  }
  list.move("tile_scope {0} {1} tail=mask as {0}b,{0}t", nest.back()->iter, down);
  for (size_t i = 0; i + 1 < nest.size(); ++i) list.move("parallelize_grid {}", nest[i]->iter);
  list.move("parallelize_grid {}b", nest.back()->iter);
  list.move("parallelize_block {}t", nest.back()->iter);
  for (const Stmt& column : *body) {
    list.move("parallelize_block {}t", column.iter);
    list.move("vectorize_scope {}v", column.iter);
  }
  return list.finish();
}

}  // namespace lathe::search
