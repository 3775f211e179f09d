// Moves that change the order of execution: swap_scopes, deal_scope, join_scopes, split_scope, swap_ops. Tiling
// has its own file.
#include "search/moves/legality.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

//   for a: for b: S  ->  for b: for a: S
// Legal if all dependences stay inside one iteration of a, or inside one of b wherever a stands:
// the latter is asked of the result.
Status apply_swap_scopes(TransformResult& result, const Move& move, const TransformParams& params) {
  const Legality legality("swap_scopes", params);
  const std::string &a = move.args[0], &b = move.args[1];
  LATHE_ASSIGN(const ScopeSite outer, find_plain_site(result.kernel, a));
  LATHE_ASSIGN(const ScopeSite inner, find_plain_site(result.kernel, b));
  if (outer.scope().body.size() != 1 || &outer.scope().body[0] != &inner.scope()) {
    return invalid("expected `{}` to be the only statement of `{}`", b, a);
  }
  if (uses(inner.scope().extent, a)) return invalid("expected an extent of `{}` that does not depend on `{}`", b, a);
  bool role = false;
  for_each_stmt(inner.scope().body, [&](const Stmt& s) { role |= s.mark == Mark::role; });
  if (role) return invalid("expected no @role scope inside `{}`, which fills places in the order of the loops", b);
  bool swapped = false;
  const auto swap = [&] {
    std::swap(outer.scope().iter, inner.scope().iter);
    std::swap(outer.scope().extent, inner.scope().extent);
    std::swap(outer.scope().role, inner.scope().role);
    swapped = !swapped;
  };
  // Exact if it can be; else a reduction in another order.
  Answer answer;
  for (const bool reductions : {false, true}) {
    if (swapped) swap();
    answer = independent(result.kernel, a, {reductions, b, {}});
    if (answer.ok) break;
    swap();
    answer = independent(result.kernel, b, {reductions, a, {}});
    if (answer.ok) break;
  }
  if (!swapped) swap();
  LATHE_RETURN_IF_ERROR(legality.require(0, answer.ok, answer.why));
  if (answer.reassociates) result.kernel.numeric |= kReassociate;
  return {};
}

std::vector<Move> propose_swap_scopes(const Kernel& kernel) {
  std::vector<Move> out;
  for_each_stmt(kernel.body, [&](const Stmt& s) {
    if (s.kind == Stmt::Kind::scope && s.body.size() == 1 && s.body[0].kind == Stmt::Kind::scope) {
      out.push_back({"swap_scopes", {s.iter, s.body[0].iter}, {}, {}});
    }
  });
  return out;
}

//   for n < N: S(n)  ->  for t < min(T, N): for i < ceildiv(N - t, T): S(T*i + t)
// The iterations go to threads by turns, as cards to players: neighbours in memory belong to neighbours among threads.
Status apply_deal_scope(TransformResult& result, const Move& move, const TransformParams& params) {
  const Legality legality("deal_scope", params);
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(result.kernel, move.args[0]));
  LATHE_ASSIGN(const int64_t size, int_arg(move.args[1], "a number of threads", 1, int64_t{1} << 16));
  Answer answer;
  for (const bool reductions : {false, true}) {
    answer = independent(result.kernel, move.args[0], {.allow_reductions = reductions, .private_to = move.args[0]});
    if (answer.ok) break;
  }
  LATHE_RETURN_IF_ERROR(legality.require(0, answer.ok, answer.why));
  if (answer.reassociates) result.kernel.numeric |= kReassociate;

  const Ranges ranges = ranges_at(result.kernel, site.outer);
  Names names(result.kernel);
  Stmt scope = std::move(site.scope());
  LATHE_ASSIGN(const std::vector<std::string> created,
               created_names(names, move, {scope.iter + "t", scope.iter + "i"}));
  const Expr thread = iter(created[0]), turn = iter(created[1]), players(size);
  Stmt inner = make_scope(created[1], ceildiv(scope.extent - thread, players), std::move(scope.body), scope.role);
  substitute_body(inner.body, {{scope.iter, players * turn + thread}});
  follow_prefetch(inner.body, scope.iter, created[1]);
  std::vector<Stmt> body;
  body.push_back(std::move(inner));
  std::vector<Stmt> replacement;
  replacement.push_back(make_scope(created[0], ir::min(players, scope.extent), std::move(body), scope.role));
  simplify_body(replacement, ranges, created);
  result.renamed.push_back({scope.iter, created});
  site.scope() = std::move(replacement[0]);
  return {};
}

std::vector<Move> propose_deal_scope(const Kernel& kernel) {
  std::vector<Move> out;
  for (const std::string& scope : plain_scopes(kernel)) {
    for (const char* size : {"4", "32", "256"}) out.push_back({"deal_scope", {scope, size}, {}, {}});
  }
  return out;
}

//   for a < N: S; for b < N: T  ->  for a < N: S; T
Status apply_join_scopes(TransformResult& result, const Move& move, const TransformParams& params) {
  const Legality legality("join_scopes", params);
  const std::string &a = move.args[0], &b = move.args[1];
  LATHE_ASSIGN(const ScopeSite first, find_plain_site(result.kernel, a));
  LATHE_ASSIGN(const ScopeSite second, find_plain_site(result.kernel, b));
  if (first.siblings != second.siblings || first.index + 1 != second.index) {
    return invalid("expected `{}` to stand just after `{}`", b, a);
  }
  const Ranges ranges = ranges_at(result.kernel, first.outer);
  if (!equal(simplify(first.scope().extent, ranges), simplify(second.scope().extent, ranges))) {
    return invalid("expected `{}` and `{}` to have equal extents", a, b);
  }
  Stmt moved = std::move(second.scope());
  substitute_body(moved.body, {{b, iter(a)}});
  follow_prefetch(moved.body, b, a);
  std::vector<Stmt>& body = first.scope().body;
  const size_t at = body.size();
  body.insert(body.end(), std::make_move_iterator(moved.body.begin()), std::make_move_iterator(moved.body.end()));
  second.siblings->erase(second.siblings->begin() + static_cast<std::ptrdiff_t>(second.index));
  result.renamed.push_back({b, {a}});

  const Answer answer = separable(result.kernel, a, at);
  LATHE_RETURN_IF_ERROR(legality.require(0, answer.ok, answer.why));
  if (answer.reassociates) result.kernel.numeric |= kReassociate;
  return {};
}

static void propose_joins(const std::vector<Stmt>& body, std::vector<Move>& out) {
  for (size_t i = 0; i < body.size(); ++i) {
    propose_joins(body[i].body, out);
    if (i + 1 < body.size() && body[i].kind == Stmt::Kind::scope && body[i + 1].kind == Stmt::Kind::scope) {
      out.push_back({"join_scopes", {body[i].iter, body[i + 1].iter}, {}, {}});
    }
  }
}

std::vector<Move> propose_join_scopes(const Kernel& kernel) {
  std::vector<Move> out;
  propose_joins(kernel.body, out);
  return out;
}

//   for a < N: S; T  ->  for a < N: S; for a2 < N: T
Status apply_split_scope(TransformResult& result, const Move& move, const TransformParams& params) {
  const Legality legality("split_scope", params);
  const std::string& a = move.args[0];
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(result.kernel, a));
  std::vector<Stmt>& body = site.scope().body;
  LATHE_ASSIGN(const int64_t after,
               int_arg(move.options.at("after"), "after", 0, static_cast<int64_t>(body.size()) - 2));
  const auto at = static_cast<std::ptrdiff_t>(after) + 1;
  const Answer answer = separable(result.kernel, a, static_cast<size_t>(at), in_segments(site.scope()));
  LATHE_RETURN_IF_ERROR(legality.require(0, answer.ok, answer.why));

  Names names(result.kernel);
  LATHE_ASSIGN(const std::vector<std::string> created, created_names(names, move, {a + "2"}));
  std::vector<Stmt> rest(std::make_move_iterator(body.begin() + at), std::make_move_iterator(body.end()));
  body.erase(body.begin() + at, body.end());
  substitute_body(rest, {{a, iter(created[0])}});
  follow_prefetch(rest, a, created[0]);
  Stmt second = make_scope(created[0], site.scope().extent, std::move(rest), site.scope().role);
  site.siblings->insert(site.siblings->begin() + static_cast<std::ptrdiff_t>(site.index) + 1, std::move(second));
  result.renamed.push_back({a, {a, created[0]}});
  if (answer.reassociates) result.kernel.numeric |= kReassociate;
  return {};
}

std::vector<Move> propose_split_scope(const Kernel& kernel) {
  std::vector<Move> out;
  for_each_stmt(kernel.body, [&](const Stmt& s) {
    for (size_t i = 0; i + 1 < s.body.size(); ++i)
      out.push_back({"split_scope", {s.iter}, {{"after", std::to_string(i)}}, {}});
  });
  return out;
}

//   S; T  ->  T; S
Status apply_swap_ops(TransformResult& result, const Move& move, const TransformParams& params) {
  const Legality legality("swap_ops", params);
  LATHE_ASSIGN(const BodySite site, find_body(result.kernel, move.args[0]));
  if (inside_mark(site.path, Mark::tensor)) return invalid("expected a scope outside @tensor scopes");
  LATHE_ASSIGN(const int64_t index,
               int_arg(move.args[1], "a statement's index", 0, static_cast<int64_t>(site.body->size()) - 2));
  Stmt &first = (*site.body)[static_cast<size_t>(index)], &second = (*site.body)[static_cast<size_t>(index) + 1];
  std::string why;
  const bool free = may_exchange(result.kernel, first, second, site.path, &why);
  LATHE_RETURN_IF_ERROR(legality.require(0, free, why));
  std::swap(first, second);
  return {};
}

static void propose_exchanges(const std::string& name, const std::vector<Stmt>& body, std::vector<Move>& out) {
  for (size_t i = 0; i < body.size(); ++i) {
    if (i + 1 < body.size()) out.push_back({"swap_ops", {name, std::to_string(i)}, {}, {}});
    propose_exchanges(body[i].iter, body[i].body, out);
  }
}

std::vector<Move> propose_swap_ops(const Kernel& kernel) {
  std::vector<Move> out;
  propose_exchanges("root", kernel.body, out);
  return out;
}

}  // namespace lathe::search
