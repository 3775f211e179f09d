// tile_scope: one scope into two, with the five ways to treat a tail. Order of execution stays.
//   mask    for n0 < ceildiv(N, T): for n1 < min(T, N - T*n0): S(T*n0 + n1)
//   exact   for n0 < N // T: for n1 < T: S(T*n0 + n1)
//   peel    the same, and for n2 < N % T: S(T*(N // T) + n2) after it
//   clamp   for n0 < ceildiv(N, T): for n1 < T: S(min(T*n0, N - T) + n1)     (some run twice)
//   idle    for n0 < A: for n1 < min(T, N - T*n0): S(T*n0 + n1)              (A: in any case; the last may do nothing)
// pad_scope: as many iterations as a scope has at most, in any case. What it writes further nobody reads.
//   for n0 < ceildiv(N, 8): for n1 < min(8, N - 8*n0): t[8*n0 + n1] = e  ->  ... for n1 < 8: t[8*n0 + n1] = e
// merge_scopes: two perfectly nested scopes become one, in the same order; undoes tile_scope, and makes one long scope
// of two short ones. What is refused has the wrong shape: there is no legality rule.
#include <algorithm>
#include <set>

#include "ir/analysis/dependence.h"
#include "ir/analysis/verifier.h"
#include "ir/core/names.h"
#include "search/moves/footprint.h"
#include "search/moves/legality.h"
#include "search/moves/more_iterations.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

static constexpr int64_t kMostTiles = 64;  // of which some may do nothing

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
  const int64_t tiles = (std::max<int64_t>(interval(extent, ranges).hi, 1) - 1) / tile + 1;
  if (tail == "idle" && tiles > kMostTiles)
    return invalid("expected at most {} tiles in any case, got {}", kMostTiles, print_extent(scope));
  if (divisible && tail != "idle") tail = "exact";
  bool shifts = false;  // by the iterator, whose larger values would be counts that there are not
  const auto counts = [&](const Expr& e) -> Expr {
    const bool shift = e->op == Op::k_shift_left || e->op == Op::k_shift_right;
    shifts = shifts || (shift && uses(e->args[1], scope.iter));
    return {};
  };
  rewrite_exprs(scope.body, counts, kHoldsShift);
  if (shifts && tail == "peel" && !proves_le(size, extent, ranges))
    return unsupported("expected a tile of at most the extent, as `{}` counts a shift", scope.iter);

  const std::string& old = scope.iter;
  std::vector<std::string> defaults = {old + "0", old + "1"};
  if (move.options.at("tail") == "peel") defaults.push_back(old + "2");
  LATHE_ASSIGN(const std::vector<std::string> created, created_names(names, move, defaults));
  const Expr outer_iter = iter(created[0]), inner_iter = iter(created[1]);

  Expr outer_extent, inner_extent = size, start = outer_iter * size;
  if (tail == "mask" || tail == "idle") {
    outer_extent = tail == "idle" ? Expr(tiles) : ceildiv(extent, size);
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
      for (const char* tail : {"exact", "peel", "mask", "clamp", "idle"}) {
        out.push_back({"tile_scope", {scope, size}, {{"tail", tail}}, {}});
      }
    }
  }
  return out;
}

namespace {

constexpr int64_t kMostIterations = 1024;

// The scopes around all accesses.
ScopePath common_path(const std::vector<Access>& accesses) {
  ScopePath out = accesses[0].scopes;
  for (const Access& a : accesses)
    out.erase(std::mismatch(out.begin(), out.end(), a.scopes.begin(), a.scopes.end()).first, out.end());
  return out;
}

// Of a written index: where further iterations begin, whatever the scopes inside do; null: not known. begin: the first
// of them.
Expr first_further(const Expr& index, const Access& write, const ScopeSite& site, const Expr& begin) {
  std::vector<std::string> iters = {site.scope().iter};
  for (size_t i = site.outer.size() + 1; i < write.scopes.size(); ++i) iters.push_back(write.scopes[i]->iter);
  const auto linear = linear_in(index, iters);
  if (!linear) return {};
  Expr out;
  for (const auto& [name, factor] : linear->terms) {
    if (factor < 0) return {};
    if (name == iters[0]) out = linear->base + Expr(factor) * begin;
  }
  return out;
}

// Whether reads of the buffer may find what further iterations write; begin: the first of them, or less.
std::string read_elsewhere(const Kernel& kernel, const std::string& buffer, const ScopeSite& site, const Expr& begin) {
  const std::vector<Access> all = collect_accesses(kernel.body, {}, &buffer);
  const ScopePath life = common_path(all);
  std::string why;
  if (!lives_inside(kernel, buffer, life, &why)) return why;
  if (life.size() > site.outer.size() && life[site.outer.size()] == &site.scope()) return {};
  for (const Access& write : all) {
    const bool inside = write.scopes.size() > site.outer.size() && write.scopes[site.outer.size()] == &site.scope();
    if (!write.write || !inside) continue;
    for (const Access& read : all) {
      if (read.write) continue;  // a reduction hands on a cell to itself
      // The iterations of both are their own, but for the scopes that the buffer's life is inside of.
      Ranges ranges = ranges_at(kernel, life);
      for (size_t i = life.size(); i < site.outer.size(); ++i) ranges.enter(*site.outer[i]);
      Renaming names;
      for (size_t i = life.size(); i < read.scopes.size(); ++i) {
        const Stmt& s = *read.scopes[i];
        ranges.enter(s.iter + "'", substitute(s.extent, names));
        names.emplace_back(s.iter, iter(s.iter + "'"));
      }
      bool apart = false;
      for (size_t d = 0; d < write.index.size() && !apart; ++d) {
        const Expr at = simplify(substitute(read.index[d], names) + Expr(1), ranges);
        const Expr first = first_further(write.index[d], write, site, begin);
        apart = first && surely_le(at, simplify(first, ranges), ranges);
      }
      if (!apart) return fmt::format("`{}` may be read there", buffer);
    }
  }
  return {};
}

// Whether an access of the scope, which has all its iterations now, may leave its buffer. writes: what is read is what
// was read before.
std::string outside(const Kernel& kernel, const ScopeSite& site, bool writes) {
  for (const Access& a : collect_accesses(site.scope().body, site.path())) {
    if (writes && !a.write) continue;
    const Buffer& b = *kernel.find_buffer(a.buffer);
    const Ranges ranges = ranges_at(kernel, a.scopes);
    for (size_t d = 0; d < a.index.size(); ++d) {
      if (!surely_le(Expr(0), a.index[d], ranges) ||
          !surely_le(simplify(a.index[d] + Expr(1), ranges), b.dims[d], ranges))
        return fmt::format("`{}` has no such cells", a.buffer);
    }
  }
  return {};
}

}  // namespace

// Buffers of known size that the scope writes get room for all its iterations.
static void grow(Kernel& kernel, const ScopeSite& site) {
  for (const Access& a : collect_accesses(site.scope().body, site.path())) {
    if (!a.write) continue;
    Buffer& b = *kernel.find_buffer(a.buffer);
    const Ranges ranges = ranges_at(kernel, a.scopes);
    for (size_t d = 0; d < a.index.size(); ++d) {
      const int64_t needed = interval(a.index[d], ranges).hi + 1;
      const bool small = b.layout.empty() && uses(a.index[d], site.scope().iter) && is_const_int(b.dims[d]) &&
                         b.dims[d]->ival < needed;
      if (small && needed <= kMostIterations) b.dims[d] = Expr(needed);
    }
  }
}

// The copy of an input that the scope is; null: it is something else.
static Stmt* copy_of_input(const Kernel& kernel, Stmt& scope) {
  Stmt* s = &scope;
  while (s->kind == Stmt::Kind::scope && s->body.size() == 1) s = &s->body[0];
  if (s->kind != Stmt::Kind::assign || s->op != AssignOp::set) return nullptr;
  const Expr* copied = &s->value;
  while ((*copied)->op == Op::k_cast) copied = &(*copied)->args[0];
  return (*copied)->op == Op::k_load && is_input(kernel.find_buffer((*copied)->name)->place) ? s : nullptr;
}

// Further iterations copy what follows in the input, and 0 behind its end.
static Status read_on(const Kernel& kernel, Stmt& copy, const ScopeSite& site, int64_t most) {
  const std::string& i = site.scope().iter;
  const Expr& from = copy.value;
  size_t dim = 0;
  while (from->op == Op::k_load && dim < from->args.size() && !uses(from->args[dim], i)) ++dim;
  const bool one = from->op == Op::k_load && dim < from->args.size() &&
                   std::none_of(
                       from->args.begin() + static_cast<std::ptrdiff_t>(dim) + 1, from->args.end(),
                       [&](const Expr& e) { return uses(e, i); });
  const Expr base = one ? simplify(from->args[dim] - iter(i)) : Expr();
  if (!one || uses(base, i)) return invalid("expected `{}` to copy neighbours along one dimension", i);
  const Expr& size = kernel.find_buffer(from->name)->dims[dim];
  Ranges ranges = ranges_at(kernel, site.outer);
  const Expr rest = simplify(size - base, ranges);
  if (surely_le(Expr(most), rest, ranges)) return {};
  const DType type = from->type;
  const Expr zero = is_float(type) ? const_float(0, type) : const_int(0, type);
  copy.value = select(make(Op::k_lt, {iter(i), rest}), from, zero);
  return {};
}

Status apply_pad_scope(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("pad_scope", params);
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(k, move.args[0]));
  Stmt& scope = site.scope();
  const Ranges ranges = ranges_at(k, site.outer);
  int64_t most = interval(scope.extent, ranges).hi;
  const auto size = move.options.find("size");
  if (size != move.options.end()) {
    LATHE_ASSIGN(const int64_t all, int_arg(size->second, "a number of iterations", 1, kMostIterations));
    if (most > all) return invalid("expected at most {} iterations, got {}", all, print_extent(scope));
    if (most < all && computes_with(scope.body, scope.iter))
      return invalid("expected `{}` in indices alone, of which there are to be more", scope.iter);
    most = all;
  } else if (is_const_int(scope.extent) || most > kMostIterations) {
    return invalid("expected iterations that vary in number, at most {}, got {}", kMostIterations, print_extent(scope));
  }
  std::vector<std::string> written;
  for (const Access& a : collect_accesses(scope.body, site.path())) {
    if (a.write && std::find(written.begin(), written.end(), a.buffer) == written.end()) written.push_back(a.buffer);
  }
  for (const std::string& b : written) {
    if (is_param(k.find_buffer(b)->place))
      return invalid("expected `{}` to write temporaries, not `{}`", scope.iter, b);
  }
  // Of min(T, E) with no more than T iterations, those that are added begin at E.
  Expr begin = scope.extent;
  if (begin->op == Op::k_min) {
    const std::vector<Expr>& args = scope.extent->args;
    if (is_const_int(args[0], most)) begin = args[1];
    if (is_const_int(args[1], most)) begin = args[0];
  }
  std::string why;
  for (const std::string& b : written) {
    if (why.empty()) why = read_elsewhere(k, b, site, begin);
  }
  LATHE_RETURN_IF_ERROR(legality.require(0, why.empty(), why));
  const auto reads = move.options.find("reads");
  const bool copies = reads != move.options.end(), on = copies && reads->second == "on";
  if (copies) {
    Stmt* copy = copy_of_input(k, scope);
    if (copy == nullptr) return invalid("expected `{}` to copy an input and nothing else", scope.iter);
    const bool some = surely_le(Expr(1), scope.extent, ranges) ||
                      proves_begun(simplify(scope.extent - Expr(1), ranges), ranges, site.outer);
    LATHE_RETURN_IF_ERROR(legality.require(2, some, print_extent(scope)));
    if (on) LATHE_RETURN_IF_ERROR(read_on(k, *copy, site, most));
    if (!on) copy->value = substitute(copy->value, {{scope.iter, ir::min(iter(scope.iter), begin - Expr(1))}});
  }
  scope.extent = Expr(most);
  if (size != move.options.end()) grow(k, site);
  why = outside(k, site, copies);
  LATHE_RETURN_IF_ERROR(legality.require(1, why.empty(), why));
  simplify_body(scope.body, ranges_at(k, site.path()));
  return {};
}

std::vector<Move> propose_pad_scope(const Kernel& kernel) {
  std::vector<Move> out;
  for (const std::string& scope : plain_scopes(kernel)) {
    if (is_const_int(find_scope(kernel, scope)->extent)) continue;
    out.push_back({"pad_scope", {scope}, {}, {}});
    for (const char* reads : {"last", "on"}) out.push_back({"pad_scope", {scope}, {{"reads", reads}}, {}});
  }
  for (const std::string& scope : plain_scopes(kernel)) out.push_back({"pad_scope", {scope}, {{"size", "16"}}, {}});
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
