// round_factors: both factors of a sum of products are rounded to bf16, whose products are exact in f32. hold_rounded:
// a factor that is rounded is made before, once, which changes no number.
//
//   for k: c += a[k] * t[k]  ->  for k: c += f32(bf16(a[k])) * f32(bf16(t[k]))
//   for k: c += x * f32(bf16(t[k]))  ->  for i: h[i] = bf16(t[i]); for k: c += x * f32(h[k])
#include <algorithm>

#include "ir/core/names.h"
#include "search/moves/legality.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {

// The factors of the scope's only statement, c += x * y in f32; null: it is another one.
const std::vector<Expr>* factors_of(const Stmt& scope) {
  if (scope.body.size() != 1 || scope.body[0].kind != Stmt::Kind::assign) return nullptr;
  const Stmt& s = scope.body[0];
  const bool sums = s.op == AssignOp::add && s.value->op == Op::k_mul && s.value->type == DType::f32;
  const bool of_it = std::none_of(s.index.begin(), s.index.end(), [&](const Expr& i) { return uses(i, scope.iter); });
  return sums && of_it ? &s.value->args : nullptr;
}

// Whether each load of it is of what is given, or of what a nest before makes of that alone: later moves cannot change
// how such values are rounded.
bool is_settled(const Kernel& kernel, const Expr& e, size_t before) {
  bool out = true;
  const auto given = [&](const std::string& name) { return is_input(kernel.find_buffer(name)->place); };
  for_each_node(e, [&](const ExprNode& n) {
    if (n.op != Op::k_load || given(n.name)) return;
    out = out && is_whole(kernel, *kernel.find_buffer(n.name), before);
    for_each_stmt(kernel.body, [&](const Stmt& s) {
      if (s.kind != Stmt::Kind::assign || s.target != n.name) return;
      for_each_node(s.value, [&](const ExprNode& of) { out = out && (of.op != Op::k_load || given(of.name)); });
    });
  });
  return out;
}

// Has no more bits than bf16.
bool is_narrow(const Expr& e) { return e->op == Op::k_cast && e->args[0]->type == DType::bf16; }

// The load that f32(bf16(..)) rounds; null: it is something else.
const ExprNode* rounded_load(const Expr& e) {
  if (!is_narrow(e) || e->args[0]->op != Op::k_cast) return nullptr;
  const Expr& from = e->args[0]->args[0];
  return from->op == Op::k_load && from->type == DType::f32 ? from.get() : nullptr;
}

}  // namespace

Status apply_round_factors(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("round_factors", params);
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(k, move.args[0]));
  const std::vector<Expr>* found = factors_of(site.scope());
  if (found == nullptr || std::all_of(found->begin(), found->end(), is_narrow))
    return invalid("expected `{}` to sum products of factors, one of which has more bits than bf16", move.args[0]);
  const Stmt* around = site.outer.empty() ? &site.scope() : site.outer[0];
  const auto before = static_cast<size_t>(around - k.body.data());
  const bool settled =
      std::all_of(found->begin(), found->end(), [&](const Expr& f) { return is_settled(k, f, before); });
  LATHE_RETURN_IF_ERROR(legality.require(0, settled, fmt::format("of `{}`", move.args[0])));
  std::vector<Expr> factors = *found;
  for (Expr& f : factors)
    if (!is_narrow(f)) f = cast(DType::f32, cast(DType::bf16, f));
  site.scope().body[0].value = factors[0] * factors[1];
  k.numeric |= kQuantisedActivations;
  return {};
}

std::vector<Move> propose_round_factors(const Kernel& kernel) {
  std::vector<Move> out;
  for (const std::string& scope : plain_scopes(kernel)) {
    const std::vector<Expr>* factors = factors_of(*find_scope(kernel, scope));
    if (factors != nullptr && !std::all_of(factors->begin(), factors->end(), is_narrow))
      out.push_back({"round_factors", {scope}, {}, {}});
  }
  return out;
}

Status apply_hold_rounded(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("hold_rounded", params);
  const Buffer* found = k.find_buffer(move.args[0]);
  if (found == nullptr) return invalid("expected the name of a buffer, got `{}`", move.args[0]);
  const Buffer buffer = *found;
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(k, move.args[1]));
  const std::vector<Expr>* factors = factors_of(site.scope());
  const auto is_factor = [&](const Expr& f) {
    const ExprNode* load = rounded_load(f);
    return load != nullptr && load->name == buffer.name;
  };
  const bool sums = factors != nullptr && std::count_if(factors->begin(), factors->end(), is_factor) == 1;
  if (!sums || buffer.values || !buffer.layout.empty() || buffer.place > Place::heap)
    return invalid("expected `{}` to sum products with elements of `{}` that are rounded to bf16", move.args[1],
                   buffer.name);
  if (inside_shared_out(site.outer))
    return invalid("expected `{}` outside of scopes that are shared out", move.args[1]);
  const Stmt* around = site.outer.empty() ? &site.scope() : site.outer[0];
  const auto before = static_cast<size_t>(around - k.body.data());
  LATHE_RETURN_IF_ERROR(legality.require(0, is_whole(k, buffer, before), fmt::format("`{}`", buffer.name)));

  Names names(k);
  LATHE_ASSIGN(const std::vector<std::string> created, created_names(names, move, {buffer.name + "_h"}));
  Stmt& sum = site.scope().body[0];
  std::vector<Expr> held = *factors;
  for (Expr& f : held)
    if (is_factor(f)) f = cast(DType::f32, load(created[0], rounded_load(f)->args, DType::bf16));
  sum.value = held[0] * held[1];
  Buffer out;
  out.name = created[0];
  out.type = DType::bf16;
  out.place = Place::heap;
  out.dims = buffer.dims;
  std::vector<Expr> index;
  for (size_t d = 0; d < out.dims.size(); ++d) index.push_back(iter(names.fresh(fmt::format("{}_{}", out.name, d))));
  Stmt nest = make_assign(out.name, index, AssignOp::set, cast(DType::bf16, load(buffer.name, index, DType::f32)));
  for (size_t d = index.size(); d-- > 0;) {
    std::vector<Stmt> body;
    body.push_back(std::move(nest));
    nest = make_scope(index[d]->name, out.dims[d], std::move(body));
  }
  k.buffers.push_back(std::move(out));
  k.body.insert(k.body.begin() + static_cast<std::ptrdiff_t>(before), std::move(nest));
  return {};
}

std::vector<Move> propose_hold_rounded(const Kernel& kernel) {
  std::vector<Move> out;
  for (const std::string& scope : plain_scopes(kernel)) {
    const std::vector<Expr>* factors = factors_of(*find_scope(kernel, scope));
    if (factors == nullptr) continue;
    for (const Expr& f : *factors)
      if (const ExprNode* load = rounded_load(f)) out.push_back({"hold_rounded", {load->name, scope}, {}, {}});
  }
  return out;
}

}  // namespace lathe::search
