// delete_temporary: a temporary that is copied to another buffer in the end goes, and what filled it fills that buffer;
// undoes create_temporary mode=accumulate. A temporary that is one plain assignment goes by inline_temporary.
#include <algorithm>

#include "ir/core/names.h"
#include "search/moves/footprint.h"
#include "search/moves/legality.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {
// `target[base + i] = t[i]`, the cell of the target for each cell of the temporary.
struct CopyOut {
  const Access* read = nullptr;
  std::vector<Expr> base;          // per dimension of the target, in the scopes around all uses
  std::vector<int> temporary_dim;  // per dimension of the target: the temporary's dimension added, or -1
  std::vector<Expr> map(const std::vector<Expr>& index) const {
    std::vector<Expr> out = base;
    for (size_t e = 0; e < out.size(); ++e) {
      if (temporary_dim[e] >= 0) out[e] = out[e] + index[static_cast<size_t>(temporary_dim[e])];
    }
    return out;
  }
};

bool is_copy(const Stmt& s, const std::string& from, const std::string& to) {
  return s.kind == Stmt::Kind::assign && s.target == to && s.op == AssignOp::set && s.value->op == Op::k_load &&
         s.value->name == from;
}

// Every dimension of the temporary by an iterator of its own, once on each side. `fixed` scopes enclose all uses.
Status fill_map(const Access& read, size_t fixed, CopyOut& copy) {
  const std::vector<Expr>& from = read.index;
  std::vector<std::string> inner;
  for (size_t i = fixed; i < read.scopes.size(); ++i) inner.push_back(read.scopes[i]->iter);
  std::vector<int> used(from.size(), 0);
  for (const Expr& at : read.stmt->index) {
    const auto linear = linear_in(at, inner);
    int dim = -1;
    bool fits = linear && linear->terms.size() <= 1;
    for_each_node(at, [&](const ExprNode& n) { fits = fits && n.op != Op::k_load; });
    if (fits && !linear->terms.empty()) {
      for (size_t d = 0; d < from.size(); ++d) {
        if (from[d]->op == Op::k_iter && from[d]->name == linear->terms[0].first) dim = static_cast<int>(d);
      }
      fits = dim >= 0 && linear->terms[0].second == 1;
    }
    if (!fits) return invalid("expected `{}` to be copied cell by cell", read.buffer);
    if (dim >= 0) ++used[static_cast<size_t>(dim)];
    copy.base.push_back(linear->base);
    copy.temporary_dim.push_back(dim);
  }
  if (std::any_of(used.begin(), used.end(), [](int n) { return n != 1; }))
    return invalid("expected each dimension of `{}` to be copied along one of the target", read.buffer);
  copy.read = &read;
  return {};
}

bool same_cell(const std::vector<Expr>& a, const std::vector<Expr>& b, const Ranges& ranges) {
  for (size_t d = 0; d < a.size(); ++d) {
    if (!equal(simplify(a[d], ranges), simplify(b[d], ranges))) return false;
  }
  return a.size() == b.size();
}

void remove_self_copies(std::vector<Stmt>& body, const std::string& target, const Ranges& ranges) {
  for (Stmt& s : body) {
    if (s.kind != Stmt::Kind::scope) continue;
    Ranges inner = ranges;
    inner.enter(s);
    remove_self_copies(s.body, target, inner);
  }
  std::erase_if(body,
                [&](const Stmt& s) { return is_copy(s, target, target) && same_cell(s.index, s.value->args, ranges); });
}
}  // namespace

//   t[i] = 0; t[i] += e; c[b + i] = t[i]  ->  c[b + i] = 0; c[b + i] += e
Status apply_delete_temporary(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("delete_temporary", params);
  LATHE_ASSIGN(const Buffer* buffer, find_temporary(k, move.args[0]));
  const std::string name = buffer->name, target = move.args[1];
  const Buffer* to = k.find_buffer(target);
  if (!to || to->type != buffer->type || target == name)
    return invalid("expected another buffer of the type of `{}`, got `{}`", name, target);
  bool prefetched = false;
  for_each_stmt(k.body, [&](const Stmt& s) { prefetched |= s.kind == Stmt::Kind::prefetch && s.target == name; });
  if (prefetched) return invalid("expected no prefetch of `{}`", name);

  const std::vector<Access> all = collect_accesses(k.body);
  const Access* read = nullptr;  // of the last copy
  ScopePath path;
  bool first = true;
  for (const Access& a : all) {
    if (a.buffer != name) continue;
    if (first) path = a.scopes;
    first = false;
    path.erase(std::mismatch(path.begin(), path.end(), a.scopes.begin(), a.scopes.end()).first, path.end());
    if (!a.write && is_copy(*a.stmt, name, target)) read = &a;
  }
  if (!read) return invalid("expected `{}` to be copied to `{}`", name, target);
  const bool own = to->place == Place::stack || to->place == Place::reg || to->place == Place::shared;
  for (const Access& a : all) {
    for (size_t i = path.size(); own && a.buffer == name && i < a.scopes.size(); ++i) {
      const Mark mark = a.scopes[i]->mark;
      if (is_shared_out(mark) && (mark != Mark::block || to->place == Place::stack))
        return invalid("expected no @{} scope between uses of `{}`, of which each of its iterations would have its own",
                       mark_name(mark), target);
    }
  }
  if (inside_mark(path, Mark::vector) || inside_mark(path, Mark::tensor))
    return invalid("expected `{}` to be used outside @vector and @tensor scopes", name);
  CopyOut copy;
  LATHE_RETURN_IF_ERROR(fill_map(*read, path.size(), copy));

  const std::vector<Stmt>& body = path.empty() ? k.body : path.back()->body;
  const auto child = [&](const Access& a) -> std::ptrdiff_t {
    const bool inside = a.scopes.size() >= path.size() && std::equal(path.begin(), path.end(), a.scopes.begin());
    if (!inside) return -1;
    return (a.scopes.size() > path.size() ? a.scopes[path.size()] : a.stmt) - body.data();
  };
  const auto is_copy_in = [&](const Access& a) {
    return is_copy(*a.stmt, target, name) &&
           same_cell(a.stmt->value->args, copy.map(a.stmt->index), ranges_at(k, a.scopes));
  };
  std::ptrdiff_t begin = PTRDIFF_MAX, end = -1;
  bool copied = true, finished = true;
  for (const Access& a : all) {
    if (a.buffer != name) continue;
    begin = std::min(begin, child(a));
    end = std::max(end, child(a));
    if (!a.write) continue;
    finished = finished && child(a) < child(*read);
    copied = copied && (is_copy_in(a) || covers(k, *read, a, path.size()));
  }
  const bool free = std::none_of(all.begin(), all.end(), [&](const Access& a) {
    return a.buffer == target && a.stmt != read->stmt && !is_copy_in(a) && child(a) >= begin && child(a) <= end;
  });
  LATHE_RETURN_IF_ERROR(legality.require(0, free));
  LATHE_RETURN_IF_ERROR(legality.require(1, copied));
  LATHE_RETURN_IF_ERROR(legality.require(2, finished));
  std::string why;
  LATHE_RETURN_IF_ERROR(legality.require(3, lives_inside(k, name, path, &why), why));

  const DType type = buffer->type;
  for_each_stmt(k.body, [&](Stmt& s) {
    if (s.kind != Stmt::Kind::assign || s.target != name) return;
    s.target = target;
    s.index = copy.map(s.index);
  });
  rewrite_exprs(
      k.body,
      [&](const Expr& e) -> Expr {
        return e->op == Op::k_load && e->name == name ? load(target, copy.map(e->args), type) : Expr();
      },
      holds_name(name));
  remove_self_copies(k.body, target, Ranges(k));
  prune_empty(k.body);
  std::erase_if(k.buffers, [&](const Buffer& b) { return b.name == name; });
  simplify_body(k.body, Ranges(k));
  result.renamed.push_back({name, {target}});
  return {};
}

std::vector<Move> propose_delete_temporary(const Kernel& kernel) {
  std::vector<Move> out;
  for_each_stmt(kernel.body, [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::assign || s.value->op != Op::k_load || !is_copy(s, s.value->name, s.target)) return;
    const Buffer* from = kernel.find_buffer(s.value->name);
    if (from->place >= Place::heap) out.push_back({"delete_temporary", {from->name, s.target}, {}, {}});
  });
  return out;
}

}  // namespace lathe::search
