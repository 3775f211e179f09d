// merge_scopes: two perfectly nested scopes become one, in the same order; undoes tile_scope, and makes one long scope
// of two short ones. What is refused has the wrong shape: the order of execution stays, so there is no legality rule.
#include "search/moves/footprint.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

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
