// reuse_dims, reuse_buffers: storage used again, by the next iteration or by another buffer. The Kernel is rewritten to
// the cells that remain, so whatever asks for dependences afterwards asks about storage. split_buffer: cells that one
// scope has for itself, or values that nobody else sees, get storage of their own.
#include <algorithm>

#include "ir/core/names.h"
#include "ir/core/text_form.h"
#include "search/moves/footprint.h"
#include "search/moves/legality.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {
std::vector<Access> accesses_of(const Kernel& kernel, const std::string& a, const std::string& b) {
  std::vector<Access> accesses = collect_accesses(kernel.body);
  std::erase_if(accesses, [&](const Access& x) { return x.buffer != a && x.buffer != b; });
  return accesses;
}

// Iterations that run at once need cells of their own: of a buffer all threads share, or of lanes.
Status check_marks(const ScopePath& path, const Buffer& buffer) {
  if (inside_mark(path, Mark::vector) || inside_mark(path, Mark::tensor))
    return invalid("expected `{}` to be used outside @vector and @tensor scopes", buffer.name);
  if (buffer.place == Place::heap && inside_shared_out(path))
    return invalid("expected the heap buffer `{}` not to be used inside a scope that threads share out", buffer.name);
  return {};
}

void drop_dimension(Buffer& buffer, size_t dim) {
  const auto at = static_cast<std::ptrdiff_t>(dim);
  buffer.dims.erase(buffer.dims.begin() + at);
  if (!buffer.padding.empty()) buffer.padding.erase(buffer.padding.begin() + at);
  std::erase_if(buffer.layout, [&](const LayoutDim& l) { return l.dim == static_cast<int>(dim); });
  bool row_major = true;
  for (size_t p = 0; p < buffer.layout.size(); ++p) {
    LayoutDim& l = buffer.layout[p];
    l.dim -= l.dim > static_cast<int>(dim);
    row_major = row_major && l.part == LayoutDim::Part::whole && l.dim == static_cast<int>(p);
  }
  if (row_major) buffer.layout.clear();
}
}  // namespace

//   t[M, N]; for m: for n: t[m, n] = e; ... f(t[m, n])  ->  t[N]; for m: for n: t[n] = e; ... f(t[n])   (dimension 0)
Status apply_reuse_dims(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("reuse_dims", params);
  LATHE_ASSIGN(Buffer * buffer, find_temporary(k, move.args[0]));
  if (buffer->dims.empty()) return invalid("expected a buffer with dimensions, got `{}`", buffer->name);
  LATHE_ASSIGN(const int64_t dim,
               int_arg(move.args[1], "a dimension", 0, static_cast<int64_t>(buffer->dims.size()) - 1));
  const auto d = static_cast<size_t>(dim);
  const std::vector<Access> accesses = accesses_of(k, buffer->name, buffer->name);
  if (accesses.empty()) return invalid("expected `{}` to be used", buffer->name);
  const Expr& index = accesses[0].index[d];
  for (const Access& a : accesses) {
    if (equal(a.index[d], index)) continue;
    return invalid("expected `{}` to have the same index in dimension {} everywhere, got {} and {}", buffer->name, dim,
                   print(index), print(a.index[d]));
  }
  bool gathers = false;
  for_each_node(index, [&](const ExprNode& n) {
    gathers = gathers || (n.op == Op::k_load && !is_input(k.find_buffer(n.name)->place));
  });
  if (gathers) return invalid("expected an index of inputs alone in dimension {} of `{}`", dim, buffer->name);
  ScopePath path;  // down to the innermost scope that chooses the cell: they enclose every access
  for (size_t i = 0; i < accesses[0].scopes.size(); ++i) {
    if (!uses(index, accesses[0].scopes[i]->iter)) continue;
    path.assign(accesses[0].scopes.begin(), accesses[0].scopes.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  LATHE_RETURN_IF_ERROR(check_marks(path, *buffer));
  std::string why;
  const bool alone = path.empty() || lives_inside(k, buffer->name, path, &why);
  LATHE_RETURN_IF_ERROR(legality.require(0, alone, why));

  const std::string name = buffer->name;
  const auto rest = [&](std::vector<Expr> at) {
    at.erase(at.begin() + static_cast<std::ptrdiff_t>(d));
    return at;
  };
  for_each_stmt(k.body, [&](Stmt& s) {
    if (s.kind == Stmt::Kind::assign && s.target == name) s.index = rest(s.index);
  });
  rewrite_exprs(
      k.body,
      [&](const Expr& e) -> Expr {
        if (e->op != Op::k_load || e->name != name) return {};
        return load(name, rest(e->args), e->type);
      },
      holds_name(name));
  drop_dimension(*buffer, d);
  return {};
}

std::vector<Move> propose_reuse_dims(const Kernel& kernel) {
  std::vector<Move> out;
  for (const Buffer& b : kernel.buffers) {
    if (b.place < Place::heap) continue;
    for (size_t d = 0; d < b.dims.size(); ++d) out.push_back({"reuse_dims", {b.name, std::to_string(d)}, {}, {}});
  }
  return out;
}

// Whether all of the outside uses stand before the scope, or all after it, in the scopes around all of them.
static bool on_one_side(const Kernel& k, const ScopePath& around, const ScopePath& scope,
                        const std::vector<const Access*>& outside) {
  const std::vector<Stmt>& body = around.empty() ? k.body : around.back()->body;
  if (scope.size() <= around.size()) return false;
  const std::ptrdiff_t own = scope[around.size()] - body.data();
  bool before = true, after = true;
  for (const Access* a : outside) {
    const Stmt* top = a->scopes.size() > around.size() ? a->scopes[around.size()] : a->stmt;
    before = before && top - body.data() < own;
    after = after && top - body.data() > own;
  }
  return before || after;
}

//   t[i] = e; f(t[j]); u[k] = g; h(u[l])  ->  t[i] = e; f(t[j]); t[k] = g; h(t[l])
Status apply_reuse_buffers(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("reuse_buffers", params);
  LATHE_ASSIGN(Buffer * kept, find_temporary(k, move.args[0]));
  LATHE_ASSIGN(Buffer * dropped, find_temporary(k, move.args[1]));
  const std::string first = kept->name, second = dropped->name;
  if (first == second) return invalid("expected two different buffers, got `{}` twice", first);
  bool fits = kept->type == dropped->type && kept->place == dropped->place && kept->dims.size() == dropped->dims.size();
  for (size_t d = 0; fits && d < kept->dims.size(); ++d) fits = proves_le(dropped->dims[d], kept->dims[d], Ranges(k));
  if (!fits) return invalid("expected `{}` to have the type and place of `{}` and to fit into it", second, first);

  const std::vector<Access> accesses = accesses_of(k, first, second);
  const auto is_kept = [&](const Access& a) { return a.buffer == first; };
  if (std::all_of(accesses.begin(), accesses.end(), is_kept) || std::none_of(accesses.begin(), accesses.end(), is_kept))
    return invalid("expected `{}` and `{}` to be used", first, second);
  ScopePath path = accesses[0].scopes;
  for (const Access& a : accesses) {
    const auto end = std::mismatch(path.begin(), path.end(), a.scopes.begin(), a.scopes.end()).first;
    path.erase(end, path.end());
  }
  LATHE_RETURN_IF_ERROR(check_marks(path, *kept));
  const std::vector<Stmt>& body = path.empty() ? k.body : path.back()->body;
  std::ptrdiff_t begin[2] = {PTRDIFF_MAX, PTRDIFF_MAX}, end[2] = {-1, -1};
  for (const Access& a : accesses) {
    const std::ptrdiff_t child = (a.scopes.size() > path.size() ? a.scopes[path.size()] : a.stmt) - body.data();
    const int which = is_kept(a) ? 0 : 1;
    begin[which] = std::min(begin[which], child);
    end[which] = std::max(end[which], child);
  }
  LATHE_RETURN_IF_ERROR(legality.require(0, end[0] < begin[1] || end[1] < begin[0]));
  std::string why;
  const bool alone = lives_inside(k, first, path, &why) && lives_inside(k, second, path, &why);
  LATHE_RETURN_IF_ERROR(legality.require(1, alone, why));

  for_each_stmt(k.body, [&](Stmt& s) {
    if (s.kind != Stmt::Kind::scope && s.target == second) s.target = first;
  });
  rewrite_exprs(
      k.body,
      [&](const Expr& e) -> Expr {
        return e->op == Op::k_load && e->name == second ? load(first, e->args, e->type) : Expr();
      },
      holds_name(second));
  std::erase_if(k.buffers, [&](const Buffer& b) { return b.name == second; });
  result.renamed.push_back({second, {first}});
  return {};
}

std::vector<Move> propose_reuse_buffers(const Kernel& kernel) {
  std::vector<Move> out;
  for (const Buffer& a : kernel.buffers) {
    for (const Buffer& b : kernel.buffers) {
      const bool alike =
          a.place >= Place::heap && a.place == b.place && a.type == b.type && a.dims.size() == b.dims.size();
      if (alike && a.name != b.name) out.push_back({"reuse_buffers", {a.name, b.name}, {}, {}});
    }
  }
  return out;
}

//   for a < 8: t[a] = e; f(t[a]); for b < 4: t[b + 8] = g; h(t[b + 8])
//   ->  for a < 8: t[a] = e; f(t[a]); for b < 4: u[b + 8] = g; h(u[b + 8])   (scope b)
Status apply_split_buffer(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("split_buffer", params);
  LATHE_ASSIGN(Buffer * buffer, find_temporary(k, move.args[0]));
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(k, move.args[1]));
  const std::string name = buffer->name;
  std::vector<const Access*> inside, outside;
  const std::vector<Access> accesses = accesses_of(k, name, name);
  for (const Access& a : accesses) {
    const bool in = std::find(a.scopes.begin(), a.scopes.end(), &site.scope()) != a.scopes.end();
    (in ? inside : outside).push_back(&a);
  }
  if (inside.empty() || outside.empty())
    return invalid("expected `{}` to be used inside `{}` and elsewhere", name, move.args[1]);
  // Boxes of the cells of all iterations; of one iteration of the scopes around where the buffer's life is inside it.
  ScopePath around(accesses[0].scopes.begin(), accesses[0].scopes.end());
  for (const Access& a : accesses)
    around.erase(std::mismatch(around.begin(), around.end(), a.scopes.begin(), a.scopes.end()).first, around.end());
  const ScopePath together = around;
  const bool one_side = on_one_side(k, together, site.path(), outside);
  if (!lives_inside(k, name, around, nullptr)) around.clear();
  const Ranges ranges = ranges_at(k, around);
  const auto box = [&](const Access* a) { return footprint(k, *a, around.size(), ranges); };
  const auto below = [&](const DimRange& x, const DimRange& y) {
    return !x.whole && !y.whole && surely_le(simplify(x.base + x.extent, ranges), y.base, ranges);
  };
  const auto apart = [&](const Access* a, const Access* b) {
    const std::vector<DimRange> x = box(a), y = box(b);
    for (size_t d = 0; d < x.size(); ++d) {
      if (below(x[d], y[d]) || below(y[d], x[d])) return true;
    }
    return false;
  };
  // What is read where nothing is written, which is in loops that never run, has no cells of its own.
  const auto writes = [](const Access* a) { return a->write; };
  const bool written =
      std::any_of(inside.begin(), inside.end(), writes) && std::any_of(outside.begin(), outside.end(), writes);
  const bool own = written && std::all_of(inside.begin(), inside.end(), [&](const Access* a) {
                     return std::all_of(outside.begin(), outside.end(), [&](const Access* b) { return apart(a, b); });
                   });

  Names names(k);
  LATHE_ASSIGN(const std::vector<std::string> created, created_names(names, move, {name + "_s"}));
  Buffer split = *buffer;
  split.name = created[0];
  std::vector<Stmt>& body = site.scope().body;
  for_each_stmt(body, [&](Stmt& s) {
    if (s.kind != Stmt::Kind::scope && s.target == name) s.target = split.name;
  });
  rewrite_exprs(
      body,
      [&](const Expr& e) -> Expr {
        return e->op == Op::k_load && e->name == name ? load(split.name, e->args, e->type) : Expr();
      },
      holds_name(name));
  k.buffers.push_back(std::move(split));
  // Neither part reads what the other wrote.
  const bool lives = one_side && lives_inside(k, name, together, nullptr) &&
                     lives_inside(k, k.buffers.back().name, site.path(), nullptr);
  return legality.require(0, own || lives);
}

std::vector<Move> propose_split_buffer(const Kernel& kernel) {
  std::vector<Move> out;
  const std::vector<Access> accesses = collect_accesses(kernel.body);
  for (const std::string& scope : plain_scopes(kernel)) {
    const auto inside = [&](const Access& a) {
      return std::any_of(a.scopes.begin(), a.scopes.end(), [&](const Stmt* s) { return s->iter == scope; });
    };
    for (const Buffer& b : kernel.buffers) {
      if (b.place < Place::heap) continue;
      bool in = false, elsewhere = false;
      for (const Access& a : accesses) {
        if (a.buffer == b.name) (inside(a) ? in : elsewhere) = true;
      }
      if (in && elsewhere) out.push_back({"split_buffer", {b.name, scope}, {}, {}});
    }
  }
  return out;
}

}  // namespace lathe::search
