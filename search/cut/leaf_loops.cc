// Which loops a leaf may have, and what may stand in them. See leaf_builder.h.
#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/analysis/intrinsics.h"
#include "ir/core/names.h"
#include "search/cut/leaf_builder.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int kMaxLoops = 3;
constexpr int64_t kPageBytes = 4096;

}  // namespace

// around: the leaf's loops around the list, `alone` if nothing stands beside any of them.
Status LeafBuilder::check_loops(std::span<const Stmt> body, int depth, std::vector<const Stmt*>& around, bool alone) {
  for (const Stmt& s : body) {
    if (s.kind != Stmt::Kind::scope) continue;
    if (is_shared_out(s.mark)) return unsupported("scope {} is {}", s.iter, mark_name(s.mark));
    const bool summed = s.mark == Mark::tensor && is_summed(s);
    const bool step = s.mark == Mark::tensor && is_one_step(s);
    if (summed && !step && !around.empty()) LATHE_RETURN_IF_ERROR(check_tile_loop(s, around, alone));
    const bool squares = s.mark == Mark::tensor && !summed;
    if (squares && !(outside_only(s.extent) && outside_only(s.body[0].extent))) {
      return unsupported("{} {}: its extents depend on the leaf's own loops", s.intrinsic, s.iter);
    }
    const bool real = s.mark == Mark::none || (s.mark == Mark::tensor && !step);
    const int inner = depth + (real ? 1 : 0);
    if (inner > kMaxLoops) return unsupported("scope {} is nested deeper than {} loops", s.iter, kMaxLoops);
    if (s.mark == Mark::none) around.push_back(&s);
    const bool stays_alone = alone && (s.mark != Mark::none || body.size() == 1);
    LATHE_RETURN_IF_ERROR(check_loops(s.body, inner, around, stays_alone));
    if (s.mark == Mark::none) around.pop_back();
  }
  return {};
}

Expr LeafBuilder::step_bytes(const std::string& buffer, const Stmt& tensor, const Ranges& ranges) const {
  Expr step;
  bool read = false;
  for_each_stmt(tensor.body, [&](const Stmt& inner) {
    if (inner.kind != Stmt::Kind::assign || read) return;
    for_each_node(inner.value, [&](const ExprNode& n) {
      if (n.op != Op::k_load || n.name != buffer || read) return;
      read = true;
      const Buffer& b = *kernel_.find_buffer(n.name);
      if (dtype_bytes(b.type) == 0) return;
      const std::vector<Expr> index = physical_index(b, n.args, ranges), strides = physical_strides(b);
      for (size_t d = 0; d < index.size(); ++d) {
        if (!uses(index[d], tensor.iter)) continue;
        const Expr next = substitute(index[d], {{tensor.iter, iter(tensor.iter) + Expr(1)}});
        const Expr by = simplify(next - index[d], ranges);  // a step of tiles reads several
        step = (uses(by, tensor.iter) ? Expr(1) : by) * strides[d] * Expr(dtype_bytes(b.type));
      }
    });
  });
  return step;
}

bool LeafBuilder::follows_rows(const Stmt& prefetch, const Stmt& tensor, const Ranges& ranges) const {
  const Expr step = prefetch.iter.empty() ? step_bytes(prefetch.target, tensor, ranges) : Expr();
  return step && proves_le(Expr(kPageBytes), step, ranges);
}

// A sum in loops over several tiles: a leaf that is nothing else, of tiles of one size; a call each where a stream is
// prefetched, as that follows the calls. What waits in tiles takes no registers of what stands beside it.
Status LeafBuilder::check_tile_loop(const Stmt& sum, const std::vector<const Stmt*>& around, bool alone) const {
  const bool in_tiles = sum.intrinsic.starts_with("tile_");
  if (!alone && !in_tiles) return unsupported("tensor scope {} stands inside a loop beside other statements", sum.iter);
  if (std::all_of(around.begin(), around.end(), [](const Stmt* s) { return is_const_int(s->extent, 1); }))
    return unsupported("tensor scope {} stands inside loops of one tile", sum.iter);
  bool same = true, prefetches = false, in_memory = false;
  const auto look = [&](const Stmt& s) {
    prefetches |= s.kind == Stmt::Kind::prefetch && !follows_rows(s, sum, ranges_);
    in_memory |= s.kind == Stmt::Kind::assign && kernel_.find_buffer(s.target)->place != Place::reg;
    if (s.kind != Stmt::Kind::scope) return;
    for (const Stmt* loop : around) same &= !uses(s.extent, loop->iter);
  };
  look(sum);
  for_each_stmt(sum.body, look);
  if (!same) return unsupported("tensor scope {}: an extent depends on a loop around it", sum.iter);
  if (prefetches) return unsupported("tensor scope {} stands inside a loop and prefetches", sum.iter);
  if (in_memory && !in_tiles)
    return unsupported("tensor scope {} stands inside a loop and its sums are in memory", sum.iter);
  return {};
}

}  // namespace lathe::search
