// See grouped_schedule.h.
#include "search/gpu/weights/grouped_schedule.h"

#include <algorithm>
#include <bit>

#include "search/gpu/tile_moves.h"
#include "search/gpu/weights/group_form.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kDepth = 16;

}  // namespace

Result<Scheduled> grouped_schedule(const GeneralKernel& general, const SymbolValues& sizes) {
  LATHE_ASSIGN(const GroupForm g, group_form(general.kernel));
  if (!g.made.empty()) return ir::unsupported("{}: expected operands that are given", general.kernel.name);
  const std::string &m = g.m->iter, &n = g.n->iter, &k = g.k->iter;
  const auto rows = static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(group_shape(g, sizes).rows, TileMoves::kSide, 64))));
  MoveList list(general.kernel, "experts.1");
  TileMoves tiles(list, m, n, k);
  list.knob("rows", rows);
  clear_rows(list, g);
  list.move("parallelize_grid {}", g.t->iter);
  list.move("tile_scope {0} {1} tail=mask as {0}b,{0}i", n, TileMoves::kColumns);
  list.move("swap_scopes {} {}b", m, n);
  list.move("tile_scope {0} {1} tail=mask as {0}b,{0}i", m, rows);
  tiles.apart(g.sum, m + "b");
  list.move("tile_scope {0} {1} tail=peel as {0}0,{0}1,{0}2", k, kDepth);
  for (const std::string& x : {g.rows, g.weights}) {
    list.move("create_temporary {0} {0}_s at={1}0 mode=stage", x, k);
    list.move("create_temporary {0} {0}_t at={1}2 mode=stage", x, k);
  }
  list.move("parallelize_grid {}b", n);
  for (const std::string& x : {g.rows, g.weights}) {
    list.move("move_to_shared {}_s {}0", x, k);
    list.move("move_to_shared {}_t {}2", x, k);
  }
  for (const char* part : {"i", "ik", "ik_t"}) {
    list.move("pad_scope {}{}", m, part);
    list.move("pad_scope {}{}", n, part);
  }
  tiles.copy_terms(g.rows + "_s", rows, kDepth);
  tiles.turn(g.rows + "_s");
  if (g.terms_last) {
    tiles.copy_terms(g.weights + "_s", TileMoves::kColumns, kDepth);
    tiles.turn(g.weights + "_s");
  } else {
    tiles.copy_lines(g.weights + "_s", TileMoves::kColumns, kDepth);
  }
  for (const std::string& x : {g.rows, g.weights}) list.move("parallelize_block {}_t_0", x);
  tiles.threads("i", rows / TileMoves::kSide, "", true);
  tiles.threads("ik", rows / TileMoves::kSide, k + "1", true);
  tiles.threads("ik_t", rows / TileMoves::kSide, "", true);
  tiles.threads("ie", rows / TileMoves::kSide, "", false);
  list.move("unroll_scope {}1", k);
  return list.finish();
}

}  // namespace lathe::search
