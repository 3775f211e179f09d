// round_to_bf16, round_to_f16: a temporary is rounded where it is a factor of products of that type. narrow_temporary
// keeps what is rounded, and changes no number. split_to_bf16 keeps a temporary as a sum of numbers of bf16, and is the
// same as before up to the order of sums.
//
//   for j: o += s[j] * f32(v[j])   ->   for j: o += f32(bf16(s[j])) * f32(v[j])
//   for i: s[i] = e; for j: o += f32(bf16(s[j])) * f32(v[j])   ->
//     for i: s[i] = e, t[i] = bf16(s[i]); for j: o += f32(t[j]) * f32(v[j])
//   for i: s[i] = f32(b[i]); for j: f(s[j])   ->   for i: t[i] = bf16(f32(b[i])); for j: f(f32(t[j])), of bytes b
#include <algorithm>

#include "ir/core/names.h"
#include "search/moves/legality.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {

bool is_load_of(const Expr& e, const std::string& buffer) { return e->op == Op::k_load && e->name == buffer; }
bool is_widened(const Expr& e, DType type) {
  const Expr& load = unwidened(e);
  return load->op == Op::k_load && load->type == type;
}

// Which factor of a sum of products is the buffer's, the other one being of the type; none: -1.
int factor_of(const Stmt& s, const std::string& buffer, DType type) {
  if (s.kind != Stmt::Kind::assign || s.op != AssignOp::add || s.value->op != Op::k_mul) return -1;
  const std::vector<Expr>& factors = s.value->args;
  for (size_t i = 0; i < factors.size(); ++i) {
    if (is_load_of(factors[i], buffer) && is_widened(factors[1 - i], type)) return static_cast<int>(i);
  }
  return -1;
}

// Whether the scope reads the buffer as such a factor only.
bool only_factors(const Stmt& scope, const std::string& buffer, DType type) {
  bool read = false, only = true;
  for (const Access& a : collect_accesses(scope.body, {}, &buffer)) {
    read = true;
    only = only && !a.write && factor_of(*a.stmt, buffer, type) >= 0;
  }
  return read && only;
}

// bf16(buffer[..]), f16(buffer[..])
bool is_rounded(const Expr& e, const std::string& buffer) {
  return e->op == Op::k_cast && (e->type == DType::bf16 || e->type == DType::f16) && is_load_of(e->args[0], buffer);
}

bool writes(const std::vector<Stmt>& body, const std::string& buffer) {
  const std::vector<Access> all = collect_accesses(body, {}, &buffer);
  return std::any_of(all.begin(), all.end(), [](const Access& a) { return a.write; });
}

bool same_cell(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Expr& x, const Expr& y) { return equal(x, y); });
}

// The last of the scope's plain assignments that give one cell of the buffer its value; -1: there is none, or there are
// other writes.
std::ptrdiff_t only_write(const Stmt& scope, const std::string& buffer) {
  std::ptrdiff_t out = -1, count = 0;
  for (size_t i = 0; i < scope.body.size(); ++i) {
    const Stmt& s = scope.body[i];
    if (s.kind != Stmt::Kind::assign || s.target != buffer) continue;
    if (s.op != AssignOp::set || (out >= 0 && !same_cell(s.index, scope.body[static_cast<size_t>(out)].index)))
      return -1;
    out = static_cast<std::ptrdiff_t>(i);
    ++count;
  }
  const std::vector<Access> all = collect_accesses(scope.body, {}, &buffer);
  return std::count_if(all.begin(), all.end(), [](const Access& a) { return a.write; }) == count ? out : -1;
}

// f32 of an integer of 8 bits, which bf16 and f16 have as well.
bool is_small_integer(const Expr& e) {
  const Expr* from = &e;
  while ((*from)->op == Op::k_cast) from = &(*from)->args[0];
  return e->op == Op::k_cast && (*from)->op == Op::k_load && ((*from)->type == DType::i8 || (*from)->type == DType::u8);
}

Status round_to(TransformResult& result, const Move& move, DType type) {
  Kernel& k = result.kernel;
  const std::string& name = move.args[0];
  LATHE_ASSIGN(const Buffer* buffer, find_temporary(k, name));
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(k, move.args[1]));
  if (buffer->type != DType::f32) return invalid("expected `{}` to be f32, it is {}", name, dtype_name(buffer->type));
  if (!only_factors(site.scope(), name, type))
    return invalid("expected `{}` to sum products of `{}` with elements of {}, and not to use it otherwise",
                   site.scope().iter, name, dtype_name(type));
  for_each_stmt(site.scope().body, [&](Stmt& s) {
    const int factor = factor_of(s, name, type);
    if (factor < 0) return;
    std::vector<Expr> factors = s.value->args;
    Expr& rounded = factors[static_cast<size_t>(factor)];
    rounded = cast(DType::f32, cast(type, rounded));
    s.value = factors[0] * factors[1];
  });
  k.numeric |= kBf16Dots;
  return {};
}

std::vector<Move> propose_round_to(const Kernel& kernel, DType type) {
  std::vector<Move> out;
  for (const std::string& scope : plain_scopes(kernel)) {
    for (const Buffer& b : kernel.buffers) {
      if (!is_param(b.place) && b.type == DType::f32 && only_factors(*find_scope(kernel, scope), b.name, type))
        out.push_back({fmt::format("round_to_{}", dtype_name(type)), {b.name, scope}, {}, {}});
    }
  }
  return out;
}

}  // namespace

Status apply_round_to_bf16(TransformResult& result, const Move& move, const TransformParams&) {
  return round_to(result, move, DType::bf16);
}
Status apply_round_to_f16(TransformResult& result, const Move& move, const TransformParams&) {
  return round_to(result, move, DType::f16);
}
std::vector<Move> propose_round_to_bf16(const Kernel& kernel) { return propose_round_to(kernel, DType::bf16); }
std::vector<Move> propose_round_to_f16(const Kernel& kernel) { return propose_round_to(kernel, DType::f16); }

// Whether the value that the statement of this number assigns is read by statements behind it in the same iteration
// only, where what it is made of is still the same.
bool used_at_once(const Kernel& k, const ScopeSite& site, size_t number, const std::vector<Stmt>& later) {
  const std::vector<Stmt>& body = site.scope().body;
  const Stmt& write = body[number];
  const std::string& name = write.target;
  const auto of_cell = [&](const Expr& value) {
    bool same = true;
    for_each_node(value, [&](const ExprNode& n) {
      if (n.op == Op::k_load && n.name == name) same = same && same_cell(n.args, write.index);
    });
    return same;
  };
  for (size_t s = 0; s < body.size(); ++s) {
    if (body[s].kind != Stmt::Kind::assign || (s >= number && !of_cell(body[s].value))) return false;
    if (s > number && uses(write.value, body[s].target)) return false;
  }
  return collect_accesses(later, {}, &name).empty() && lives_inside(k, name, site.outer, nullptr);
}

Status apply_narrow_temporary(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("narrow_temporary", params);
  const std::string& name = move.args[0];
  LATHE_ASSIGN(const Buffer* found, find_temporary(k, name));
  const Buffer buffer = *found;
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(k, move.args[2]));
  Names names(k);
  LATHE_RETURN_IF_ERROR(names.take(move.args[1]));
  Stmt& scope = site.scope();
  const std::ptrdiff_t write = only_write(scope, name);
  if (write < 0) return invalid("expected `{}` to hold one plain assignment of `{}`", scope.iter, name);
  if (!buffer.layout.empty() || !buffer.padding.empty()) return invalid("expected `{}` to lie plainly", name);

  Buffer narrow;
  narrow.name = move.args[1];
  narrow.place = Place::heap;
  narrow.dims = buffer.dims;
  if (const auto type = move.options.find("type"); type != move.options.end()) {
    narrow.type = type->second == "f16" ? DType::f16 : DType::bf16;
    if (type->second != dtype_name(narrow.type)) return invalid("expected type=bf16 or f16, got `{}`", type->second);
    if (buffer.type != DType::f32) return invalid("expected `{}` to be f32", name);
    const auto number = static_cast<size_t>(write);
    const std::vector<Access> all = collect_accesses(k.body, {}, &name);
    const auto written = std::count_if(all.begin(), all.end(), [](const Access& a) { return a.write; });
    LATHE_RETURN_IF_ERROR(legality.require(2, written == 1 && is_small_integer(scope.body[number].value)));
    scope.body[number].target = narrow.name;
    scope.body[number].value = cast(narrow.type, scope.body[number].value);
    rewrite_exprs(k.body, [&](const Expr& e) -> Expr {
      return is_load_of(e, name) ? cast(DType::f32, load(narrow.name, e->args, narrow.type)) : Expr();
    });
    k.buffers.push_back(narrow);
    return {};
  }

  // Where the body around comes to the scope, `name` has its last value.
  const std::vector<Stmt>& around = *site.siblings;
  const std::vector<Stmt> later(around.begin() + static_cast<std::ptrdiff_t>(site.index) + 1, around.end());
  LATHE_RETURN_IF_ERROR(legality.require(1, !writes(later, name)));
  bool any = false, alike = true;
  rewrite_exprs(k.body, [&](const Expr& e) -> Expr {
    if (!is_rounded(e, name)) return {};
    if (!any) narrow.type = e->type;
    any = true;
    alike = alike && e->type == narrow.type;
    return load(narrow.name, e->args[0]->args, narrow.type);
  });
  if (!any || !alike) return invalid("expected `{}` to be rounded to bf16 where it is read, or to f16", name);
  const auto number = static_cast<size_t>(write);
  const std::vector<Expr> index = scope.body[number].index;
  scope.body.push_back(
      make_assign(narrow.name, index, AssignOp::set, cast(narrow.type, load(name, index, buffer.type))));
  k.buffers.push_back(narrow);
  std::string why;
  const bool holds = lives_inside(k, narrow.name, site.outer, &why);
  LATHE_RETURN_IF_ERROR(legality.require(0, holds, why));
  const std::vector<Stmt> behind(around.begin() + static_cast<std::ptrdiff_t>(site.index) + 1, around.end());
  if (!used_at_once(k, site, number, behind)) return {};
  // Its rounded form is all that is kept.
  const Expr value = scope.body[number].value;
  scope.body.erase(scope.body.begin() + static_cast<std::ptrdiff_t>(number));
  for (size_t s = number; s < scope.body.size(); ++s)
    scope.body[s].value =
        rewrite(scope.body[s].value, [&](const Expr& e) { return is_load_of(e, name) ? value : Expr(); });
  return {};
}

std::vector<Move> propose_narrow_temporary(const Kernel& kernel) {
  std::vector<Move> out;
  for (const Buffer& b : kernel.buffers) {
    bool rounded = false;
    for_each_stmt(kernel.body, [&](const Stmt& s) {
      if (s.kind == Stmt::Kind::assign)
        for_each_node(s.value, [&](const ExprNode& n) {
          rounded |=
              n.op == Op::k_cast && (n.type == DType::bf16 || n.type == DType::f16) && is_load_of(n.args[0], b.name);
        });
    });
    if (is_param(b.place)) continue;
    const std::string name = Names(kernel).fresh(b.name + "n");
    for (const std::string& scope : plain_scopes(kernel)) {
      if (rounded) out.push_back({"narrow_temporary", {b.name, name, scope}, {}, {}});
      if (b.type == DType::f32 && only_write(*find_scope(kernel, scope), b.name) >= 0)
        out.push_back({"narrow_temporary", {b.name, name, scope}, {{"type", "bf16"}}, {}});
    }
  }
  return out;
}

namespace {

// o += s * v  ->  o += f32(p) * v for each part p of s.
void sum_parts(std::vector<Stmt>& body, const std::string& buffer, const std::vector<std::string>& parts) {
  std::vector<Stmt> out;
  for (Stmt& s : body) {
    sum_parts(s.body, buffer, parts);
    const int factor = factor_of(s, buffer, DType::bf16);
    if (factor < 0) {
      out.push_back(std::move(s));
      continue;
    }
    for (const std::string& part : parts) {
      Stmt sum = s;
      std::vector<Expr> factors = s.value->args;
      Expr& of = factors[static_cast<size_t>(factor)];
      of = cast(DType::f32, load(part, of->args, DType::bf16));
      sum.value = factors[0] * factors[1];
      out.push_back(std::move(sum));
    }
  }
  body = std::move(out);
}

}  // namespace

//   for i: s[i] = e; for j: o += s[j] * f32(v[j])
//   ->  for i: s[i] = e; t0[i] = bf16(s[i]); t1[i] = bf16(s[i] - f32(t0[i]));
//         t2[i] = bf16(s[i] - f32(t0[i]) - f32(t1[i]))
//       for j: o += f32(t0[j]) * f32(v[j]); o += f32(t1[j]) * f32(v[j]); o += f32(t2[j]) * f32(v[j])
// Three times eight bits are those of an f32. What rounds to an infinity becomes NaN.
Status apply_split_to_bf16(TransformResult& result, const Move& move, const TransformParams& params) {
  constexpr size_t kParts = 3;
  Kernel& k = result.kernel;
  const Legality legality("split_to_bf16", params);
  const std::string& name = move.args[0];
  LATHE_ASSIGN(const Buffer* found, find_temporary(k, name));
  const Buffer buffer = *found;
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(k, move.args[1]));
  LATHE_ASSIGN(const ScopeSite sums, find_plain_site(k, move.args[2]));
  if (buffer.type != DType::f32) return invalid("expected `{}` to be f32, it is {}", name, dtype_name(buffer.type));
  const std::ptrdiff_t write = only_write(site.scope(), name);
  if (write < 0) return invalid("expected `{}` to hold one plain assignment of `{}`", site.scope().iter, name);
  if (!only_factors(sums.scope(), name, DType::bf16))
    return invalid("expected `{}` to sum products of `{}` with elements of bf16, and not to use it otherwise",
                   sums.scope().iter, name);
  if (!buffer.layout.empty() || !buffer.padding.empty()) return invalid("expected `{}` to lie plainly", name);
  // Where the body around comes to the scope, its parts have their last values.
  const std::vector<Stmt>& around = *site.siblings;
  const std::vector<Stmt> later(around.begin() + static_cast<std::ptrdiff_t>(site.index) + 1, around.end());
  LATHE_RETURN_IF_ERROR(legality.require(1, !writes(later, name)));
  Names names(k);
  std::vector<std::string> defaults;
  for (size_t p = 0; p < kParts; ++p) defaults.push_back(fmt::format("{}_{}", name, p));
  LATHE_ASSIGN(const std::vector<std::string> parts, created_names(names, move, defaults));
  sum_parts(sums.scope().body, name, parts);
  const std::vector<Expr> index = site.scope().body[static_cast<size_t>(write)].index;
  Expr rest = load(name, index, buffer.type);
  for (const std::string& part : parts) {
    site.scope().body.push_back(make_assign(part, index, AssignOp::set, cast(DType::bf16, rest)));
    rest = rest - cast(DType::f32, load(part, index, DType::bf16));
    Buffer b;
    b.name = part;
    b.type = DType::bf16;
    b.place = Place::heap;
    b.dims = buffer.dims;
    k.buffers.push_back(std::move(b));
  }
  std::string why;
  const bool holds = lives_inside(k, parts[0], site.outer, &why);
  LATHE_RETURN_IF_ERROR(legality.require(0, holds, why));
  k.numeric |= kReassociate | kContract;
  return {};
}

std::vector<Move> propose_split_to_bf16(const Kernel& kernel) {
  std::vector<Move> out;
  for (const Move& round : propose_round_to(kernel, DType::bf16)) {
    for (const std::string& scope : plain_scopes(kernel)) {
      if (only_write(*find_scope(kernel, scope), round.args[0]) >= 0)
        out.push_back({"split_to_bf16", {round.args[0], scope, round.args[1]}, {}, {}});
    }
  }
  return out;
}

}  // namespace lathe::search
