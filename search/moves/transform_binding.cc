// Moves that bind a scope to the machine: unroll_scope, vectorize_scope, parallelize, parallelize_grid,
// parallelize_cluster, parallelize_block, tensorize, prefetch. They set marks and add prefetches; what runs and in
// which order a generator may run it is the marks' meaning (docs/ir.md).
#include <algorithm>

#include "ir/analysis/dependence.h"
#include "ir/analysis/intrinsics.h"
#include "ir/core/names.h"
#include "search/moves/footprint.h"
#include "search/moves/last_rows.h"
#include "search/moves/legality.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {
constexpr int64_t kMaxUnroll = 256, kMaxUnrollVariants = 32, kMaxVector = 64, kMostBlock = 1024;

std::vector<Move> propose_marks(const Kernel& kernel, const char* row) {
  std::vector<Move> out;
  for_each_stmt(kernel.body, [&](const Stmt& s) {
    if (s.kind == Stmt::Kind::scope && s.mark == Mark::none) out.push_back({row, {s.iter}, {}, {}});
  });
  return out;
}

// An unmarked scope outside vector scopes (a tile's inner loops may be marked after it is bound).
Result<ScopeSite> find_unmarked(Kernel& kernel, const std::string& iter) {
  LATHE_ASSIGN(ScopeSite site, find_site(kernel, iter));
  if (site.scope().mark != Mark::none) return invalid("expected a scope without a mark, `{}` has one", iter);
  if (inside_mark(site.outer, Mark::vector))
    return invalid("expected a scope outside @vector scopes, `{}` is inside one", iter);
  return site;
}
}  // namespace

Status apply_unroll_scope(TransformResult& result, const Move& move, const TransformParams&) {
  LATHE_ASSIGN(const ScopeSite site, find_unmarked(result.kernel, move.args[0]));
  Stmt& scope = site.scope();
  const Ranges ranges = ranges_at(result.kernel, site.outer);
  const int64_t most = is_const_int(scope.extent) ? kMaxUnroll : kMaxUnrollVariants;
  if (interval(scope.extent, ranges).hi > most && !proves_le(scope.extent, Expr(most), ranges)) {
    return invalid("expected a constant extent, or one of at most {}, got {}", kMaxUnrollVariants, print_extent(scope));
  }
  scope.mark = Mark::unroll;
  return {};
}
std::vector<Move> propose_unroll_scope(const Kernel& kernel) { return propose_marks(kernel, "unroll_scope"); }

// All lanes of a statement run before the next statement: as good as any order of the iterations. Of a running sum each
// iteration has its own.
Status apply_vectorize_scope(TransformResult& result, const Move& move, const TransformParams& params) {
  const Legality legality("vectorize_scope", params);
  LATHE_ASSIGN(const ScopeSite site, find_unmarked(result.kernel, move.args[0]));
  Stmt& scope = site.scope();
  const Ranges ranges = ranges_at(result.kernel, site.outer);
  if (interval(scope.extent, ranges).hi > kMaxVector && !proves_le(scope.extent, Expr(kMaxVector), ranges)) {
    return invalid("expected an extent of at most {}, got {}", kMaxVector, print_extent(scope));
  }
  for (const Stmt& s : scope.body) {
    if (s.kind != Stmt::Kind::assign) return invalid("expected only assignments inside `{}`", scope.iter);
  }
  for (const Access& a : collect_accesses(scope.body)) {
    for (const Expr& e : a.index) {
      if (!linear_in(e, {scope.iter}))
        return invalid("expected every index to be linear in `{}`, `{}` has another", scope.iter, a.buffer);
    }
  }
  const std::vector<std::string> running = running_sums(result.kernel, scope);
  const Answer answer = independent(result.kernel, scope.iter, {.allow_reductions = true, .apart = running});
  LATHE_RETURN_IF_ERROR(legality.require(0, answer.ok, answer.why));
  scope.mark = Mark::vector;
  if (answer.reassociates || !running.empty()) result.kernel.numeric |= kReassociate;
  return {};
}
std::vector<Move> propose_vectorize_scope(const Kernel& kernel) { return propose_marks(kernel, "vectorize_scope"); }

// Whether what iterations of the scope reduce onto together are temporaries: threads of a block can add those up.
static bool reduces_temporaries(const Kernel& kernel, const Stmt& scope, const ScopePath& path) {
  const std::vector<Access> accesses = collect_accesses(scope.body, path);
  return std::none_of(accesses.begin(), accesses.end(), [&](const Access& a) {
    return a.reduction && is_param(kernel.find_buffer(a.buffer)->place) &&
           may_conflict_across(kernel, scope.iter, a, a, false);
  });
}

// The scope's iterations are shared out: stack and reg buffers belong to one thread, and nothing else is handed over,
// but for what the threads of a block reduce together. What they have of reg buffers is for code to settle.
static Status share_out(TransformResult& result, const char* row, const Move& move, const TransformParams& params,
                        const ScopeSite& site, Mark mark) {
  const Legality legality(row, params);
  const ScopePath path = site.path();
  std::vector<std::string> own;
  for (const Access& a : collect_accesses(site.scope().body, path)) {
    const Place place = result.kernel.find_buffer(a.buffer)->place;
    const bool of_block = place == Place::shared && is_of_grid(mark);
    if (place != Place::stack && place != Place::reg && !of_block) continue;
    if (place == Place::reg && mark == Mark::block && !lives_inside(result.kernel, a.buffer, path, nullptr)) continue;
    if (std::find(own.begin(), own.end(), a.buffer) != own.end()) continue;
    std::string why;
    if (!lives_inside(result.kernel, a.buffer, path, &why))
      return invalid("expected what threads have each their own to live inside `{}`: {}", move.args[0], why);
    own.push_back(a.buffer);
  }
  if (is_of_grid(mark)) {
    for (std::string& buffer : in_segments(site.scope())) own.push_back(std::move(buffer));
    for (std::string& buffer : in_last_rows(result.kernel, site.scope())) own.push_back(std::move(buffer));
  }
  site.scope().mark = mark;
  Answer answer = independent(result.kernel, move.args[0], {.apart = own});
  if (!answer.ok && mark == Mark::block) {
    const Answer reduced = independent(result.kernel, move.args[0], {.allow_reductions = true, .apart = own});
    if (reduced.ok && reduces_temporaries(result.kernel, site.scope(), path)) answer = reduced;
    if (answer.ok && answer.reassociates) result.kernel.numeric |= kReassociate;
  }
  return legality.require(0, answer.ok, answer.why);
}

Status apply_parallelize(TransformResult& result, const Move& move, const TransformParams& params) {
  LATHE_ASSIGN(const ScopeSite site, find_site(result.kernel, move.args[0]));
  if (site.scope().mark != Mark::none) return invalid("expected a scope without a mark, `{}` has one", move.args[0]);
  for (const Stmt* s : site.outer) {
    if (s->mark != Mark::none && s->mark != Mark::parallel)
      return invalid("expected no marked scope around `{}`", move.args[0]);
  }
  return share_out(result, "parallelize", move, params, site, Mark::parallel);
}
std::vector<Move> propose_parallelize(const Kernel& kernel) { return propose_marks(kernel, "parallelize"); }

Status apply_parallelize_grid(TransformResult& result, const Move& move, const TransformParams& params) {
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(result.kernel, move.args[0]));
  for (const Stmt* s : site.outer) {
    if (s->mark != Mark::grid) return invalid("expected @grid scopes alone around `{}`", move.args[0]);
  }
  if (!site.outer.empty() && site.outer.back()->body.size() != 1)
    return invalid("expected nothing beside `{}` in `{}`", move.args[0], site.outer.back()->iter);
  bool parallel = false;
  for_each_stmt(site.scope().body, [&](const Stmt& s) { parallel |= s.mark == Mark::parallel; });
  if (parallel) return invalid("expected no @parallel scope inside `{}`", move.args[0]);
  return share_out(result, "parallelize_grid", move, params, site, Mark::grid);
}
std::vector<Move> propose_parallelize_grid(const Kernel& kernel) { return propose_marks(kernel, "parallelize_grid"); }

// Blocks that run at once: what of their operands does not differ between them, code may load for both.
Status apply_parallelize_cluster(TransformResult& result, const Move& move, const TransformParams& params) {
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(result.kernel, move.args[0]));
  const auto of_grid = [](const Stmt* s) { return s->mark == Mark::grid; };
  if (site.outer.empty() || !std::all_of(site.outer.begin(), site.outer.end(), of_grid))
    return invalid("expected `{}` inside @grid scopes alone", move.args[0]);
  if (site.outer.back()->body.size() != 1)
    return invalid("expected nothing beside `{}` in `{}`", move.args[0], site.outer.back()->iter);
  if (!is_const_int(site.scope().extent, kClusterBlocks))
    return invalid("expected {} iterations, got {}", kClusterBlocks, print_extent(site.scope()));
  bool parallel = false;
  for_each_stmt(site.scope().body, [&](const Stmt& s) { parallel |= s.mark == Mark::parallel; });
  if (parallel) return invalid("expected no @parallel scope inside `{}`", move.args[0]);
  return share_out(result, "parallelize_cluster", move, params, site, Mark::cluster);
}
std::vector<Move> propose_parallelize_cluster(const Kernel& kernel) {
  return propose_marks(kernel, "parallelize_cluster");
}

// What a block does once it does for several iterations of the grid; which ones, code says.
Status apply_make_persistent(TransformResult& result, const Move& move, const TransformParams&) {
  LATHE_ASSIGN(const ScopeSite site, find_site(result.kernel, move.args[0]));
  Stmt& scope = site.scope();
  if (!is_of_grid(scope.mark)) return invalid("expected a @grid or @cluster scope, `{}` is none", scope.iter);
  for (const Stmt& s : scope.body) {
    if (is_of_grid(s.mark) || s.mark == Mark::persistent)
      return invalid("expected the innermost @grid scope, `{}` holds @{} scope `{}`", scope.iter, mark_name(s.mark),
                     s.iter);
  }
  Names names(result.kernel);
  std::vector<Stmt> body;
  body.push_back(make_scope(names.fresh(scope.iter + "_s"), Expr(1), std::move(scope.body)));
  body.back().mark = Mark::persistent;
  scope.body = std::move(body);
  return {};
}
std::vector<Move> propose_make_persistent(const Kernel& kernel) {
  std::vector<Move> out;
  for_each_stmt(kernel.body, [&](const Stmt& s) {
    if (is_of_grid(s.mark)) out.push_back({"make_persistent", {s.iter}, {}, {}});
  });
  return out;
}

Status apply_parallelize_block(TransformResult& result, const Move& move, const TransformParams& params) {
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(result.kernel, move.args[0]));
  if (!inside_mark(site.outer, Mark::grid)) return invalid("expected `{}` inside a @grid scope", move.args[0]);
  bool role = false;
  for_each_stmt(site.scope().body, [&](const Stmt& s) { role |= s.mark == Mark::role; });
  if (role) return invalid("expected no @role scope inside `{}`", move.args[0]);
  int64_t threads = 1;
  for (const Stmt* s : site.path()) {
    if (s != &site.scope() && s->mark != Mark::block) continue;
    const int64_t most = interval(s->extent, ranges_at(result.kernel, site.outer)).hi;
    threads = most > kMostBlock ? kMostBlock + 1 : threads * std::max<int64_t>(most, 1);
  }
  if (threads > kMostBlock) {
    return invalid("expected at most {} threads in a block, `{}` and the scopes around it have more", kMostBlock,
                   move.args[0]);
  }
  return share_out(result, "parallelize_block", move, params, site, Mark::block);
}
std::vector<Move> propose_parallelize_block(const Kernel& kernel) { return propose_marks(kernel, "parallelize_block"); }

Status apply_tensorize(TransformResult& result, const Move& move, const TransformParams&) {
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(result.kernel, move.args[0]));
  const Intrinsic* intrinsic = find_intrinsic(move.args[1]);
  if (!intrinsic) return invalid("expected the name of an intrinsic, got `{}`", move.args[1]);
  if (intrinsic->sm != 0 && !inside_mark(site.outer, Mark::grid))
    return invalid("expected `{}` inside a @grid scope", move.args[0]);
  std::string why;
  if (!matches_intrinsic(result.kernel, site.scope(), *intrinsic, &why)) {
    return unsupported("scope `{}` does not mean {}: {}", move.args[0], intrinsic->name, why);
  }
  site.scope().mark = Mark::tensor;
  site.scope().intrinsic = intrinsic->name;
  bool floats = false;
  for_each_stmt(site.scope().body,
                [&](const Stmt& s) { floats = floats || (s.kind == Stmt::Kind::assign && is_float(s.value->type)); });
  if (floats) result.kernel.numeric |= intrinsic->numeric;
  return {};
}

std::vector<Move> propose_tensorize(const Kernel& kernel) {
  std::vector<Move> out;
  for (const std::string& scope : plain_scopes(kernel)) {
    for (const Intrinsic& i : intrinsics()) {
      if (i.sm == 0) out.push_back({"tensorize", {scope, i.name}, {}, {}});
    }
  }
  return out;
}

Status apply_prefetch(TransformResult& result, const Move& move, const TransformParams&) {
  LATHE_ASSIGN(const ScopeSite site, find_site(result.kernel, move.args[1]));
  const bool tensor = site.scope().mark == Mark::tensor;
  if (!tensor && site.scope().mark != Mark::none && site.scope().mark != Mark::unroll)
    return invalid("expected a loop, an @unroll or a @tensor scope, got `{}`", move.args[1]);
  const auto ahead = move.options.find("ahead"), next = move.options.find("next");
  if ((ahead == move.options.end()) == (next == move.options.end())) return invalid("expected either ahead= or next=");
  // What the scope that is named reads does as well.
  const Stmt* reader = &site.scope();
  for (const Stmt* s : site.outer) {
    if (site.scope().mark != Mark::unroll && next != move.options.end() && s->iter == next->second) reader = s;
  }
  const auto accesses = collect_accesses(reader->body);
  const bool read = std::any_of(accesses.begin(), accesses.end(),
                                [&](const Access& a) { return a.buffer == move.args[0] && !a.write; });
  if (!read) return invalid("expected a buffer that `{}` reads, got `{}`", reader->iter, move.args[0]);
  Stmt stream;
  stream.kind = Stmt::Kind::prefetch;
  stream.target = move.args[0];
  LATHE_ASSIGN(const int64_t lines, int_arg(move.options.at("lines"), "lines", 1, 128));
  stream.lines = static_cast<int>(lines);
  const auto to = move.options.find("to");
  stream.cache = to != move.options.end() && to->second == "l2" ? 2 : 1;
  if (ahead != move.options.end()) {
    LATHE_ASSIGN(stream.distance, int_arg(ahead->second, "ahead", 64, int64_t{1} << 30));
  } else if (site.scope().mark == Mark::unroll) {
    return invalid("expected ahead= in the unrolled scope `{}`", move.args[1]);
  } else {
    const auto encloses = [&](const Stmt* s) { return s->iter == next->second; };
    if (std::none_of(site.outer.begin(), site.outer.end(), encloses)) {
      return invalid("expected next= to name a scope around `{}`, got `{}`", move.args[1], next->second);
    }
    stream.iter = next->second;
  }
  std::vector<Stmt>& body = site.scope().body;
  const auto at = std::find_if(body.begin(), body.end(), [](const Stmt& s) { return s.kind != Stmt::Kind::prefetch; });
  body.insert(at, std::move(stream));
  return {};
}

std::vector<Move> propose_prefetch(const Kernel& kernel) {
  std::vector<Move> out;
  for_each_stmt(kernel.body, [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::scope || s.mark != Mark::tensor) return;
    for (const Access& a : collect_accesses(s.body)) {
      if (!a.write) out.push_back({"prefetch", {a.buffer, s.iter}, {{"ahead", "8192"}, {"lines", "8"}}, {}});
    }
  });
  return out;
}

}  // namespace lathe::search
