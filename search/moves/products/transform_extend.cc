// extend_temporary: a dimension of a temporary ends at a multiple, and its further cells hold zeros.
//   for i < N: t[i] = e   ->   for i < N: t[i] = e; for z < T*ceildiv(N, T) - N: t[N + z] = 0
// So a sum of products may go through whole steps of T terms, of which the last ones are 0 (widen_scope).
#include <algorithm>

#include "ir/analysis/dependence.h"
#include "ir/core/names.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

// The scope along the dimension in the nest that gives the buffer its first values; nothing: it is another nest.
static std::optional<std::string> scope_along(const Kernel& kernel, const Buffer& buffer, size_t dim) {
  const std::vector<Access> all = collect_accesses(kernel.body, {}, &buffer.name);
  if (all.empty() || !all[0].write || all[0].op != AssignOp::set) return std::nullopt;
  const std::vector<Expr>& index = all[0].index;
  const auto along = std::find_if(all[0].scopes.begin(), all[0].scopes.end(), [&](const Stmt* s) {
    return index[dim]->op == Op::k_iter && index[dim]->name == s->iter && equal(s->extent, buffer.dims[dim]);
  });
  if (along == all[0].scopes.end()) return std::nullopt;
  for (size_t d = 0; d < index.size(); ++d) {
    if (d != dim && uses(index[d], (*along)->iter)) return std::nullopt;
  }
  for (auto s = along; s != all[0].scopes.end(); ++s) {
    if ((*s)->body.size() != 1 || (*s)->mark != Mark::none || uses((*s)->extent, (*along)->iter)) return std::nullopt;
  }
  return (*along)->iter;
}

Status apply_extend_temporary(TransformResult& result, const Move& move, const TransformParams&) {
  Kernel& k = result.kernel;
  LATHE_ASSIGN(Buffer * buffer, find_temporary(k, move.args[0]));
  LATHE_ASSIGN(const int64_t dim,
               int_arg(move.args[1], "a dimension", 0, static_cast<int64_t>(buffer->dims.size()) - 1));
  LATHE_ASSIGN(const int64_t size, int_arg(move.args[2], "a multiple", 2, int64_t{1} << 20));
  const auto d = static_cast<size_t>(dim);
  const Ranges symbols(k);
  if (proves_divisible(buffer->dims[d], size, symbols))
    return invalid("expected dimension {} of `{}` not to be a multiple of {} yet", dim, buffer->name, size);
  const std::optional<std::string> along = scope_along(k, *buffer, d);
  if (!along)
    return invalid("expected dimension {} of `{}` to be assigned first by a nest of one statement, whole", dim,
                   buffer->name);
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(k, *along));
  Names names(k);
  LATHE_ASSIGN(const std::vector<std::string> created, created_names(names, move, {*along + "_z"}));
  const Expr end = buffer->dims[d];
  buffer->dims[d] = simplify(Expr(size) * ceildiv(end, Expr(size)), symbols);
  std::vector<Stmt> zeros = {site.scope()};
  rename_scopes(zeros[0].body, "_z", names);
  zeros[0].iter = created[0];
  zeros[0].extent = buffer->dims[d] - end;
  for_each_stmt(zeros, [&](Stmt& s) {
    if (s.kind != Stmt::Kind::assign) return;
    s.index[d] = end + iter(created[0]);
    s.value = is_float(buffer->type) ? const_float(0, buffer->type) : const_int(0, buffer->type);
  });
  simplify_body(zeros, ranges_at(k, site.outer));
  site.siblings->insert(site.siblings->begin() + static_cast<std::ptrdiff_t>(site.index) + 1, std::move(zeros[0]));
  return {};
}

std::vector<Move> propose_extend_temporary(const Kernel& kernel) {
  std::vector<Move> out;
  for (const Buffer& b : kernel.buffers) {
    if (is_param(b.place)) continue;
    for (size_t d = 0; d < b.dims.size(); ++d) {
      if (scope_along(kernel, b, d)) out.push_back({"extend_temporary", {b.name, std::to_string(d), "2"}, {}, {}});
    }
  }
  return out;
}

}  // namespace lathe::search
