// hold_bytes: a factor of a sum of integers that is made of few bits is made before, in bytes, for all that use it
// inside one iteration of a scope around. It changes no number.
//
//   for g: for m: for k: s[m] += i32(x[m, k]) * f(q[g, k])
//     ->  for g: for h_0: h[h_0] = u8(f(q[g, h_0])); for m: for k: s[m] += i32(x[m, k]) * i32(h[k])
#include <algorithm>

#include "ir/analysis/grouped_weight.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {

// What a factor is made of by operations on integers, rather than read as it lies.
bool is_made(const Expr& factor) { return factor->type == DType::i32 && unwidened(factor)->op != Op::k_load; }

// The only statement of scopes perfectly nested in one another, s += x * y of integers; null: it is another one.
Stmt* product_in(Stmt& scope, std::vector<Stmt*>& scopes) {
  Stmt* at = &scope;
  for (; at->kind == Stmt::Kind::scope; at = &at->body[0]) {
    if (at->body.size() != 1 || at->mark == Mark::tensor) return nullptr;
    scopes.push_back(at);
  }
  const bool sums = at->kind == Stmt::Kind::assign && at->op == AssignOp::add && at->value->op == Op::k_mul &&
                    at->value->type == DType::i32;
  return sums && is_made(at->value->args[0]) != is_made(at->value->args[1]) ? at : nullptr;
}

}  // namespace

Status apply_hold_bytes(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("hold_bytes", params);
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(k, move.args[0]));
  const std::string& at = move.options.at("at");
  const auto owner = std::find_if(site.outer.begin(), site.outer.end(), [&](const Stmt* s) { return s->iter == at; });
  if (owner == site.outer.end()) return invalid("expected at= to name a scope around `{}`, got `{}`", move.args[0], at);
  if (inside_shared_out(site.outer))
    return invalid("expected `{}` outside of scopes that are shared out", move.args[0]);
  std::vector<Stmt*> scopes;
  Stmt* sum = product_in(site.scope(), scopes);
  if (sum == nullptr)
    return invalid("expected `{}` to sum products of integers alone, one factor being made of others", move.args[0]);
  const size_t side = is_made(sum->value->args[0]) ? 0 : 1;
  const Expr factor = sum->value->args[side];
  const Interval values = range_of_i32(factor);
  LATHE_RETURN_IF_ERROR(legality.require(0, values.lo >= 0 && values.hi <= 255, print(factor)));
  bool given = true;
  for_each_node(factor, [&](const ExprNode& n) {
    given = given && (n.op != Op::k_load || is_input(k.find_buffer(n.name)->place));
  });
  LATHE_RETURN_IF_ERROR(legality.require(1, given, print(factor)));

  // A dimension for each scope between that the factor depends on.
  std::vector<const Stmt*> inside(owner + 1, site.outer.end());
  inside.insert(inside.end(), scopes.begin(), scopes.end());
  Names names(k);
  LATHE_ASSIGN(const std::vector<std::string> created, created_names(names, move, {sum->target + "_h"}));
  const Ranges around = ranges_at(k, ScopePath(site.outer.begin(), owner + 1));
  Buffer held;
  held.name = created[0];
  held.type = DType::u8;
  held.place = Place::heap;
  std::vector<const Stmt*> used;
  std::vector<Expr> read, written;
  Renaming own;
  for (const Stmt* s : inside) {
    if (!uses(factor, s->iter)) continue;
    const bool varies =
        std::any_of(inside.begin(), inside.end(), [&](const Stmt* o) { return uses(s->extent, o->iter); });
    const Interval extent = interval(s->extent, around);
    if (varies || extent.hi == INT64_MAX)
      return invalid("expected `{}` to have an extent that is known outside, got {}", s->iter, print_extent(*s));
    read.push_back(iter(s->iter));
    written.push_back(iter(names.fresh(fmt::format("{}_{}", held.name, used.size()))));
    own.emplace_back(s->iter, written.back());
    held.dims.emplace_back(std::max<int64_t>(extent.hi, 1));
    used.push_back(s);
  }
  Stmt nest = make_assign(held.name, written, AssignOp::set, cast(DType::u8, substitute(factor, own)));
  for (size_t d = used.size(); d-- > 0;) {
    std::vector<Stmt> body;
    body.push_back(std::move(nest));
    nest = make_scope(written[d]->name, used[d]->extent, std::move(body), used[d]->role);
  }
  std::vector<Expr> factors = sum->value->args;
  factors[side] = cast(DType::i32, load(held.name, read, DType::u8));
  sum->value = factors[0] * factors[1];
  LATHE_ASSIGN(const BodySite body, find_body(k, at));
  body.body->insert(body.body->begin(), std::move(nest));
  k.buffers.push_back(std::move(held));
  return {};
}

std::vector<Move> propose_hold_bytes(const Kernel& kernel) {
  std::vector<Move> out;
  for (const std::string& scope : plain_scopes(kernel)) {
    Stmt copy = *find_scope(kernel, scope);
    std::vector<Stmt*> scopes;
    if (product_in(copy, scopes) == nullptr) continue;
    for_each_stmt(kernel.body, [&](const Stmt& s) {
      if (s.kind != Stmt::Kind::scope || s.iter == scope) return;
      bool around = false;
      for_each_stmt(s.body, [&](const Stmt& c) { around |= c.kind == Stmt::Kind::scope && c.iter == scope; });
      if (around) out.push_back({"hold_bytes", {scope}, {{"at", s.iter}}, {}});
    });
  }
  return out;
}

}  // namespace lathe::search
