// pipeline: software pipelining of a scope in two stages. The first part of iteration i+1 runs before
// the second part of iteration i; what goes from one part to the other waits in a second buffer.
//   for i < N: F(i) -> t; S(i, t)
//   ->  F(0) -> u;  for i < N - 1: t = u; F(i + 1) -> u; S(i, t);   t = u; S(N - 1, t)
//
// With stages=S the first part is S - 1 iterations ahead, and what goes from one part to the other has S places, one
// for each iteration in turn.
//   ->  for p < min(S - 1, N): F(p) -> t[p % S]
//       for i < N - (S - 1): F(i + S - 1) -> t[(i + S - 1) % S]; S(i, t[i % S])
//       for e < min(S - 1, N): S(n, t[n % S]), n = max(N - (S - 1), 0) + e
//
// specialize_roles: warps of their own do the first part, as far ahead of the second one as there are places for what
// goes from one to the other, one for each iteration in turn. The order in which a Kernel means them stays as it is.
//   for i < N: F(i) -> t; S(i, t)  ->  for i < N: {for r < 1 @role: F(i) -> t[i % S]}; S(i, t[i % S])
//
// rotate_scope: the same statements in the same order, but iterations begin in the middle, so that other moves
// can bring the end of one and the beginning of the next together.
//   for i < N: F(i); S(i)  ->  F(0);  for i < N - 1: S(i); F(i + 1);   S(N - 1)
// After the last statement the first iteration stands alone:
//   for i < N: F(i)  ->  F(0);  for i < N - 1: F(i + 1)
#include <algorithm>

#include "search/moves/footprint.h"
#include "search/moves/legality.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {
constexpr int64_t kMostStages = 8;

// The buffers that the first part writes and the second uses.
std::vector<std::string> handed_over(const std::vector<Access>& accesses, const Stmt& scope, size_t depth, size_t at) {
  std::vector<std::string> out;
  const auto part = [&](const Access& a) {
    const Stmt* top = a.scopes.size() > depth ? a.scopes[depth] : a.stmt;
    return static_cast<size_t>(top - scope.body.data()) < at ? 0 : 1;
  };
  for (const Access& a : accesses) {
    if (part(a) != 0 || !a.write) continue;
    const bool used = std::any_of(accesses.begin(), accesses.end(),
                                  [&](const Access& b) { return part(b) == 1 && b.buffer == a.buffer; });
    if (used && std::find(out.begin(), out.end(), a.buffer) == out.end()) out.push_back(a.buffer);
  }
  return out;
}

void rename_buffer(std::vector<Stmt>& body, const std::string& from, const std::string& to) {
  for_each_stmt(body, [&](Stmt& s) {
    if (s.target == from) s.target = to;
  });
  rewrite_exprs(body, [&](const Expr& e) -> Expr {
    return e->op == Op::k_load && e->name == from ? load(to, e->args, e->type) : Expr();
  });
}

// t[j]  ->  t[slot, j]
void put_in_ring(std::vector<Stmt>& body, const std::string& buffer, const Expr& slot) {
  const auto placed = [&](std::vector<Expr> index) {
    index.insert(index.begin(), slot);
    return index;
  };
  for_each_stmt(body, [&](Stmt& s) {
    if (s.target == buffer) s.index = placed(s.index);
  });
  rewrite_exprs(body, [&](const Expr& e) -> Expr {
    return e->op == Op::k_load && e->name == buffer ? load(buffer, placed(e->args), e->type) : Expr();
  });
}

// Places for `stages` of them, the outermost dimension.
void widen_to_ring(Buffer& b, int64_t stages) {
  b.dims.insert(b.dims.begin(), Expr(stages));
  if (!b.padding.empty()) b.padding.insert(b.padding.begin(), 0);
  if (b.layout.empty()) return;
  for (LayoutDim& l : b.layout) ++l.dim;
  b.layout.insert(b.layout.begin(), LayoutDim{});
}

// for t_0 < D0: for t_1 < D1: to[t_0, t_1] = from[t_0, t_1]
Stmt copy_whole(const Buffer& buffer, const std::string& to, const std::string& from, Names& names) {
  std::vector<std::string> iters;
  std::vector<Expr> index;
  for (size_t d = 0; d < buffer.dims.size(); ++d) {
    iters.push_back(names.fresh(fmt::format("{}_{}", to, d)));
    index.push_back(iter(iters.back()));
  }
  Stmt out = make_assign(to, index, AssignOp::set, load(from, index, buffer.type));
  for (size_t d = iters.size(); d-- > 0;) {
    std::vector<Stmt> body;
    body.push_back(std::move(out));
    out = make_scope(iters[d], buffer.dims[d], std::move(body));
  }
  return out;
}

// A plain scope, and where its second part begins, which has at least so many statements.
struct Halves {
  ScopeSite site;
  std::ptrdiff_t at = 0;
};
Result<Halves> find_halves(Kernel& k, const Move& move, int64_t least = 1) {
  const std::string& name = move.args[0];
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(k, name));
  const Stmt& scope = site.scope();
  LATHE_ASSIGN(const int64_t after,
               int_arg(move.options.at("after"), "after", 0, static_cast<int64_t>(scope.body.size()) - 1 - least));
  bool follows = false;  // a prefetch is spread over the scope
  for_each_stmt(scope.body,
                [&](const Stmt& s) { follows = follows || (s.kind == Stmt::Kind::prefetch && s.iter == name); });
  if (follows) return invalid("expected no prefetch spread over `{}`", name);
  return Halves{site, static_cast<std::ptrdiff_t>(after) + 1};
}

std::vector<Stmt> part_at(std::vector<Stmt> part, const std::string& scope, const char* suffix,
                          const Expr& at_iteration, Names& names) {
  rename_scopes(part, suffix, names);
  substitute_body(part, {{scope, at_iteration}});
  return part;
}

void replace_scope(const ScopeSite& site, std::vector<Stmt> replacement, const Ranges& ranges) {
  simplify_body(replacement, ranges);
  std::vector<Stmt>& siblings = *site.siblings;
  const auto where = siblings.begin() + static_cast<std::ptrdiff_t>(site.index);
  siblings.insert(siblings.erase(where), std::make_move_iterator(replacement.begin()),
                  std::make_move_iterator(replacement.end()));
}

void append(std::vector<Stmt>& to, std::vector<Stmt> from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

// What a scope with a ring of stages becomes.
std::vector<Stmt> staged(Kernel& k, const Stmt& scope, std::ptrdiff_t at, const std::vector<std::string>& carried,
                         int64_t stages) {
  Names names(k);
  const std::string& name = scope.iter;
  const Expr ahead(stages - 1), some = ir::min(ahead, scope.extent);
  const auto in_ring = [&](std::vector<Stmt> part, const Expr& number) {
    for (const std::string& buffer : carried) put_in_ring(part, buffer, ir::mod(number, Expr(stages)));
    return part;
  };
  const std::vector<Stmt> first(scope.body.begin(), scope.body.begin() + at),
      second(scope.body.begin() + at, scope.body.end());
  for (const std::string& buffer : carried) widen_to_ring(*k.find_buffer(buffer), stages);
  const std::string p = names.fresh(name + "_p"), e = names.fresh(name + "_e");
  const Expr number = ir::max(scope.extent - ahead, Expr(0)) + iter(e);
  std::vector<Stmt> before = part_at(in_ring(first, iter(name)), name, "_p", iter(p), names),
                    after = part_at(in_ring(second, iter(name)), name, "_e", number, names),
                    body = part_at(in_ring(first, iter(name)), name, "_n", iter(name) + ahead, names);
  append(body, in_ring(second, iter(name)));
  std::vector<Stmt> out;
  out.push_back(make_scope(p, some, std::move(before)));
  out.push_back(make_scope(name, scope.extent - ahead, std::move(body), scope.role));
  out.push_back(make_scope(e, some, std::move(after)));
  return out;
}

std::vector<Move> propose_after(const Kernel& kernel, const char* move, size_t least = 1) {
  std::vector<Move> out;
  for_each_stmt(kernel.body, [&](const Stmt& s) {
    for (size_t i = 0; s.mark == Mark::none && i + least < s.body.size(); ++i)
      out.push_back({move, {s.iter}, {{"after", std::to_string(i)}}, {}});
  });
  return out;
}

}  // namespace

Status apply_pipeline(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("pipeline", params);
  const std::string& name = move.args[0];
  LATHE_ASSIGN(const Halves halves, find_halves(k, move));
  const auto& [site, at] = halves;
  Stmt& scope = site.scope();

  const Ranges ranges = ranges_at(k, site.outer);
  int64_t stages = 0;  // 0: a second buffer
  if (const auto given = move.options.find("stages"); given != move.options.end()) {
    LATHE_ASSIGN(stages, int_arg(given->second, "stages", 2, kMostStages));
  }
  if (stages == 0)
    LATHE_RETURN_IF_ERROR(legality.require(0, proves_le(Expr(1), scope.extent, ranges), print_extent(scope)));
  const ScopePath path = site.path();
  const std::vector<Access> accesses = collect_accesses(scope.body, path);
  const std::vector<std::string> carried = handed_over(accesses, scope, path.size(), static_cast<size_t>(at));
  std::string why;
  for (const std::string& buffer : carried) {
    const Place place = k.find_buffer(buffer)->place;
    if (place < Place::heap) return invalid("expected a temporary, `{}` goes from one part to the other", buffer);
    if (place == Place::heap && inside_shared_out(path))
      return invalid("expected `{}` in stack or registers inside a scope that threads share out", buffer);
    LATHE_RETURN_IF_ERROR(legality.require(1, lives_inside(k, buffer, path, &why), why));
  }
  const Answer rest = separable(k, name, static_cast<size_t>(at), carried);
  LATHE_RETURN_IF_ERROR(legality.require(2, rest.ok, rest.why));
  if (rest.reassociates) k.numeric |= kReassociate;

  if (stages != 0) {
    replace_scope(site, staged(k, scope, at, carried, stages), ranges);
    return {};
  }

  Names names(k);
  std::vector<Stmt> first(scope.body.begin(), scope.body.begin() + at);
  std::vector<Stmt> second(scope.body.begin() + at, scope.body.end());
  std::vector<std::pair<std::string, std::string>> waiting;  // buffer, the one that waits
  for (const std::string& buffer : carried) {
    Buffer copy = *k.find_buffer(buffer);
    copy.name = names.fresh(buffer + "_n");
    rename_buffer(first, buffer, copy.name);
    waiting.emplace_back(buffer, copy.name);
    k.buffers.push_back(std::move(copy));
  }
  const auto take = [&] {
    std::vector<Stmt> out;
    for (const auto& [buffer, next] : waiting) out.push_back(copy_whole(*k.find_buffer(buffer), buffer, next, names));
    return out;
  };
  const Expr last = scope.extent - Expr(1);
  std::vector<Stmt> before = part_at(first, name, "_p", Expr(0), names), after_loop = take(), body = take();
  append(after_loop, part_at(second, name, "_e", last, names));
  substitute_body(first, {{name, iter(name) + Expr(1)}});
  append(body, std::move(first));
  append(body, std::move(second));

  std::vector<Stmt> replacement = std::move(before);
  replacement.push_back(make_scope(name, last, std::move(body), scope.role));
  append(replacement, std::move(after_loop));
  replace_scope(site, std::move(replacement), ranges);
  return {};
}

Status apply_specialize_roles(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("specialize_roles", params);
  const std::string& name = move.args[0];
  LATHE_ASSIGN(const Halves halves, find_halves(k, move));
  const auto& [site, at] = halves;
  Stmt& scope = site.scope();
  bool role = inside_mark(site.outer, Mark::role);
  for_each_stmt(scope.body, [&](const Stmt& s) { role = role || s.mark == Mark::role; });
  if (role) return invalid("expected no @role scope around or inside `{}`", name);
  if (!inside_mark(site.outer, Mark::grid) || inside_mark(site.outer, Mark::block))
    return invalid("expected `{}` inside a @grid scope and outside of @block scopes", name);
  LATHE_ASSIGN(const int64_t stages, int_arg(move.options.at("stages"), "stages", 2, kMostStages));
  const ScopePath path = site.path();
  const std::vector<Access> accesses = collect_accesses(scope.body, path);
  const std::vector<std::string> carried = handed_over(accesses, scope, path.size(), static_cast<size_t>(at));
  std::string why;
  for (const std::string& buffer : carried) {
    if (k.find_buffer(buffer)->place != Place::shared)
      return invalid("expected shared memory, `{}` goes from one part to the other", buffer);
    LATHE_RETURN_IF_ERROR(legality.require(0, lives_inside(k, buffer, path, &why), why));
  }
  const Answer rest = separable(k, name, static_cast<size_t>(at), carried);
  LATHE_RETURN_IF_ERROR(legality.require(1, rest.ok && !rest.reassociates, rest.why));
  Names names(k);
  for (const std::string& buffer : carried) {
    widen_to_ring(*k.find_buffer(buffer), stages);
    put_in_ring(scope.body, buffer, ir::mod(iter(name), Expr(stages)));
  }
  std::vector<Stmt> body, first;
  std::move(scope.body.begin(), scope.body.begin() + at, std::back_inserter(first));
  body.push_back(make_scope(names.fresh(name + "_r"), Expr(1), std::move(first)));
  body.back().mark = Mark::role;
  std::move(scope.body.begin() + at, scope.body.end(), std::back_inserter(body));
  scope.body = std::move(body);
  simplify_body(scope.body, ranges_at(k, path));
  return {};
}

std::vector<Move> propose_specialize_roles(const Kernel& kernel) {
  std::vector<Move> out = propose_after(kernel, "specialize_roles");
  for (Move& m : out) m.options.emplace("stages", "3");
  return out;
}

std::vector<Move> propose_pipeline(const Kernel& kernel) { return propose_after(kernel, "pipeline"); }

Status apply_rotate_scope(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const std::string& name = move.args[0];
  LATHE_ASSIGN(const Halves halves, find_halves(k, move, 0));
  const auto& [site, at] = halves;
  Stmt& scope = site.scope();
  const Ranges ranges = ranges_at(k, site.outer);
  LATHE_RETURN_IF_ERROR(
      Legality("rotate_scope", params).require(0, proves_le(Expr(1), scope.extent, ranges), print_extent(scope)));
  Names names(k);
  std::vector<Stmt> first(scope.body.begin(), scope.body.begin() + at);
  std::vector<Stmt> second(scope.body.begin() + at, scope.body.end());
  const Expr last = scope.extent - Expr(1);
  std::vector<Stmt> replacement = part_at(first, name, "_p", Expr(0), names);
  std::vector<Stmt> after_loop = part_at(second, name, "_e", last, names);
  substitute_body(first, {{name, iter(name) + Expr(1)}});
  append(second, std::move(first));
  replacement.push_back(make_scope(name, last, std::move(second), scope.role));
  append(replacement, std::move(after_loop));
  replace_scope(site, std::move(replacement), ranges);
  return {};
}

std::vector<Move> propose_rotate_scope(const Kernel& kernel) { return propose_after(kernel, "rotate_scope", 0); }

}  // namespace lathe::search
