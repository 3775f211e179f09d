// The moves of attention in tiles of queries. See query_tiles.h.
#include <algorithm>

#include "ir/analysis/analysis.h"
#include "search/attention/query_tiles.h"
#include "search/moves/transform_util.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

// How many cells of each query of a tile there are before and after the keys that it sees.
enum class Fill { baked, vector, any };  // numbers in the code; known to be at most `most`; neither
Fill fill_of(const Kernel& kernel, const std::string& scope, const std::string& row, int64_t most) {
  Kernel copy = kernel;
  const Result<ScopeSite> site = find_site(copy, scope);
  if (!site.ok()) return Fill::any;
  const Expr& extent = site->scope().extent;
  if (!proves_le(extent, Expr(most), ranges_at(copy, site->outer))) return Fill::any;
  bool plain = true;
  for_each_node(extent, [&](const ExprNode& n) {
    if (n.op == Op::k_max) plain = plain && !uses(n.args[0], row) && !uses(n.args[1], row);
  });
  return plain ? Fill::baked : Fill::vector;
}

}  // namespace

// Panels of keys, each [depth][key]; of pairs, [depth / 2][key][depth % 2].
void QueryTilesSketch::pack_keys(Script& s, const std::string& at, const Setting& k) const {
  if (at != "root") s.move("move_to_stack kp {}", at);
  const Buffer* kp = s.kernel().find_buffer("kp");
  if (!s.ok() || kp == nullptr) return;
  const size_t rank = kp->dims.size();  // at least of keys and depth
  const std::string rows = fmt::format("kp_{}", rank - 2), columns = fmt::format("kp_{}", rank - 1);
  s.move("tile_buffer kp {} {}", rank - 2, k.key_columns);
  s.move("swap_dims kp {} {}", rank - 1, rank);
  const char* tail = "mask";  // of keys that are there, or of all
  for_each_stmt(s.kernel().body, [&](const Stmt& b) {
    if (b.iter == rows) tail = tail_of(b.extent, k.key_columns, problem_.kernel);
  });
  s.move("tile_scope {} {} tail={} as kpt,kpr", rows, k.key_columns, tail);
  if (k.dots == kSingle) return s.move("tensorize kpr transpose");
  s.move("tile_buffer kp {} 2", rank - 1);
  s.move("swap_dims kp {} {}", rank, rank + 1);
  s.move("tile_scope {} 2 tail=exact as kpe,kpo", columns);
  s.move("tensorize kpr transpose_pairs");
  if (find_scope(s.kernel(), "kpz") == nullptr) return;
  s.move("tile_scope {}_z 2 tail=exact as kpze,kpzo", columns);
  s.move("vectorize_scope kpzo");
}

// A copy of keys or values, of whole steps of so many, the last one with zeros at its end.
void QueryTilesSketch::copy_keys(Script& s, const Expr& load, const std::string& copy, const std::string& at,
                                 int64_t step) {
  s.move("create_temporary {} {} at={}", load->name, copy, at);
  const Buffer* b = s.kernel().find_buffer(copy);
  if (!s.ok() || b == nullptr || b->dims.size() < 2) return;
  const size_t keys = b->dims.size() - 2;
  if (!proves_divisible(b->dims[keys], step, Ranges(s.kernel())))
    s.move("extend_temporary {} {} {} as {}z", copy, keys, step, copy);
}

// It becomes panels, each [key / 2][column][key % 2].
void QueryTilesSketch::pack_values(Script& s, const Setting& k) const {
  const std::string& values = load_of_values(p_)->name;
  const Buffer* vp = s.kernel().find_buffer("vp");
  if (!s.ok() || vp == nullptr) return;
  const size_t rank = vp->dims.size();
  const std::string rows = fmt::format("vp_{}", rank - 2), columns = fmt::format("vp_{}", rank - 1);
  const Expr& extent = p_.columns->extent;
  s.move("tile_buffer vp {} {}", rank - 1, k.value_columns);
  s.move("tile_buffer vp {} 2", rank - 2);
  s.move("swap_dims vp {} {}", rank - 1, rank + 1);
  s.move("swap_dims vp {} {}", rank - 2, rank);
  s.move("swap_dims vp {} {}", rank - 1, rank);
  const char* tail = tail_of(extent, k.value_columns, problem_.kernel);
  s.move("tile_scope {} {} tail={} as vpn,vpc", columns, k.value_columns, tail);
  if (find_scope(s.kernel(), columns + "_z") != nullptr)
    s.move("tile_scope {}_z {} tail={} as vpzn,vpzc", columns, k.value_columns, tail);
  const Stmt* copied = find_scope(s.kernel(), rows);
  const bool pairs = copied != nullptr && proves_divisible(copied->extent, 2, Ranges(s.kernel()));
  s.move("tile_scope {} 2 tail={} as vpe,vpo{}", rows, pairs ? "exact" : "peel", pairs ? "" : ",vpx");
  s.move("swap_scopes vpo vpn");
  s.move("tensorize vpo transpose");
  if (tail[0] == 'e' && extent->ival <= kMostUnrolled * k.value_columns) s.move("unroll_scope vpn");
  if (k.fetch_next != 0) return;
  prefetch(s, values, "vpe", kAhead, 2 * extent_at(extent, problem_) * dtype_bytes(DType::bf16));
}

// Of each iteration of the loop so many bytes, so far ahead.
void QueryTilesSketch::prefetch(Script& s, const std::string& buffer, const std::string& loop, int64_t ahead,
                                int64_t bytes) {
  constexpr int64_t kLine = 64, kMostLines = 128;
  if (bytes > kLine * kMostLines) return;
  s.move("prefetch {} {} ahead={} lines={}", buffer, loop, (ahead + kLine - 1) / kLine * kLine,
         (bytes + kLine - 1) / kLine);
}

const Expr& QueryTilesSketch::load_of_queries() const {
  const std::vector<Expr>& factors = p_.depth->body[0].value->args;
  return unwidened(factors[unwidened(factors[0])->name == load_of_keys(p_)->name ? 1 : 0]);
}

// Those of a block, in rows that lie together; padded: as many as a whole block has. Its dimensions; 0: refused.
size_t QueryTilesSketch::copy_block(Script& s, const Setting& k, bool padded) const {
  const std::string at = p_.row->iter + "0";
  s.move("create_temporary {} qp at={}", load_of_queries()->name, at);
  s.move("move_to_stack qp {}", at);
  const Buffer* qp = s.kernel().find_buffer("qp");
  if (!s.ok() || qp == nullptr) return 0;
  const size_t rank = qp->dims.size();
  if (padded) s.move("pad_scope qp_{} size={} reads=last", rank - 2, k.row_block);
  vectorize(s, fmt::format("qp_{}", rank - 1), t_.lanes, tail_of(p_.depth->extent, t_.lanes, s.kernel()), false);
  return rank;
}

// They come from far away, in rows too short to be fetched ahead by themselves.
void QueryTilesSketch::copy_queries(Script& s, const Setting& k) const {
  const size_t rank = copy_block(s, k, false);
  if (rank > 1 && near(k.row_block) && k.fetch_next == 0)
    prefetch(s, load_of_queries()->name, fmt::format("qp_{}", rank - 2), k.row_block * query_bytes(), query_bytes());
}

// What panels of the next head are made of, a part for each query, and the queries of the next block.
void QueryTilesSketch::fetch_next(Script& s, const Setting& k, const std::string& around) const {
  constexpr int64_t kLine = 64, kMostLines = 128;
  const std::string i = p_.row->iter, n = p_.columns->iter;
  const auto fetch = [&](const Expr& load, const std::string& loop, const std::string& next, int64_t bytes) {
    const int64_t lines = std::max<int64_t>((bytes + kLine - 1) / kLine, 1);
    if (lines <= kMostLines) s.move("prefetch {} {} next={} lines={}", load->name, loop, next, lines);
  };
  const int64_t queries = extent_at(p_.row->extent, problem_) * heads_of_group(p_);
  fetch(load_of_keys(p_), i + "u_soft", around, bytes_of_head(load_of_keys(p_), p_.depth->extent) / queries);
  if (narrow(k))
    fetch(load_of_values(p_), i + "u_soft", around, bytes_of_head(load_of_values(p_), p_.columns->extent) / queries);
  const int64_t panels = (extent_at(p_.columns->extent, problem_) + k.value_columns - 1) / k.value_columns;
  if (!queries_are_near()) fetch(load_of_queries(), n + "p", i + "0", k.row_block * query_bytes() / panels);
}

// What queries do not see, before the scores are used.
void QueryTilesSketch::fill(Script& s, const std::vector<std::string>& fills, int64_t most) const {
  const std::string rows = p_.row->iter + "u_fill";
  bool baked = !fills.empty();
  for (const std::string& cells : fills) {
    const Fill kind = fill_of(s.kernel(), cells, rows, most);
    baked = baked && kind == Fill::baked;
    if (kind == Fill::any) {
      vectorize(s, cells, t_.lanes, "mask", false);
    } else {
      s.move("vectorize_scope {}", cells);
    }
  }
  if (baked) s.move("unroll_scope {}", rows);
}

Status QueryTilesSketch::write(Script& s, const Setting& k) const {
  const std::string i = p_.row->iter;
  if (narrow(k)) s.move("round_to_bf16 {} {}", p_.powered(), p_.values->iter);
  vectorize_clear(s, p_, t_.lanes);
  const bool copied = !p_.copies.empty();
  const SharedKeys keys = share_keys(s, p_, copied);
  const std::string shared = copy_rows(s, p_, keys);
  // Panels are made of what was copied before: in a scope of one iteration behind it.
  std::string panels_at = shared;
  if (copied) {
    panels_at = keys.heads;
    const int64_t group = heads_of_group(p_);
    if (group > 1) {
      panels_at = keys.heads + "w";
      s.move("tile_scope {} {} tail=exact as {},{}h", keys.heads, group, panels_at, keys.heads);
    }
  }
  const std::string among_heads = shared != "root" ? shared : p_.heads.empty() ? i + "0" : p_.heads[0]->iter;
  const std::string among_threads = k.parallel != 0 ? among_heads : "";
  if (k.dots == kTiles)
    write_tiles(s, k, panels_at, among_threads);
  else
    write_rows(s, k, panels_at, among_threads);
  vectorize_copies(s, p_, t_.lanes);
  return {};
}

// Scores, softmax, sums: three scopes over the queries of a block. A block has the scores of all keys that one of its
// queries sees. A tile sums the values that one of its own sees, or all queries of the block have the same keys.
void QueryTilesSketch::write_rows(Script& s, const Setting& k, const std::string& panels_at,
                                  const std::string& among_threads) const {
  const std::string i = p_.row->iter, j = p_.scores->iter, n = p_.columns->iter, j2 = p_.values->iter;
  const bool even = whole(k), wide = k.block_keys != 0;
  const std::string rows = wide ? i + "1" : i + "u";
  if (narrow(k)) copy_keys(s, load_of_values(p_), "vp", panels_at, 2);
  s.move("tile_scope {} {} tail={} as {}0,{}1", i, k.row_block, even ? "exact" : "mask", i, i);
  if (!wide) s.move("tile_scope {}1 {} tail={} as {}t,{}u", i, k.tile_rows, even ? "exact" : "mask", i, i);
  s.move("split_scope {} after=2 as {}_max", j, j);
  s.move("swap_ops {} 0", rows);
  const bool in_pairs = narrow(k) && !even_keys_;
  if (ragged()) s.move("widen_scope {} {}", j, rows);
  if (ragged() && !wide) s.move("widen_scope {} {}t multiple={}", j, i, k.key_columns);
  if (ragged() || in_pairs) s.move("widen_scope {}_max {}{} as zb,ze", j, rows, in_pairs ? " multiple=2" : "");
  if (narrow(k)) {
    if (panels_at != "root") s.move("move_to_stack vp {}", panels_at);
    s.move("narrow_temporary {} sp {}", p_.powered(), p_.powers->iter);
    s.move("move_to_stack sp {}0", i);
  }
  for (const std::string& name : {std::string("r"), p_.powered()}) s.move("move_to_stack {} {}0", name, i);
  if (k.copy_queries != 0) copy_queries(s, k);
  copy_keys(s, load_of_keys(p_), "kp", panels_at, 1);
  pack_keys(s, panels_at, k);
  // Before pairs are made, after which it is not seen that an iteration has made all of the values it reads.
  if (!among_threads.empty()) s.move("parallelize {}", among_threads);
  if (narrow(k)) pack_values(s, k);
  std::vector<std::string> fills;
  for_each_stmt(s.kernel().body, [&](const Stmt& b) {
    if (b.iter == "zb" || b.iter == "ze") fills.push_back(b.iter);
  });
  for (size_t f = 0; f < fills.size(); ++f) s.move("swap_ops {} {}", rows, f + 1);
  const std::string next = fills.empty() ? "soft" : "fill";
  s.move("split_scope {} after=0 as {}u_{}", rows, i, next);
  if (!fills.empty()) s.move("split_scope {}u_fill after={} as {}u_soft", i, fills.size() - 1, i);
  s.move("split_scope {}u_soft after=4 as {}{}_out", i, i, wide ? "x" : "u");
  if (wide) {
    s.move("tile_scope {} {} tail=exact as {}t,{}u", rows, k.tile_rows, i, i);
    s.move("tile_scope {}x_out {} tail=exact as {}t_out,{}u_out", i, k.tile_rows, i, i);
  } else {
    s.move("split_scope {}t after=0 as {}t_soft", i, i);
    s.move("split_scope {}t_soft after={} as {}t_out", i, fills.empty() ? 0 : 1, i);
  }
  fill(s, fills, wide ? kMostFill : t_.lanes);
  vectorize_softmax(s, p_, j + "_max", k.score_vectors, t_.lanes);
  softmax_to_registers(s, p_, i + "u_soft");
  const bool join = k.join_tiles != 0 && even;
  const Stmt* scores = find_scope(s.kernel(), j);
  const bool apart = ragged() && !wide;
  const char* keys_tail = apart || scores == nullptr ? "mask" : tail_of(scores->extent, k.key_columns, s.kernel());
  tile_product(s,
               {.tiles = i + "t",
                .rows = i + "u",
                .columns = j,
                .depth = p_.depth->iter,
                .sums = p_.products(),
                .column_tail = keys_tail,
                .panel_columns = k.key_columns,
                .joined = join,
                .pairs = k.dots != kSingle},
               t_.lanes);
  tile_product(s,
               {.tiles = i + "t_out",
                .rows = i + "u_out",
                .columns = n,
                .depth = j2,
                .sums = p_.sums(),
                .column_tail = tail_of(p_.columns->extent, k.value_columns, problem_.kernel),
                .panel_columns = k.value_columns,
                .joined = join && !apart,
                .pairs = narrow(k)},
               t_.lanes);
  if (k.fetch_next != 0) fetch_next(s, k, panels_at);
}

}  // namespace lathe::search
