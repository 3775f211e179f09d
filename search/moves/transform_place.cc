// move_to_stack, move_to_register, move_to_shared: a temporary whose life is inside one iteration of a scope
// becomes private to that iteration, and shrinks to what the iteration touches.
//   t[M, N] heap; for m: for n: t[m, n] = e; ... f(t[m, n])  ->  t[N] stack   (scope m),  t[] reg
//   (scope n)
// stream_stores: an output that is written once and never read may go past the caches. A flag of the buffer; which
// stores do is the generators' affair: whole vectors at aligned addresses.
//   d[N] out  ->  d[N] out stream
#include <algorithm>

#include "ir/analysis/dependence.h"
#include "search/moves/footprint.h"
#include "search/moves/legality.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

static const char* row_of(Place place) {
  return place == Place::stack ? "move_to_stack" : place == Place::reg ? "move_to_register" : "move_to_shared";
}

static Status contract(TransformResult& result, const Move& move, const TransformParams& params, Place place) {
  const char* row = row_of(place);
  const Legality legality(row, params);
  LATHE_ASSIGN(Buffer * buffer, find_temporary(result.kernel, move.args[0]));
  LATHE_ASSIGN(const ScopeSite site, find_site(result.kernel, move.args[1]));
  const ScopePath path = site.path();
  if (buffer->place >= place || (place == Place::shared && buffer->place == Place::reg))
    return invalid("expected a temporary that is not there yet, got `{}`", buffer->name);
  if (inside_mark(path, Mark::vector) || inside_mark(path, Mark::tensor)) {
    return invalid("expected a scope that is not @vector or @tensor, nor inside one");
  }
  const std::vector<Access> accesses = collect_accesses(site.scope().body, path, &buffer->name);
  if (accesses.empty()) return invalid("expected `{}` to be used inside `{}`", buffer->name, move.args[1]);
  std::vector<const Access*> pointers;
  for (const Access& a : accesses) {
    pointers.push_back(&a);
    for (size_t i = path.size(); i < a.scopes.size(); ++i) {
      const Mark mark = a.scopes[i]->mark;
      // A block of threads has its own shared memory, and registers that its threads divide.
      const bool of_block = mark == Mark::block && place != Place::stack && inside_mark(path, Mark::grid);
      if (is_shared_out(mark) && !of_block)
        return invalid("expected no scope that threads share out between `{}` and its uses", move.args[1]);
    }
  }
  std::string why;
  LATHE_RETURN_IF_ERROR(legality.require(0, lives_inside(result.kernel, buffer->name, path, &why), why));

  const Ranges ranges = ranges_at(result.kernel, path);
  const std::vector<DimRange> box = footprint(result.kernel, pointers, path.size(), ranges);
  std::vector<Expr> dims, bases, own;
  std::vector<bool> kept;
  // Iterations of @block scopes around it have cells of their own.
  for (const Stmt* s : path) {
    if (place != Place::shared || s->mark != Mark::block) continue;
    own.push_back(iter(s->iter));
    const int64_t last = interval(own.back(), ranges).hi;
    if (last == INT64_MAX) return invalid("expected a bounded number of threads in `{}`", s->iter);
    dims.push_back(Expr(std::max<int64_t>(last + 1, 1)));
  }
  for (size_t d = 0; d < box.size(); ++d) {
    kept.push_back(box[d].varies || !is_const_int(box[d].extent, 1));
    bases.push_back(box[d].base);
    if (!kept.back()) continue;
    dims.push_back(storage_size(box[d], buffer->dims[d], ranges, place != Place::stack));
    if (!dims.back())
      return invalid("expected dimension {} of `{}` to have a constant bound inside `{}`", d, buffer->name,
                     move.args[1]);
  }
  const auto rebase = [&](const std::vector<Expr>& index) {
    std::vector<Expr> out = own;
    for (size_t d = 0; d < index.size(); ++d) {
      if (kept[d]) out.push_back(index[d] - bases[d]);
    }
    return out;
  };
  std::vector<Stmt>& body = site.scope().body;
  for_each_stmt(body, [&](Stmt& s) {
    if (s.kind == Stmt::Kind::assign && s.target == buffer->name) s.index = rebase(s.index);
  });
  rewrite_exprs(
      body,
      [&](const Expr& e) -> Expr {
        if (e->op != Op::k_load || e->name != buffer->name) return {};
        return load(e->name, rebase(e->args), e->type);
      },
      holds_name(buffer->name));
  simplify_body(body, ranges);
  buffer->dims = std::move(dims);
  buffer->place = place;
  buffer->layout.clear();
  buffer->padding.clear();
  buffer->swizzle = 0;
  return {};
}

Status apply_move_to_stack(TransformResult& result, const Move& move, const TransformParams& params) {
  return contract(result, move, params, Place::stack);
}
// Shared memory is a block's: the scope is @grid, or inside of one.
Status apply_move_to_shared(TransformResult& result, const Move& move, const TransformParams& params) {
  LATHE_ASSIGN(const ScopeSite site, find_site(result.kernel, move.args[1]));
  if (!inside_mark(site.path(), Mark::grid))
    return invalid("expected a scope in a @grid scope, got `{}`", move.args[1]);
  return contract(result, move, params, Place::shared);
}
Status apply_move_to_register(TransformResult& result, const Move& move, const TransformParams& params) {
  return contract(result, move, params, Place::reg);
}

static std::vector<Move> propose_contraction(const Kernel& kernel, const char* row, Place place) {
  std::vector<Move> out;
  for (const Buffer& b : kernel.buffers) {
    if (b.place < Place::heap || b.place >= place) continue;
    for_each_stmt(kernel.body, [&](const Stmt& s) {
      if (s.kind == Stmt::Kind::scope) out.push_back({row, {b.name, s.iter}, {}, {}});
    });
  }
  return out;
}
std::vector<Move> propose_move_to_stack(const Kernel& kernel) {
  return propose_contraction(kernel, "move_to_stack", Place::stack);
}
std::vector<Move> propose_move_to_shared(const Kernel& kernel) {
  return propose_contraction(kernel, "move_to_shared", Place::shared);
}
std::vector<Move> propose_move_to_register(const Kernel& kernel) {
  return propose_contraction(kernel, "move_to_register", Place::reg);
}

Status apply_stream_stores(TransformResult& result, const Move& move, const TransformParams& params) {
  const Legality legality("stream_stores", params);
  Buffer* buffer = result.kernel.find_buffer(move.args[0]);
  if (!buffer || buffer->place != Place::out || buffer->stream)
    return invalid("expected the name of an output not streamed yet, got `{}`", move.args[0]);
  const std::vector<Access> accesses = collect_accesses(result.kernel.body);
  const bool read = std::any_of(accesses.begin(), accesses.end(),
                                [&](const Access& a) { return a.buffer == buffer->name && (!a.write || a.reduction); });
  LATHE_RETURN_IF_ERROR(legality.require(0, !read));
  LATHE_RETURN_IF_ERROR(legality.require(1, written_once(result.kernel, buffer->name)));
  buffer->stream = true;
  return {};
}

std::vector<Move> propose_stream_stores(const Kernel& kernel) {
  std::vector<Move> out;
  for (const Buffer& b : kernel.buffers) {
    if (b.place == Place::out && !b.stream) out.push_back({"stream_stores", {b.name}, {}, {}});
  }
  return out;
}

}  // namespace lathe::search
