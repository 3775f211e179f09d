// pad_scope: as many iterations as the scope has at most, in any case. What it writes further nobody reads.
//   for n0 < ceildiv(N, 8): for n1 < min(8, N - 8*n0): t[8*n0 + n1] = e  ->  ... for n1 < 8: t[8*n0 + n1] = e
#include <algorithm>

#include "ir/analysis/dependence.h"
#include "ir/core/names.h"
#include "search/moves/footprint.h"
#include "search/moves/legality.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

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

// Whether an access of the scope, which has all its iterations now, may leave its buffer.
std::string outside(const Kernel& kernel, const ScopeSite& site) {
  for (const Access& a : collect_accesses(site.scope().body, site.path())) {
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

Status apply_pad_scope(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("pad_scope", params);
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(k, move.args[0]));
  Stmt& scope = site.scope();
  const Ranges ranges = ranges_at(k, site.outer);
  const int64_t most = interval(scope.extent, ranges).hi;
  if (is_const_int(scope.extent) || most > kMostIterations)
    return invalid("expected iterations that vary in number, at most {}, got {}", kMostIterations, print_extent(scope));
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
  scope.extent = Expr(most);
  why = outside(k, site);
  LATHE_RETURN_IF_ERROR(legality.require(1, why.empty(), why));
  simplify_body(scope.body, ranges_at(k, site.path()));
  return {};
}

std::vector<Move> propose_pad_scope(const Kernel& kernel) {
  std::vector<Move> out;
  for (const std::string& scope : plain_scopes(kernel)) {
    if (!is_const_int(find_scope(kernel, scope)->extent)) out.push_back({"pad_scope", {scope}, {}, {}});
  }
  return out;
}

}  // namespace lathe::search
