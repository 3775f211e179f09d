// See grouped_schedule.h.
#include "search/gpu/weights/grouped_schedule.h"

#include <algorithm>
#include <bit>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"
#include "search/gpu/tile_moves.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kDepth = 16, kClear = 256;

// for zm: for zn: y = 0, and for t: for m: for n: {c = 0; for k: c += a * b; y = f(c)}.
struct Groups {
  const Stmt *zm = nullptr, *zn = nullptr, *t = nullptr, *m = nullptr, *n = nullptr, *k = nullptr;
  std::string sum, rows, weights;
  bool terms_last = false;  // of the weights
};

bool reads(const Expr& e) {
  bool out = false;
  for_each_node(e, [&](const ExprNode& n) { out |= n.op == Op::k_load; });
  return out;
}

Result<Groups> groups_of(const Kernel& k) {
  const auto no = [&](const char* why) { return unsupported("{} has no products of groups: {}", k.name, why); };
  if (k.body.size() != 2) return no("expected a nest that clears and one of products");
  std::vector<const Stmt*> nests[2];
  for (size_t i = 0; i < 2; ++i) {
    for (const Stmt* s = &k.body[i]; s->kind == Stmt::Kind::scope; s = &s->body[0]) {
      nests[i].push_back(s);
      if (s->body.size() != 1) break;
    }
  }
  if (nests[0].size() != 2 || nests[1].size() != 3) return no("its nests have other scopes");
  Groups out{nests[0][0], nests[0][1], nests[1][0], nests[1][1], nests[1][2], nullptr, "", "", "", false};
  if (!reads(out.m->extent)) return no("the number of rows is none that is read");
  const std::vector<Stmt>& body = out.n->body;
  if (body.size() < 3 || body[0].kind != Stmt::Kind::assign || body[1].kind != Stmt::Kind::scope ||
      body[1].body.size() != 1 || body[1].body[0].op != AssignOp::add || body[1].body[0].value->op != Op::k_mul)
    return no("it has no sum of products");
  out.k = &body[1];
  out.sum = body[0].target;
  if (k.find_buffer(out.sum)->place != Place::heap) return no("the sums are no temporary");
  for (const Expr& factor : out.k->body[0].value->args) {
    const Expr& e = factor->op == Op::k_cast ? factor->args[0] : factor;
    if (e->op != Op::k_load || !is_input(k.find_buffer(e->name)->place)) return no("a factor is no input");
    if (uses(e, out.m->iter)) {
      out.rows = e->name;
    } else {
      out.weights = e->name;
      out.terms_last = uses(e->args.back(), out.k->iter);
    }
  }
  if (out.rows.empty() || out.weights.empty()) return no("expected rows and weights");
  return out;
}

}  // namespace

Result<Scheduled> grouped_schedule(const GeneralKernel& general, const SymbolValues& sizes) {
  LATHE_ASSIGN(const Groups g, groups_of(general.kernel));
  const std::string &m = g.m->iter, &n = g.n->iter, &k = g.k->iter;
  // As many rows as a group has if all have as many.
  const int64_t all = evaluate(g.zm->extent, sizes).value_or(1),
                groups = std::max<int64_t>(evaluate(g.t->extent, sizes).value_or(1), 1);
  const auto each = static_cast<uint64_t>(std::clamp<int64_t>((all + groups - 1) / groups, TileMoves::kSide, 64));
  const auto rows = static_cast<int64_t>(std::bit_ceil(each));
  MoveList list(general.kernel, "experts.1");
  TileMoves tiles(list, m, n, k);
  list.knob("rows", rows);
  list.move("tile_scope {0} {1} tail=mask as {0}b,{0}t", g.zn->iter, kClear);
  list.move("parallelize_grid {}", g.zm->iter);
  list.move("parallelize_grid {}b", g.zn->iter);
  list.move("parallelize_block {}t", g.zn->iter);

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
