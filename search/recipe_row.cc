// The row recipe: row reductions, elementwise chains and rope. Columns in vectors (several unrolled), scalars of a row in
// registers, rows shared out over threads.
//
//   row block (parallel) { row { col: m = max | col: e, sum | col: scale } }
#include <algorithm>

#include "ir/analysis.h"
#include "search/recipe.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

bool matches(const Problem& problem) {
  const std::string& f = problem.kernel.family;
  return (f == "row" || f == "elementwise" || f == "rope") && !scopes_with_role(problem.kernel, "col").empty();
}

std::vector<KnobDomain> knobs(const Problem& problem, const Target&) {
  std::vector<int64_t> grains = problem.threads > 1 ? std::vector<int64_t>{1, 4, 16, 64} : std::vector<int64_t>{0};
  return {{"unroll", {1, 2, 4}}, {"grain", grains}};
}

Status accepts(const Knobs& k, const Problem& problem, const Target& t) {
  const std::vector<const Stmt*> cols = scopes_with_role(problem.kernel, "col");
  const int64_t n = extent_at(cols[0]->extent, problem);
  if (k.at("unroll") > 1 && n < k.at("unroll") * t.lanes) return unsupported("unroll {}: a row has {} columns", k.at("unroll"), n);
  return {};
}

Knobs defaults(const Problem& problem, const Target& t) {
  Knobs k{{"unroll", 4}, {"grain", problem.threads > 1 ? 4 : 0}};
  while (!accepts(k, problem, t).ok()) k["unroll"] /= 2;
  return k;
}

double estimate(const Knobs& k, const Problem&, const Target&) {
  return 1.0 / static_cast<double>(k.at("unroll")) + static_cast<double>(k.at("grain")) * 1e-3;
}

// Indexed unit-stride (or not at all) by `col` everywhere under `scope`: else its statements stay scalar.
bool vectorizable(const Kernel& kernel, const Stmt& col) {
  bool ok = true;
  const auto check = [&](const std::string& name, const std::vector<Expr>& index) {
    const Buffer* b = kernel.find_buffer(name);
    for (size_t d = 0; d < index.size(); ++d) {
      if (!uses(index[d], col.iter)) continue;
      const bool unit = b->strides.empty() ? d + 1 == index.size() : is_const_int(b->strides[d], 1) || is_const_int(b->strides[d], 0);
      const std::optional<AffineForm> form = affine_form(index[d]);
      ok &= unit && form && is_const_int(simplify(form->coeff(col.iter)), 1);
    }
  };
  for_each_stmt(col.body, [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::assign) return;
    check(s.target, s.index);
    for_each_node(s.value, [&](const ExprNode& n) {
      if (n.op == Op::k_load) check(n.name, n.args);
    });
  });
  return ok;
}

void vectorize_columns(Script& s, const Stmt& col, int64_t unroll, int64_t lanes) {
  const std::string c = col.iter;
  const Ranges ranges(s.kernel());
  if (unroll == 1) {
    const char* tail = proves_divisible(col.extent, lanes, ranges) ? "exact" : "mask";
    s.move("tile_scope {} {} tail={} as {}v,{}l", c, lanes, tail, c, c);
    s.move("vectorize_scope {}l", c);
    return;
  }
  const bool whole = proves_divisible(col.extent, unroll * lanes, ranges);
  if (whole) {
    s.move("tile_scope {} {} tail=exact as {}b,{}i", c, unroll * lanes, c, c);
  } else {
    s.move("tile_scope {} {} tail=peel as {}b,{}i,{}t", c, unroll * lanes, c, c, c);
    s.move("tile_scope {}t {} tail=mask as {}tv,{}tl", c, lanes, c, c);
    s.move("vectorize_scope {}tl", c);
  }
  s.move("tile_scope {}i {} tail=exact as {}u,{}l", c, lanes, c, c);
  s.move("vectorize_scope {}l", c);
  s.move("unroll_scope {}u", c);
}

Result<Schedule> build(const Knobs& knob, const Problem& problem, const Target& t) {
  Script s(problem.kernel);
  const std::vector<const Stmt*> rows = scopes_with_role(problem.kernel, "row");
  std::vector<const Stmt*> cols = scopes_with_role(problem.kernel, "col");
  const int64_t grain = knob.at("grain");
  if (!rows.empty()) {
    for (const Buffer& b : problem.kernel.buffers) {
      if (b.place == Place::heap && b.dims.size() == rows.size()) s.move("move_to_register {} {}", b.name, rows.back()->iter);
    }
  }
  std::string block;
  if (grain != 0 && !rows.empty()) {
    s.move("tile_scope {} {} tail=mask as rows,{}r", rows[0]->iter, grain, rows[0]->iter);
    block = "rows";
  } else if (grain != 0 && cols.size() == 1 && extent_at(cols[0]->extent, problem) > 2048) {
    s.move("tile_scope {} {} tail=mask as blocks,{}c", cols[0]->iter, 1024 * grain, cols[0]->iter);
    block = "blocks";
    cols = {find_scope(s.kernel(), cols[0]->iter + "c")};
    if (cols[0] == nullptr) return s.finish(kRowRecipe, knob);
  }
  std::vector<std::string> names;
  for (const Stmt* c : cols) names.push_back(c->iter);
  for (const std::string& name : names) {
    const Stmt* col = find_scope(s.kernel(), name);
    if (col == nullptr) break;
    const Stmt copy = *col;
    if (vectorizable(s.kernel(), copy)) vectorize_columns(s, copy, knob.at("unroll"), t.lanes);
  }
  if (!block.empty()) s.move("parallelize {}", block);
  return s.finish(kRowRecipe, knob);
}

}  // namespace

const Recipe kRowRecipe = {"rows", 1, matches, knobs, accepts, defaults, build, estimate};

}  // namespace lathe::search
