// skip_replaced: see last_rows.h. What an iteration stores and a later one of the same scope replaces is not stored.
#include <algorithm>

#include "ir/core/names.h"
#include "search/moves/last_rows.h"
#include "search/moves/legality.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {

// The integers of an input, one for each iteration, that indices of what is stored read; empty: there are none.
std::string integers_of(const Kernel& kernel, const std::vector<Access>& accesses, const std::string& t) {
  std::string out;
  for (const Access& a : accesses) {
    for (const Expr& i : a.index) {
      if (!a.write || !is_param(kernel.find_buffer(a.buffer)->place) || !out.empty()) continue;
      for_each_node(i, [&](const ExprNode& n) {
        const bool own = n.op == Op::k_load && n.args.size() == 1 && equal(n.args[0], iter(t));
        if (own && kernel.find_buffer(n.name)->values) out = n.name;
      });
    }
  }
  return out;
}

// Whether it is the same in all iterations of t in which named[t] is.
bool follows_integer(const Kernel& kernel, const Expr& e, const std::string& t, const std::string& named) {
  bool written = false;
  for_each_node(
      e, [&](const ExprNode& n) { written |= n.op == Op::k_load && !is_input(kernel.find_buffer(n.name)->place); });
  const Expr rest = rewrite(e, [&](const Expr& n) -> Expr {
    const bool own = n->op == Op::k_load && n->name == named && equal(n->args[0], iter(t));
    return own ? const_int(0, n->type) : Expr();
  });
  return !written && !uses(rest, t);
}

}  // namespace

Status apply_skip_replaced(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("skip_replaced", params);
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(k, move.args[0]));
  const std::string t = move.args[0];
  bool plain = true;
  for_each_node(site.scope().extent, [&](const ExprNode& n) { plain &= n.op != Op::k_load && n.op != Op::k_iter; });
  if (!plain) return invalid("expected an extent of symbols, got {}", print_extent(site.scope()));
  const std::vector<Access> accesses = collect_accesses(site.scope().body, site.path());
  const std::string named = integers_of(k, accesses, t);
  if (named.empty()) return invalid("expected `{}` to store to rows that integers of an input name", t);
  const DType type = k.find_buffer(named)->type;
  if (type != DType::i32 && type != DType::i64) return invalid("expected integers of i32 or i64, got `{}`", named);

  std::string why, others;
  for (const Access& a : accesses) {
    const Buffer& b = *k.find_buffer(a.buffer);
    if (is_input(b.place)) continue;
    if (!is_param(b.place)) {
      if (why.empty()) (void)lives_inside(k, b.name, site.path(), &why);
      continue;
    }
    if (!a.write || a.reduction) why = b.name;
    bool same = true;
    for (const Expr& i : a.index) same = same && follows_integer(k, i, t, named);
    for (size_t s = site.outer.size() + 1; s < a.scopes.size(); ++s)
      same = same && follows_integer(k, a.scopes[s]->extent, t, named);
    if (!same) others = b.name;
  }
  LATHE_RETURN_IF_ERROR(legality.require(0, why.empty(), why));
  LATHE_RETURN_IF_ERROR(legality.require(1, others.empty(), others));

  Names names(k);
  LATHE_ASSIGN(const std::vector<std::string> created,
               created_names(names, move, {t + "_later", t + "_last", t + "_a", t + "_b", t + "_once"}));
  const LastNames made{named, created[0], created[1], created[2], created[3]};
  Stmt& scope = site.scope();
  std::vector<Stmt> body;
  const Expr last = cast(DType::i64, load(made.kept, {iter(t)}, DType::i32));
  body.push_back(make_scope(created[4], last, std::move(scope.body)));
  scope.body = std::move(body);
  for (const std::string& name : {made.later, made.kept}) {
    Buffer b;
    b.name = name;
    b.type = DType::i32;
    b.dims = {scope.extent};
    b.place = Place::heap;
    if (name == made.kept) b.values = {Expr(0), Expr(1)};
    k.buffers.push_back(std::move(b));
  }
  const Stmt* top = site.outer.empty() ? &scope : site.outer.front();
  k.body.insert(k.body.begin() + (top - k.body.data()), last_nest(made, scope.extent, type));
  return {};
}

std::vector<Move> propose_skip_replaced(const Kernel& kernel) {
  std::vector<Move> out;
  for (const std::string& scope : plain_scopes(kernel)) out.push_back({"skip_replaced", {scope}, {}, {}});
  return out;
}

}  // namespace lathe::search
