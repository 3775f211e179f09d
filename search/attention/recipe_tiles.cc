// Attention, a block of queries at a time: two products with softmax between them. Lanes are keys, then columns.
//
//   t heads of keys { kp = panels of k
//     g heads that share them, i0 blocks of queries {
//       panels of keys { tiles of queries { c = 0 | d: c += q * kp (tensor) | s = f(c) } }
//       queries { beyond the keys that it sees: s = -inf | m fmax= s | s = exp2(s - m), a += s | r = 1 / a }
//       panels of columns { tiles of queries { o = 0 | j2: o += s * v (tensor) | y = o * r } } } }
//
// A block takes the keys that any of its queries sees. Scores of a block wait on the stack. Where the caller allows
// bf16_dots, products of bf16 are two a step: of q and panels of k that hold pairs along the depth, and of weights that
// are rounded to bf16 and panels of v that hold pairs of keys.
#include <algorithm>

#include "ir/analysis/analysis.h"
#include "search/attention/parts.h"
#include "search/moves/transform_util.h"
#include "search/sketches/sketch.h"

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

class QueryTilesSketch {
 public:
  struct Setting {
    int64_t tile_rows = 0, key_columns = 0, value_columns = 0, row_block = 0, score_vectors = 1, join_tiles = 0,
            copy_queries = 0, block_keys = 0, dots = 0, fetch_next = 0, parallel = 0;
    bool operator==(const Setting&) const = default;
  };
  QueryTilesSketch(const Problem& problem, const Target& target)
      : problem_(problem),
        t_(target),
        p_(attention_parts(problem.kernel)),
        score_pairs_(has_score_pairs()),
        value_pairs_(score_pairs_ && has_value_pairs()),
        even_keys_(has_even_keys()) {}

  static bool matches(const Problem& problem) {
    if (problem.kernel.family != "attention") return false;
    const AttentionParts p = attention_parts(problem.kernel);
    if (!p || queries_of_sequence(p, problem) < kFewestQueries) return false;
    const auto most = [&](const Expr& e) { return interval(e, Ranges(problem.kernel)).hi; };
    return most(p.depth->extent) > 1 && most(problem.kernel.find_buffer(p.powered())->dims.back()) > 1;
  }
  static const std::vector<KnobRow<QueryTilesSketch>>& table();
  Status accepts(const Setting& k) const {
    if (k.row_block % k.tile_rows != 0) return unsupported("mb {}: no whole tiles of {}", k.row_block, k.tile_rows);
    const int64_t vectors = (std::max(k.key_columns, k.value_columns) + t_.lanes - 1) / t_.lanes;
    if (k.tile_rows * vectors + vectors + kScratchRegisters > t_.vector_registers)
      return unsupported("mr {} nr {}: more than the registers", k.tile_rows, k.key_columns);
    if (k.dots != 0 && !score_pairs_) return unsupported("dp 1: no pairs of bf16, or they are not allowed");
    if (k.block_keys != 0 && !may_share_keys(k))
      return unsupported("bk 1: no whole blocks, or no keys from the first on");
    if (k.fetch_next != 0 && !may_fetch_next()) return unsupported("fn 1: no keys that follow");
    if (k.block_keys == 0 && one_vector(k))
      return unsupported("bk 0 mb {}: tiles whose keys end inside of one vector", k.row_block);
    return {};
  }
  std::optional<Setting> standard() const {
    Setting k{.parallel = problem_.threads > 1};
    k.tile_rows = t_.vector_registers >= 32 ? 8 : 4;
    k.key_columns = k.value_columns = 2 * t_.lanes;
    k.dots = score_pairs_ && !t_.slow_pairs();
    k.row_block = 16;
    const bool sixteens = whole(k);
    // Blocks that are not whole gain nothing by it: 16 queries take 1.03 of the time of 32, whose queries are copied.
    k.fetch_next = sixteens && may_fetch_next() && near_twice(k);
    k.row_block = 32;
    // Of 16 causal queries it is not proven that each thread's scores are written before they are read.
    const bool apart = k.parallel != 0 && whole(k);
    if (!apart && sixteens && (!near(32) || !whole(k) || k.fetch_next != 0)) k.row_block = 16;
    k.score_vectors = 4;
    k.join_tiles = 1;
    k.copy_queries = k.fetch_next != 0 || queries_are_near() ? 0 : 1;
    k.block_keys = may_share_keys(k);
    return k;
  }
  std::vector<Setting> simpler(const Setting& k) const {
    return {{.tile_rows = 2,
             .key_columns = t_.lanes,
             .value_columns = t_.lanes,
             .row_block = 32,
             .score_vectors = 1,
             .parallel = k.parallel}};
  }
  Status write(Script& s, const Setting& k) const;
  double estimate(const Setting& k) const;
  Structure structure(const Setting& k, const ProblemFacts& facts) const;

 private:
  static constexpr int64_t kFewestQueries = 4, kScratchRegisters = 3, kMostFill = 32, kAhead = 16384, kMostUnrolled = 8;
  bool ragged() const { return uses(p_.scores->extent, p_.row->iter); }
  // Whether so many queries leave most of the nearest cache to keys and scores.
  int64_t query_bytes() const { return extent_at(p_.depth->extent, problem_) * dtype_bytes(load_of_queries()->type); }
  bool near(int64_t queries) const { return 4 * queries * query_bytes() <= t_.l1_bytes; }
  // Whether all of them stay where the second cache keeps them: then they need not be fetched ahead. At half of it
  // blocks of 64 to 128 queries took 3 to 6 % less time without a copy, beyond it up to 8 % more.
  bool queries_are_near() const {
    int64_t bytes = extent_at(p_.row->extent, problem_) * query_bytes();
    for (const Stmt* h : p_.heads) bytes *= extent_at(h->extent, problem_);
    return !problem_.cold && bytes <= t_.l2_bytes / 2;
  }
  const Expr& load_of_queries() const;
  bool may_fetch_next() const;
  bool near_twice(const Setting& k) const;
  int64_t bytes_of_head(const Expr& load, const Expr& columns) const;
  void fetch_next(Script& s, const Setting& k, const std::string& around) const;
  bool whole(const Setting& k) const { return tail_of(p_.row->extent, k.row_block, problem_.kernel)[0] == 'e'; }
  bool known_keys() const;
  bool may_share_keys(const Setting& k) const;
  bool one_vector(Setting k) const;
  bool has_score_pairs() const;
  bool has_value_pairs() const;
  bool has_even_keys() const;
  bool narrow(const Setting& k) const { return k.dots != 0 && value_pairs_; }
  void pack_keys(Script& s, const std::string& at, const Setting& k) const;
  void copy_values(Script& s, const std::string& at) const;
  void pack_values(Script& s, const Setting& k) const;
  void write_rows(Script& s, const Setting& k, const std::string& panels_at, const std::string& among_threads) const;
  void copy_queries(Script& s, const Setting& k) const;
  static void prefetch(Script& s, const std::string& buffer, const std::string& loop, int64_t ahead, int64_t bytes);
  void fill(Script& s, const std::vector<std::string>& fills, int64_t most) const;

  const Problem& problem_;
  const Target& t_;
  const AttentionParts p_;
  const bool score_pairs_, value_pairs_, even_keys_;
};

// Whether the number of keys is known before any input is read.
bool QueryTilesSketch::known_keys() const {
  bool known = true;
  for_each_node(p_.scores->extent, [&](const ExprNode& n) { known = known && n.op != Op::k_load; });
  return known;
}

// Whether all queries of a block may take the keys of its last one.
bool QueryTilesSketch::may_share_keys(const Setting& k) const {
  return known_keys() && ragged() && whole(k) && from_first(p_) && k.row_block <= kMostFill;
}

// Keys, or values, of a head.
int64_t QueryTilesSketch::bytes_of_head(const Expr& load, const Expr& columns) const {
  const int64_t keys = extent_at(problem_.kernel.find_buffer(p_.powered())->dims.back(), problem_);
  return keys * extent_at(columns, problem_) * dtype_bytes(load->type);
}

// Whether a head follows whose keys and values lie somewhere else.
bool QueryTilesSketch::may_fetch_next() const {
  if (p_.heads.empty() || !p_.copies.empty()) return false;
  double heads = 1.0 / static_cast<double>(heads_of_group(p_));
  for (const Stmt* h : p_.heads) heads *= static_cast<double>(extent_at(h->extent, problem_));
  return heads > 1;
}

// Whether the second cache has room for the panels of one head and what was fetched of the next one.
bool QueryTilesSketch::near_twice(const Setting& k) const {
  const int64_t keys = bytes_of_head(load_of_keys(p_), p_.depth->extent),
                values = bytes_of_head(load_of_values(p_), p_.columns->extent);
  return 4 * (2 * keys + (narrow(k) ? 2 : 1) * values) <= 3 * t_.l2_bytes;
}

// Whether blocks that share keys have to be taken instead of tiles that see a part of a vector of keys.
bool QueryTilesSketch::one_vector(Setting k) const {
  const Expr& keys = problem_.kernel.find_buffer(p_.powered())->dims.back();
  const bool few = k.row_block <= t_.lanes || (is_const_int(keys) && keys->ival <= t_.lanes);
  k.row_block = 16;
  return few && may_share_keys(k);
}

bool QueryTilesSketch::has_score_pairs() const {
  if ((problem_.allowed & kBf16Dots) == 0 || !t_.has(kCpu_avx512bf16)) return false;
  const Expr& depth = p_.depth->extent;
  const std::vector<Expr>& factors = p_.depth->body[0].value->args;
  const auto is_bf16 = [](const Expr& e) {
    return unwidened(e)->op == Op::k_load && unwidened(e)->type == DType::bf16;
  };
  return is_const_int(depth) && depth->ival % 2 == 0 && depth->ival > 2 &&
         std::all_of(factors.begin(), factors.end(), is_bf16);
}

// Weights and values in pairs of keys. Causal queries are as many as the keys, or their numbers are fixed.
bool QueryTilesSketch::has_value_pairs() const {
  const Expr &keys = problem_.kernel.find_buffer(p_.powered())->dims.back(), &rows = p_.row->extent;
  if (!is_const_int(p_.columns->extent) || p_.columns->extent->ival < 2 || !p_.copies.empty()) return false;
  if (!known_keys() || load_of_values(p_)->type != DType::bf16 || (is_const_int(keys) && keys->ival <= 2)) return false;
  const bool fixed = is_const_int(rows) && is_const_int(keys) && rows->ival <= keys->ival;
  return !ragged() || (from_first(p_) && (fixed || equal(rows, keys)));
}

// Whichever queries of a block see them; else the last pair may have a weight of 0.
bool QueryTilesSketch::has_even_keys() const {
  const Expr& keys = problem_.kernel.find_buffer(p_.powered())->dims.back();
  const auto even = [](const Expr& e) { return is_const_int(e) && e->ival % 2 == 0; };
  if (!even(keys) || !ragged()) return even(keys);
  return from_first(p_) && even(p_.row->extent) && p_.row->extent->ival <= keys->ival;
}

const std::vector<KnobRow<QueryTilesSketch>>& QueryTilesSketch::table() {
  using Values = std::vector<int64_t>;
  using S = const QueryTilesSketch&;
  constexpr auto vectors = [](S s) {
    Values v = {s.t_.lanes, 2 * s.t_.lanes, 3 * s.t_.lanes, 4 * s.t_.lanes};
    if (s.t_.vector_registers < 32) v.resize(2);
    return v;
  };
  static const std::vector<KnobRow<QueryTilesSketch>> kTable = {
      {"tile_rows", "mr", "queries of a tile", &Setting::tile_rows, 1, 32, false,
       [](S s) { return s.t_.vector_registers >= 32 ? Values{4, 6, 8, 12} : Values{2, 4, 6}; }},
      {"key_columns", "nr", "keys of a panel", &Setting::key_columns, 1, 256, false, vectors},
      {"value_columns", "vr", "columns of a panel", &Setting::value_columns, 1, 256, false, vectors},
      {"row_block", "mb", "queries of a block", &Setting::row_block, 1, 4096, false,
       [](S) { return Values{16, 24, 32, 48, 64, 96}; }},
      {"score_vectors", "sv", "vectors of scores side by side", &Setting::score_vectors, 1, 16, false,
       [](S) { return Values{1, 2, 4}; }},
      {"join_tiles", "jt", "1: the tiles of a panel are one leaf", &Setting::join_tiles, 0, 1, true,
       [](S) { return Values{1, 0}; }},
      {"copy_queries", "qc", "1: queries of a block are copied together first, and those of the next one prefetched",
       &Setting::copy_queries, 0, 1, true, [](S) { return Values{1, 0}; }},
      {"block_keys", "bk", "1: all queries of a block take the keys of its last one; 0: those of a tile do",
       &Setting::block_keys, 0, 1, true, [](S s) { return s.ragged() ? Values{1, 0} : Values{}; }},
      {"fetch_next", "fn",
       "1: keys and values of the next head are prefetched during the softmax of this one, and queries of the next "
       "block",
       &Setting::fetch_next, 0, 1, true, [](S s) { return s.may_fetch_next() ? Values{1, 0} : Values{}; }},
      {"dots", "dp", "1: products of bf16 are two a step", &Setting::dots, 0, 1, true,
       [](S s) { return s.score_pairs_ ? Values{1, 0} : Values{}; }},
      {"parallel", "parallel", "1: heads are shared out", &Setting::parallel, 0, 1, true,
       [](S s) { return Values{s.problem_.threads > 1 ? 1 : 0}; }}};
  return kTable;
}

double QueryTilesSketch::estimate(const Setting& k) const {
  const Setting near = *standard();
  double steps = 1;
  for (const KnobRow<QueryTilesSketch>& row : table()) steps += k.*row.field != near.*row.field;
  return steps;
}

// Panels of keys, each [depth][key]; of pairs, [depth / 2][key][depth % 2].
void QueryTilesSketch::pack_keys(Script& s, const std::string& at, const Setting& k) const {
  const Expr& keys = load_of_keys(p_);
  s.move("create_temporary {} kp at={}", keys->name, at);
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
  if (k.dots == 0) return s.move("tensorize kpr transpose");
  s.move("tile_buffer kp {} 2", rank - 1);
  s.move("swap_dims kp {} {}", rank, rank + 1);
  s.move("tile_scope {} 2 tail=exact as kpe,kpo", columns);
  s.move("tensorize kpr transpose_pairs");
}

// A copy of the values, of whole pairs of keys.
void QueryTilesSketch::copy_values(Script& s, const std::string& at) const {
  s.move("create_temporary {} vp at={}", load_of_values(p_)->name, at);
  const Buffer* vp = s.kernel().find_buffer("vp");
  if (!s.ok() || vp == nullptr || vp->dims.size() < 2) return;
  const size_t keys = vp->dims.size() - 2;
  if (!proves_divisible(vp->dims[keys], 2, Ranges(s.kernel()))) s.move("extend_temporary vp {} 2 as vpz", keys);
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

// They come from far away, in rows too short to be fetched ahead by themselves.
void QueryTilesSketch::copy_queries(Script& s, const Setting& k) const {
  const Expr& query = load_of_queries();
  const std::string at = p_.row->iter + "0";
  s.move("create_temporary {} qp at={}", query->name, at);
  s.move("move_to_stack qp {}", at);
  const Buffer* qp = s.kernel().find_buffer("qp");
  if (!s.ok() || qp == nullptr) return;
  const size_t rank = qp->dims.size();
  const std::string columns = fmt::format("qp_{}", rank - 1);
  vectorize(s, columns, t_.lanes, tail_of(p_.depth->extent, t_.lanes, s.kernel()), false);
  if (rank > 1 && near(k.row_block) && k.fetch_next == 0)
    prefetch(s, query->name, fmt::format("qp_{}", rank - 2), k.row_block * query_bytes(), query_bytes());
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
  write_rows(s, k, panels_at, k.parallel != 0 ? among_heads : "");
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
  if (narrow(k)) copy_values(s, panels_at);
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
                .pairs = k.dots != 0},
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

Structure QueryTilesSketch::structure(const Setting& k, const ProblemFacts& facts) const {
  Structure s = facts.naive;
  const double vectors = static_cast<double>((k.key_columns + t_.lanes - 1) / t_.lanes);
  s.tile_rows = static_cast<double>(k.tile_rows);
  s.tile_vectors = vectors;
  s.registers = s.tile_rows * vectors + vectors + kScratchRegisters;
  s.block_columns = static_cast<double>(k.key_columns);
  double heads = 1;
  for (const Stmt* b : p_.heads) heads *= static_cast<double>(extent_at(b->extent, problem_));
  const double rows = static_cast<double>(extent_at(p_.row->extent, problem_)),
               keys = static_cast<double>(extent_at(problem_.kernel.find_buffer(p_.powered())->dims.back(), problem_));
  s.calls = heads * rows / s.tile_rows * (keys / s.block_columns + 4);
  if (k.parallel != 0) {
    s.parallel = Axis::rows;
    s.tasks = heads;
    s.imbalance = imbalance_of(heads, facts.threads);
  }
  return s;
}

const Recipe kQueryTilesRecipe = {"query_tiles", 1, QueryTilesSketch::matches, knob_table<QueryTilesSketch>,
                                  make_sketch<QueryTilesSketch, kQueryTilesRecipe>};

}  // namespace lathe::search
