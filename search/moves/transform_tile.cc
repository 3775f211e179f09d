// tile_scope: one scope into two, with the four ways to treat a tail. Order of execution stays.
//   mask    for n0 < ceildiv(N, T): for n1 < min(T, N - T*n0): S(T*n0 + n1)
//   exact   for n0 < N // T: for n1 < T: S(T*n0 + n1)
//   peel    the same, and for n2 < N % T: S(T*(N // T) + n2) after it
//   clamp   for n0 < ceildiv(N, T): for n1 < T: S(min(T*n0, N - T) + n1)     (some run twice)
// merge_scopes: two perfectly nested scopes become one, in the same order; undoes tile_scope, and makes one long scope
// of two short ones. What is refused has the wrong shape: there is no legality rule.
#include <set>

#include "ir/analysis/dependence.h"
#include "search/moves/footprint.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

// May an iteration run twice in a row of its neighbours? Plain assignments whose operands the scope
// leaves alone.
static bool idempotent(const Stmt& scope) {
  std::set<std::string> written;
  bool plain = true;
  for_each_stmt(scope.body, [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::assign) return;
    written.insert(s.target);
    plain = plain && s.op == AssignOp::set;
  });
  for (const Access& a : collect_accesses(scope.body)) {
    if (!a.write && written.count(a.buffer)) return false;
  }
  return plain;
}

Status apply_tile_scope(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("tile_scope", params);
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(k, move.args[0]));
  LATHE_ASSIGN(const int64_t tile, int_arg(move.args[1], "a tile size", 1, int64_t{1} << 31));
  const Ranges ranges = ranges_at(k, site.outer);
  Names names(k);
  Stmt scope = std::move(site.scope());
  const Expr extent = scope.extent, size(tile);
  const bool divisible = proves_divisible(extent, tile, ranges);
  std::string tail = move.options.at("tail");
  if (tail == "exact") LATHE_RETURN_IF_ERROR(legality.require(0, divisible, print_extent(scope)));
  if (tail == "peel")
    LATHE_RETURN_IF_ERROR(legality.require(1, proves_le(Expr(0), extent, ranges), print_extent(scope)));
  if (tail == "clamp") {
    LATHE_RETURN_IF_ERROR(legality.require(2, proves_le(size, extent, ranges), print_extent(scope)));
    LATHE_RETURN_IF_ERROR(legality.require(3, idempotent(scope)));
  }
  if (divisible) tail = "exact";
  bool shifts = false;  // by the iterator, whose larger values would be counts that there are not
  const auto counts = [&](const Expr& e) -> Expr {
    const bool shift = e->op == Op::k_shift_left || e->op == Op::k_shift_right;
    shifts = shifts || (shift && uses(e->args[1], scope.iter));
    return {};
  };
  rewrite_exprs(scope.body, counts);
  if (shifts && tail == "peel" && !proves_le(size, extent, ranges))
    return unsupported("expected a tile of at most the extent, as `{}` counts a shift", scope.iter);

  const std::string& old = scope.iter;
  std::vector<std::string> defaults = {old + "0", old + "1"};
  if (move.options.at("tail") == "peel") defaults.push_back(old + "2");
  LATHE_ASSIGN(const std::vector<std::string> created, created_names(names, move, defaults));
  const Expr outer_iter = iter(created[0]), inner_iter = iter(created[1]);

  Expr outer_extent, inner_extent = size, start = outer_iter * size;
  if (tail == "mask") {
    outer_extent = ceildiv(extent, size);
    inner_extent = ir::min(size, extent - size * outer_iter);
  } else if (tail == "clamp") {
    outer_extent = ceildiv(extent, size);
    start = ir::min(start, extent - size);
  } else {
    outer_extent = floordiv(extent, size);
  }
  std::vector<Stmt> replacement;
  std::vector<std::string> changed = created;
  Stmt rest;
  if (tail == "peel") {
    rest = make_scope(created[2], mod(extent, size), scope.body, scope.role);
    for (const auto& [from, to] : rename_scopes(rest.body, "_t", names)) changed.push_back(to->name);
    substitute_body(rest.body, {{old, floordiv(extent, size) * size + iter(created[2])}});
    follow_prefetch(rest.body, old, created[2]);
  }
  Stmt inner = make_scope(created[1], inner_extent, std::move(scope.body), scope.role);
  substitute_body(inner.body, {{old, start + inner_iter}});
  follow_prefetch(inner.body, old, created[0]);
  std::vector<Stmt> inner_body;
  inner_body.push_back(std::move(inner));
  replacement.push_back(make_scope(created[0], outer_extent, std::move(inner_body), scope.role));
  result.renamed.push_back({old, {created[0], created[1]}});
  if (tail == "peel") {
    replacement.push_back(std::move(rest));
    result.renamed.back().second.push_back(created[2]);
  }
  simplify_body(replacement, ranges, changed);

  std::vector<Stmt>& siblings = *site.siblings;
  siblings.erase(siblings.begin() + static_cast<std::ptrdiff_t>(site.index));
  siblings.insert(siblings.begin() + static_cast<std::ptrdiff_t>(site.index),
                  std::make_move_iterator(replacement.begin()), std::make_move_iterator(replacement.end()));
  return {};
}

std::vector<Move> propose_tile_scope(const Kernel& kernel) {
  std::vector<Move> out;
  for (const std::string& scope : plain_scopes(kernel)) {
    for (const char* size : {"2", "3", "4", "8", "16", "32"}) {
      for (const char* tail : {"exact", "peel", "mask", "clamp"}) {
        out.push_back({"tile_scope", {scope, size}, {{"tail", tail}}, {}});
      }
    }
  }
  return out;
}

//   for a < A: for b < B: S(a, b)  ->  for ab < A*B: S(ab // B, ab % B)
//   for a < ceildiv(N, T): for b < min(T, N - T*a): S  ->  for ab < N: S(ab // T, ab % T)
Status apply_merge_scopes(TransformResult& result, const Move& move, const TransformParams&) {
  const std::string &a = move.args[0], &b = move.args[1];
  LATHE_ASSIGN(const ScopeSite outer, find_plain_site(result.kernel, a));
  LATHE_ASSIGN(const ScopeSite inner, find_plain_site(result.kernel, b));
  if (outer.scope().body.size() != 1 || &outer.scope().body[0] != &inner.scope())
    return invalid("expected `{}` to be the only statement of `{}`", b, a);
  Ranges ranges = ranges_at(result.kernel, outer.outer);
  const Expr outer_extent = outer.scope().extent, inner_extent = inner.scope().extent;
  ranges.enter(outer.scope());
  const TilePair pair = merged_extent(a, outer_extent, inner_extent, ranges);
  if (!pair.extent) {
    return invalid("expected a constant extent of `{}`, or the tail of a tile of `{}`, got {}", b, a,
                   print_extent(inner.scope()));
  }
  Names names(result.kernel);
  LATHE_ASSIGN(const std::vector<std::string> created, created_names(names, move, {a + b}));
  const Expr merged = iter(created[0]), tile(pair.tile);
  const std::string role = inner.scope().role;
  std::vector<Stmt> body = std::move(inner.scope().body);
  substitute_body(body, {{a, floordiv(merged, tile)}, {b, mod(merged, tile)}});
  follow_prefetch(body, a, created[0]);
  follow_prefetch(body, b, created[0]);
  std::vector<Stmt> replacement;
  replacement.push_back(make_scope(created[0], pair.extent, std::move(body), role));
  simplify_body(replacement, ranges_at(result.kernel, outer.outer));
  (*outer.siblings)[outer.index] = std::move(replacement[0]);
  result.renamed = {{a, created}, {b, created}};
  return {};
}

std::vector<Move> propose_merge_scopes(const Kernel& kernel) {
  std::vector<Move> out;
  for_each_stmt(kernel.body, [&](const Stmt& s) {
    if (s.kind == Stmt::Kind::scope && s.body.size() == 1 && s.body[0].kind == Stmt::Kind::scope)
      out.push_back({"merge_scopes", {s.iter, s.body[0].iter}, {}, {}});
  });
  return out;
}

}  // namespace lathe::search
