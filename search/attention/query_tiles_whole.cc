// Attention whose products are tiles of the CPU's own (tile_bf16). See query_tiles.h.
//
//   t heads of keys { kp = panels of k, vp = panels of v: whole tiles, with zeros behind the last key
//     g heads that share them, i0 blocks of 32 queries { [qp = q]
//       panels of keys { c = 0 | d: c += q * kp (tensor) | s = f(c) }
//       queries { beyond the keys that it sees: s = -inf | m fmax= s | sp = exp2(s - m), a += .. | r = 1 / a }
//       panels of columns { o = 0 | j2: o += sp * vp (tensor) | y = o * r } } }
//
// A block is a tile high. It takes the keys that any of its queries sees, and as many more as make whole tiles. Queries
// that are not there are computed with the last one's numbers, and what comes of them is not read.
#include "ir/analysis/analysis.h"
#include "search/attention/query_tiles.h"
#include "search/moves/transform_util.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

// rows { columns { c = 0 | depth: c += a * b | y = f(c) } }; padded: rows that a tile has in any case; 0: all its own.
void QueryTilesSketch::write_product(Script& s, const TileProduct& p, int64_t padded) const {
  const std::string &m = p.rows, &n = p.columns;
  s.move("tile_scope {} {} tail=exact as {}p,{}q", n, p.panel_columns, n, n);
  s.move("swap_scopes {} {}p", m, n);
  for (const std::string& scope : {n + "q", m}) {
    s.move("split_scope {} after=0 as {}_s", scope, scope);
    s.move("split_scope {}_s after=0 as {}_f", scope, scope);
  }
  const std::string step = p.depth + "e", pair = p.depth + "r", one = p.depth + "o";
  s.move("tile_scope {} {} tail=exact as {},{}q", p.depth, kTileDepth, step, p.depth);
  s.move("tile_scope {}q 2 tail=exact as {},{}", p.depth, pair, one);
  for (const std::string& scope : {step, pair, one}) {
    s.move("swap_scopes {}q_s {}", n, scope);
    s.move("swap_scopes {}_s {}", m, scope);
  }
  s.move("move_to_stack {} {}p", p.sums, n);
  for (const std::string& scope : {m, m + "_s"}) {
    if (padded != 0) s.move("pad_scope {} size={}", scope, padded);
    s.move("unroll_scope {}", scope);
  }
  s.move("unroll_scope {}", pair);
  s.move("unroll_scope {}", one);
  for (const char* part : {"", "_s", "_f"}) vectorize(s, fmt::format("{}q{}", n, part), t_.lanes, "exact", true);
  s.move("tensorize {} tile_bf16", step);
}

void QueryTilesSketch::write_tiles(Script& s, const Setting& k, const std::string& panels_at,
                                   const std::string& among_threads) const {
  const std::string i = p_.row->iter, j = p_.scores->iter, n = p_.columns->iter, rows = i + "1", block = i + "0";
  const bool even = whole(k);
  const Expr keys = problem_.kernel.find_buffer(p_.powered())->dims.back();
  const bool one_block = is_const_int(p_.row->extent) && p_.row->extent->ival <= k.row_block;
  const bool whole_keys = proves_divisible(keys, kTileDepth, Ranges(problem_.kernel));
  copy_keys(s, load_of_values(p_), "vp", panels_at, kTileDepth);
  copy_keys(s, load_of_keys(p_), "kp", panels_at, kTileDepth);
  s.move("tile_scope {} {} tail={} as {},{}", i, k.row_block, even ? "exact" : "mask", block, rows);
  s.move("split_scope {} after=2 as {}_max", j, j);
  s.move("swap_ops {} 0", rows);
  if (ragged() || !whole_keys) {
    s.move("widen_scope {} {} ends={}", j, rows, kTileDepth);
    s.move("widen_scope {}_max {} multiple={} as zb,ze", j, rows, kTileDepth);
  }
  if (panels_at != "root") s.move("move_to_stack vp {}", panels_at);
  s.move("narrow_temporary {} sp {}", p_.powered(), p_.powers->iter);
  for (const std::string& name : {std::string("sp"), std::string("r"), p_.powered()})
    s.move("move_to_stack {} {}", name, block);
  if (!even) copy_block(s, k, true);  // nothing may be read behind the last query
  pack_keys(s, panels_at, k);
  if (!among_threads.empty()) s.move("parallelize {}", among_threads);
  pack_values(s, k);
  std::vector<std::string> fills;
  for_each_stmt(s.kernel().body, [&](const Stmt& b) {
    if (b.iter == "zb" || b.iter == "ze") fills.push_back(b.iter);
  });
  for (size_t f = 0; f < fills.size(); ++f) s.move("swap_ops {} {}", rows, f + 1);
  s.move("split_scope {} after=0 as {}u_{}", rows, i, fills.empty() ? "soft" : "fill");
  if (!fills.empty()) s.move("split_scope {}u_fill after={} as {}u_soft", i, fills.size() - 1, i);
  s.move("split_scope {}u_soft after=4 as {}u_out", i, i);
  // Numbers in the code where it is several blocks: a single one is a leaf that has masks for few of them.
  fill(s, fills, ragged() && !one_block ? kMostFill : 0);
  vectorize_softmax(s, p_, j + "_max", k.score_vectors, t_.lanes);
  softmax_to_registers(s, p_, i + "u_soft");
  write_product(s, {rows, j, p_.depth->iter, p_.products(), k.key_columns}, even ? 0 : k.row_block);
  write_product(s, {i + "u_out", n, p_.values->iter, p_.sums(), k.value_columns}, even ? 0 : k.row_block);
  if (k.fetch_next != 0) fetch_next(s, k, panels_at);
}

}  // namespace lathe::search
