// The moves of the matmul recipe; the nest is in recipe_matmul.cc. See matmul_sketch.h.
#include <algorithm>

#include "ir/analysis/analysis.h"
#include "search/sketches/matmul_dots.h"
#include "search/sketches/matmul_model.h"
#include "search/sketches/matmul_sketch.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

// The columns of a tile: panels and vectors unrolled.
void vectorize_tile(Script& s, const std::string& n, int64_t nr, int64_t panels, int64_t lanes, const char* tail) {
  std::string columns = n;
  if (panels > 1) {
    s.move("tile_scope {} {} tail=exact as {}s,{}p", n, nr, n, n);
    s.move("unroll_scope {}s", n);
    columns = n + "p";
  }
  s.move("tile_scope {} {} tail={} as {}v,{}l", columns, lanes, tail, n, n);
  s.move("unroll_scope {}v", n);
  s.move("vectorize_scope {}l", n);
}

// A as [tile][k][row], in scratch of the thread that owns the block `at`, or of all if A is packed before everything
// else. The copy's scopes are ap_0 (rows) and ap_1 (k).
void pack_rows(Script& s, const std::string& a, const std::string& at, int64_t mr, const char* tail) {
  s.move("create_temporary {} ap at={}", a, at);
  if (at != "root") s.move("move_to_stack ap {}", at);  // before its layout: a temporary that shrinks lies plainly
  s.move("tile_buffer ap 0 {}", mr);
  s.move("swap_dims ap 1 2");
  s.move("tile_scope ap_0 {} tail={} as apt,apr", mr, tail);
  s.move("tensorize apr transpose");
  if (at == "root") s.move("parallelize apt");
}

// The layout [n / nr, k, n % nr].
void pack_panels(Script& s, const std::string& b, int b_n, int64_t nr) {
  s.move("tile_buffer {} {} {}", b, b_n, nr);
  for (const auto part : {LayoutDim::Part::inner, LayoutDim::Part::outer}) {
    const Buffer* buffer = s.kernel().find_buffer(b);
    const auto at =
        std::find_if(buffer->layout.begin(), buffer->layout.end(), [&](const LayoutDim& d) { return d.part == part; });
    const size_t from = static_cast<size_t>(at - buffer->layout.begin());
    const size_t to = part == LayoutDim::Part::inner ? buffer->layout.size() - 1 : 0;
    if (from != to && at != buffer->layout.end()) s.move("swap_dims {} {} {}", b, from, to);
  }
}

// A panel of B that lies with unit-stride k is transposed into scratch before the tiles that use it. The copy's scopes
// are bt_0 and bt_1, in the order of B's dimensions.
void transpose_panel(Script& s, const std::string& b, bool n_first) {
  s.move("create_temporary {} bt at=n0", b);
  s.move("move_to_stack bt n0");
  if (n_first) s.move("swap_dims bt 0 1");
  s.move("tensorize bt_0 transpose");
}

// A panel of B that lies row-major, copied together before the tiles that use it. The copy's scopes are bp_0 and bp_1,
// in the order of B's dimensions: k and n.
void copy_panel(Script& s, const std::string& b, int64_t lanes, const char* tail) {
  s.move("create_temporary {} bp at=n0", b);
  s.move("move_to_stack bp n0");
  vectorize_tile(s, "bp_1", 0, 1, lanes, tail);
}

}  // namespace

MatmulSizes matmul_sizes(const MatmulParts& p, const Problem& problem) {
  return {extent_at(p.m->extent, problem), extent_at(p.n->extent, problem), extent_at(p.k->extent, problem),
          interval(p.m->extent, Ranges(problem.kernel)).hi};
}

Result<MatmulSetting> matmul_setting(const Knobs& knobs, const Target& t) {
  const MatmulSetting s = {knob_of(knobs, "mr"),      knob_of(knobs, "nr"),      knob_of(knobs, "st", 1),
                           knob_of(knobs, "kc"),      knob_of(knobs, "mc"),      knob_of(knobs, "pf"),
                           knob_of(knobs, "pa") != 0, knob_of(knobs, "ep") != 0, knob_of(knobs, "mu") != 0,
                           knob_of(knobs, "pb") != 0, knob_of(knobs, "gh") != 0, knob_of(knobs, "dk") != 0};
  if (s.mr < 1) return unsupported("mr {}: a tile has rows", s.mr);
  if (s.nr < t.lanes || s.nr % t.lanes != 0) return unsupported("nr {}: whole vectors of {}", s.nr, t.lanes);
  if (s.st < 1 || s.kc < 0 || s.mc < 0 || s.pf < -1)
    return unsupported("st {} kc {} mc {} pf {}: out of range", s.st, s.kc, s.mc, s.pf);
  return s;
}

Result<Scheduled> matmul_script(const Knobs& knob, const Problem& problem, const Target& t) {
  const Kernel& kernel = problem.kernel;
  const MatmulParts p = matmul_parts(kernel);
  if (!p.valid) return unsupported("not a matmul nest");
  const MatmulSizes size = matmul_sizes(p, problem);
  LATHE_ASSIGN(const MatmulSetting setting, matmul_setting(knob, t));
  const int64_t mr = setting.mr, nr = setting.nr, st = setting.st, pf = setting.pf;
  const int64_t mc = setting.block_rows(), kc = setting.ep ? size.k : matmul_block_depth(setting.kc, size.k);
  const std::string c = p.product->target, b = (*p.b)->name, m = p.m->iter, k = p.k->iter;
  const Panels panels = panels_of(p, kernel);
  const Dots dots = setting.dk ? matmul_dots(p, problem, t) : Dots{};
  if (setting.dk && dots.columns == 0) return unsupported("dk 1: no columns to be summed along K");
  const char* n_tail = tail_of(setting.dk ? Expr(dots.whole) : p.n->extent, nr * st, kernel);
  const char* vector_tail = std::string_view(n_tail) == "exact" ? "exact" : "mask";

  Script s(kernel);
  const std::vector<const Stmt*> batches = scopes_with_role(kernel, "batch");
  const std::string n = setting.dk ? split_dots(s, p, dots) : p.n->iter;
  if (setting.dk && dots.whole == 0) {
    schedule_dots(s, p, dots, mc, t);
    if (!batches.empty() || mc != 0) s.move("parallelize {}", batches.empty() ? "mm" : batches.front()->iter);
    return std::move(s).finish(kMatmulRecipe, knob);
  }
  std::string rows = m;
  if (mc != 0) {
    s.move("tile_scope {} {} tail={} as mm,mi", m, mc, tail_of(p.m->extent, mc, kernel));
    rows = "mi";
  }
  s.move("tile_scope {} {} tail={} as m0,m1", rows, mr, mc != 0 ? "mask" : tail_of(p.m->extent, mr, kernel));
  s.move("tile_scope {} {} tail={} as n0,n1", n, nr * st, n_tail);
  if (kc != 0) s.move("tile_scope {} {} tail={} as k0,k1", k, kc, tail_of(p.k->extent, kc, kernel));
  const std::string steps = kc != 0 ? "k1" : k;
  s.move("swap_scopes m1 n0");
  s.move("swap_scopes m0 n0");
  for (size_t h = p.sharing.size(); setting.gh && h > 0; --h) s.move("swap_scopes {} n0", p.sharing[h - 1]->iter);
  s.move("split_scope n1 after=0 as n1b");
  s.move("split_scope n1b after=0 as n1c");
  s.move("split_scope m1 after=0 as m1b");
  s.move("split_scope m1b after=0 as m1c");
  if (kc != 0) {
    s.move("swap_scopes n1b k0");
    s.move("swap_scopes m1b k0");
  }
  s.move("swap_scopes n1b {}", steps);
  s.move("swap_scopes m1b {}", steps);

  if (panels == Panels::packed) {
    pack_panels(s, b, p.b_n, nr);
  } else if (panels == Panels::transposed) {
    transpose_panel(s, b, p.b_n < p.b_k);
  } else if (setting.pb) {
    copy_panel(s, b, t.lanes, vector_tail);
  }
  const std::vector<const Stmt*> batch = scopes_with_role(s.kernel(), "batch");
  const bool all_share = setting.gh && p.sharing.size() == batch.size();
  const std::string outermost = !batch.empty() && !all_share ? batch.front()->iter : mc != 0 ? "mm" : "n0";
  if (setting.pa) {
    const std::string at = mc != 0 ? "mm" : batch.empty() ? "root" : batch.back()->iter;
    pack_rows(s, (*p.a)->name, at, mr, mc != 0 ? "mask" : tail_of(p.m->extent, mr, kernel));
  }

  if (kc == 0) {
    for (const char* rows_scope : {"m1", "m1b", "m1c"}) s.move("unroll_scope {}", rows_scope);
    for (const char* columns : {"n1", "n1b", "n1c"}) vectorize_tile(s, columns, nr, st, t.lanes, vector_tail);
    s.move("move_to_register {} m0", c);
    if (setting.mu) s.move("unroll_scope m0");
  } else {
    s.move("split_scope m0 after=0 as m0b");
    s.move("split_scope m0b after=0 as m0c");
    s.move("swap_scopes m0b k0");
    s.move("create_temporary {} ct at=m0b mode=accumulate", c);
    s.move("move_to_register ct m0b");
    s.move("move_to_stack {} n0", c);
    // Children of the tile: load of partial sums, tensor loop, store; each but the loop is an m scope around an n
    // scope.
    std::vector<std::pair<std::string, std::string>> copies;
    if (const Stmt* tile = find_scope(s.kernel(), "m0b")) {
      for (const Stmt& child : tile->body) {
        if (child.kind == Stmt::Kind::scope && child.iter != steps && !child.body.empty()) {
          copies.emplace_back(child.iter, child.body[0].iter);  // a statement's is empty: one column
        }
      }
    }
    copies.emplace_back("m1b", "n1b");
    for (const auto& [row, column] : copies) {
      s.move("unroll_scope {}", row);
      if (!column.empty()) vectorize_tile(s, column, nr, st, t.lanes, vector_tail);
    }
    for (const char* columns : {"n1", "n1c"}) {
      s.move("tile_scope {} {} tail={} as {}v,{}l", columns, t.lanes, vector_tail, columns, columns);
      s.move("vectorize_scope {}l", columns);
    }
  }
  if (!is_const_int(p.k->extent, 1)) s.move("tensorize {} mma", steps);  // of sums with one term nothing is left
  const int64_t lines = nr * 4 * 4 / 64;                                 // cache lines of B per four steps
  for (int64_t stream = 0; pf > 0 && stream < st; ++stream) {
    s.move("prefetch {} {} ahead={} lines={}", b, steps, pf + stream * size.k * nr * 4, lines);
  }
  if (pf == -1) {
    const int64_t tiles = std::max<int64_t>(1, ((mc != 0 ? mc : size.m) + mr - 1) / mr);
    s.move("prefetch {} {} next={} lines={}", b, steps, kc != 0 ? "m0b" : "m0", (lines + tiles - 1) / tiles);
  }
  if (setting.dk) schedule_dots(s, p, dots, 0, t);
  s.move("parallelize {}", outermost);
  return std::move(s).finish(kMatmulRecipe, knob);
}

}  // namespace lathe::search
