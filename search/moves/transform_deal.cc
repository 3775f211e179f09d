// deal_scope: the iterations of a scope go to threads by turns, as cards to players, so that neighbours in an order of
// memory belong to neighbours among threads.
//   for n < N: S(n)  ->  for t < min(T, N): for i < ceildiv(N - t, T): S(T*i + t)
#include "search/moves/legality.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

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

}  // namespace lathe::search
