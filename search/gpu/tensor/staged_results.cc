// See staged_results.h.
#include "search/gpu/tensor/staged_results.h"

#include <algorithm>

namespace lathe::search {

namespace {

constexpr int64_t kRows = 16, kWarp = 32, kFloats = 4;
constexpr int64_t kVector = 8;                             // results of a thread, neighbours
constexpr int64_t kLaneRows = 8, kColumns = 8, kPair = 2;  // of the instruction
constexpr int64_t kTurn = 4;                               // rows whose banks lie side by side

}  // namespace

int64_t staged_bytes(int64_t threads) { return threads / kWarp * kRows * (kStagedColumns + kFloats) * 4; }

bool has_lines(const ir::Kernel& kernel, const ProductForm& form) {
  const std::vector<ir::Stmt>& body = form.n->body;
  return std::all_of(body.begin() + 2, body.end(), [&](const ir::Stmt& s) {
    const bool given = kernel.find_buffer(s.target)->place == ir::Place::out && !s.index.empty();
    return given && equal(s.index.back(), ir::iter(form.n->iter));
  });
}

void stage_results(MoveList& list, const ProductForm& form, int64_t rows, int64_t columns, bool groups, bool whole) {
  const std::string m = form.m->iter + "ie", n = form.n->iter + "ie", o = form.sum + "_o";
  for (const auto& [of, part, square] : {std::tuple{m, rows, kRows}, {n, columns, kStagedColumns}}) {
    list.move("tile_scope {0} {1} tail=mask as {0}w,{0}r", of, part);
    list.move("tile_scope {0}r {1} tail=mask as {0}q,{0}t", of, square);
  }
  const std::string mw = m + "w", mq = m + "q", mt = m + "t", nw = n + "w", nq = n + "q", nt = n + "t";
  list.sort({mw, mq, mt, nw, nq, nt}, {mw, nw, mq, nq, mt, nt});
  list.move("create_temporary {} {} at={} mode=stage", form.sum, o, nq);
  for (const std::string& s : {mw, nw}) list.move("parallelize_block {}", s);
  if (groups) list.move("parallelize_block {}", mq);
  if (!groups) list.move("unroll_scope {}", mq);
  list.move("unroll_scope {}", nq);
  list.move("move_to_shared {} {}", o, nq);
  // Four rows of pairs are stored at a time, and lines of a row and of the eighth after it read: each in banks of its
  // own where these two are neighbours.
  const int dim = groups ? 3 : 2;
  list.move("tile_buffer {} {} {}", o, dim, kLaneRows);
  list.move("swap_dims {} {} {}", o, dim, dim + 1);
  list.move("repeat_padding {} {} {}", o, dim + 1, kFloats);
  // As the instruction shares them out.
  list.move("pad_scope {}_0", o);
  if (!whole) list.move("pad_scope {}_1", o);
  list.move("tile_scope {0}_0 {1} tail=exact as {0}_0o,{0}_0l", o, kLaneRows);
  list.move("tile_scope {0}_1 {1} tail=exact as {0}_1q,{0}_1s", o, kColumns);
  list.move("tile_scope {0}_1s {1} tail=exact as {0}_1l,{0}_1v", o, kPair);
  for (const char* s : {"_0l", "_1l"}) list.move("parallelize_block {}{}", o, s);
  for (const char* s : {"_0o", "_1q"}) list.move("unroll_scope {}{}", o, s);
  list.move("vectorize_scope {}_1v", o);
  // In lines.
  list.move("deal_scope {0} {1} as {0}i,{0}o", mt, kLaneRows);
  list.move("tile_scope {0}i {1} tail=mask as {0}p,{0}b", mt, kTurn);
  list.move("tile_scope {0} {1} tail=mask as {0}c,{0}v", nt, kVector);
  const std::string mo = mt + "o", mp = mt + "p", mb = mt + "b", nc = nt + "c", nv = nt + "v";
  for (const std::string& s : {mb, mo, nc}) list.move("parallelize_block {}", s);
  list.move("unroll_scope {}", mp);
  list.move("vectorize_scope {}", nv);
}

}  // namespace lathe::search
