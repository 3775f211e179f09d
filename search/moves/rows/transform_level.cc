// level_scope, bound_scope: scopes of which each outer iteration has others, or another number, become scopes of as
// many iterations in any case, of which some do nothing. Order of execution stays where it matters.
#include <algorithm>

#include "search/moves/footprint.h"
#include "search/moves/legality.h"
#include "search/moves/more_iterations.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {

constexpr int64_t kMaxSize = int64_t{1} << 30;

// Of what the scope writes: the row that its iteration i has, base + i, and how many rows there are. Null: not known.
struct Rows {
  Expr base, count;
};
Rows rows_of(const Kernel& kernel, const std::vector<Access>& accesses, const std::string& scope) {
  for (const Access& a : accesses) {
    if (!a.write) continue;
    for (size_t d = 0; d < a.index.size(); ++d) {
      const auto linear = linear_in(a.index[d], {scope});
      if (linear && linear->terms.size() == 1 && linear->terms[0].second == 1)
        return {linear->base, kernel.find_buffer(a.buffer)->dims[d]};
    }
  }
  return {};
}

// The buffer that is written and not always used at its row; empty: there is none.
std::string used_elsewhere(const std::vector<Access>& accesses, const Expr& row) {
  for (const Access& w : accesses) {
    if (!w.write) continue;
    bool own = false;
    for (size_t d = 0; d < w.index.size() && !own; ++d) {
      own = std::all_of(accesses.begin(), accesses.end(),
                        [&](const Access& a) { return a.buffer != w.buffer || equal(simplify(a.index[d]), row); });
    }
    if (!own) return w.buffer;
  }
  return {};
}

// The most that an index is: what is read may have its largest value, iterators their last. Null: not known.
Expr most_of(const Expr& e, const Kernel& kernel, const ScopePath& outer) {
  Expr out = e;
  bool known = true;
  for (size_t i = outer.size(); i-- > 0;) {
    const Stmt& s = *outer[i];
    if (!uses(out, s.iter)) continue;
    bool loaded = false;  // only where it says which element is read
    const Expr none = rewrite(out, [&](const Expr& n) -> Expr { return n->op == Op::k_load ? Expr(0) : Expr(); });
    loaded = !uses(none, s.iter);
    if (!loaded) out = simplify(substitute(out, {{s.iter, s.extent - Expr(1)}}));
  }
  out = rewrite(out, [&](const Expr& n) -> Expr {
    const Expr& load = n->op == Op::k_cast ? n->args[0] : n;
    if (load->op != Op::k_load || n->type != DType::i64) return {};
    const Expr& hi = kernel.find_buffer(load->name)->values.hi;
    known &= static_cast<bool>(hi);
    return hi;
  });
  return known ? simplify(out) : Expr();
}

}  // namespace

//   for t < B: for i < E(t): S(base(t) + i, i)
//   ->  for r < R: for t < B: for once < min(1, min(r - base(t) + 1, E(t) - (r - base(t)))): S(r, r - base(t))
Status apply_level_scope(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("level_scope", params);
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(k, move.args[0]));
  LATHE_ASSIGN(const ScopeSite outer, find_plain_site(k, move.args[1]));
  const std::string i = move.args[0];
  const auto at = std::find(site.outer.begin(), site.outer.end(), &outer.scope());
  const bool nested =
      at != site.outer.end() && std::all_of(at, site.outer.end(), [](const Stmt* s) { return s->body.size() == 1; });
  if (!nested) return invalid("expected `{}` to hold `{}` and nothing else", move.args[1], i);
  const Ranges ranges = ranges_at(k, site.outer);
  const Expr extent = simplify(site.scope().extent, ranges);
  const std::vector<Access> accesses = collect_accesses(site.scope().body, site.path());
  const Rows rows = rows_of(k, accesses, i);
  if (!rows.base) return invalid("expected `{}` to count rows of what it writes", i);
  const Expr row = simplify(rows.base + iter(i));
  const std::string other = used_elsewhere(accesses, row);
  LATHE_RETURN_IF_ERROR(legality.require(0, other.empty(), other));
  const bool inside =
      surely_le(Expr(0), rows.base, ranges) && surely_le(simplify(rows.base + extent, ranges), rows.count, ranges);
  LATHE_RETURN_IF_ERROR(legality.require(1, inside));

  Names names(k);
  LATHE_ASSIGN(const std::vector<std::string> created, created_names(names, move, {i + "_row", i + "_one"}));
  const Expr r = iter(created[0]), own = r - rows.base;
  Stmt& scope = site.scope();
  scope.iter = created[1];
  scope.extent = min(Expr(1), min(own + Expr(1), extent - own));
  for_each_stmt(scope.body, [&](Stmt& s) {
    for (Expr& e : s.index) e = equal(simplify(e), row) ? r : e;
  });
  rewrite_exprs(scope.body, [&](const Expr& e) -> Expr {
    if (e->op != Op::k_load) return {};
    std::vector<Expr> index = e->args;
    for (Expr& d : index) d = equal(simplify(d), row) ? r : d;
    return load(e->name, index, e->type);
  });
  // It is below the extent wherever this runs; so said, that is known inside.
  substitute_body(scope.body, {{i, min(own, extent - Expr(1))}});
  Stmt all = make_scope(created[0], rows.count, {std::move(outer.scope())}, scope.role);
  outer.scope() = std::move(all);
  simplify_body(outer.scope().body, ranges_at(k, outer.path()));
  result.renamed.push_back({i, created});
  return {};
}

std::vector<Move> propose_level_scope(const Kernel& kernel) {
  std::vector<Move> out;
  for_each_stmt(kernel.body, [&](const Stmt& s) {
    for (const Stmt* inner = &s; inner->body.size() == 1 && inner->body[0].kind == Stmt::Kind::scope;) {
      inner = &inner->body[0];
      out.push_back({"level_scope", {inner->iter, s.iter}, {}, {}});
    }
  });
  return out;
}

//   for n < E: S(n)  ->  for n0 < most of E, or a size: for n1 < min(1, E - n0): S(n0)
Status apply_bound_scope(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("bound_scope", params);
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(k, move.args[0]));
  const Ranges ranges = ranges_at(k, site.outer);
  Stmt& scope = site.scope();
  const auto size = move.options.find("size");
  Expr most;
  if (size == move.options.end()) {
    most = most_of(scope.extent, k, site.outer);
  } else {
    LATHE_ASSIGN(const int64_t all, int_arg(size->second, "a number of iterations", 1, kMaxSize));
    most = Expr(all);
    if (computes_with(scope.body, scope.iter))
      return invalid("expected `{}` in indices alone, of which there are to be more", scope.iter);
  }
  if (!most) return invalid("expected values that bound the extent of `{}`, got {}", scope.iter, print_extent(scope));
  LATHE_RETURN_IF_ERROR(legality.require(0, surely_le(scope.extent, most, ranges), print_extent(scope)));
  Names names(k);
  LATHE_ASSIGN(const std::vector<std::string> created,
               created_names(names, move, {scope.iter + "0", scope.iter + "1"}));
  const Expr outer_iter = iter(created[0]);
  Stmt inner = make_scope(created[1], min(Expr(1), scope.extent - outer_iter), std::move(scope.body), scope.role);
  substitute_body(inner.body, {{scope.iter, outer_iter}});
  follow_prefetch(inner.body, scope.iter, created[0]);
  result.renamed.push_back({scope.iter, created});
  scope.iter = created[0];
  scope.extent = most;
  scope.body = {std::move(inner)};
  simplify_body(scope.body, ranges_at(k, site.path()));
  return {};
}

std::vector<Move> propose_bound_scope(const Kernel& kernel) {
  std::vector<Move> out;
  for (const std::string& scope : plain_scopes(kernel)) {
    if (!is_const_int(find_scope(kernel, scope)->extent)) out.push_back({"bound_scope", {scope}, {}, {}});
    out.push_back({"bound_scope", {scope}, {{"size", "16"}}, {}});
  }
  return out;
}

}  // namespace lathe::search
