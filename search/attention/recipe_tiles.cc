// Attention, a block of queries at a time: two products with softmax between them. Lanes are keys, then columns.
//
//   t heads of keys { kp = panels of k
//     g heads that share them, i0 blocks of queries {
//       panels of keys { tiles of queries { c = 0 | d: c += q * kp (tensor) | s = f(c) } }
//       queries { beyond the keys that it sees: s = -inf | m fmax= s | s = exp2(s - m), a += s | r = 1 / a }
//       panels of columns { tiles of queries { o = 0 | j2: o += s * v (tensor) | y = o * r } } } }
//
// A block takes the keys that any of its queries sees. Scores of a block wait on the stack.
#include <algorithm>

#include "ir/analysis/analysis.h"
#include "search/attention/parts.h"
#include "search/moves/transform_util.h"
#include "search/sketches/sketch.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

// How many cells of each query of a tile there are before and after the keys that it sees.
enum class Fill { baked, vector, any };  // numbers in the code; known to be one vector; neither
Fill fill_of(const Kernel& kernel, const std::string& scope, const std::string& row, int64_t lanes) {
  Kernel copy = kernel;
  const Result<ScopeSite> site = find_site(copy, scope);
  if (!site.ok()) return Fill::any;
  const Expr& extent = site->scope().extent;
  if (!proves_le(extent, Expr(lanes), ranges_at(copy, site->outer))) return Fill::any;
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
            parallel = 0;
    bool operator==(const Setting&) const = default;
  };
  QueryTilesSketch(const Problem& problem, const Target& target)
      : problem_(problem), t_(target), p_(attention_parts(problem.kernel)) {}

  static bool matches(const Problem& problem) {
    if (problem.kernel.family != "attention") return false;
    const AttentionParts p = attention_parts(problem.kernel);
    if (!p || extent_at(p.row->extent, problem) < kFewestQueries) return false;
    const auto most = [&](const Expr& e) { return interval(e, Ranges(problem.kernel)).hi; };
    return most(p.depth->extent) > 1 && most(problem.kernel.find_buffer(p.powered())->dims.back()) > 1;
  }
  static const std::vector<KnobRow<QueryTilesSketch>>& table();
  Status accepts(const Setting& k) const {
    if (k.row_block % k.tile_rows != 0) return unsupported("mb {}: no whole tiles of {}", k.row_block, k.tile_rows);
    const int64_t vectors = (std::max(k.key_columns, k.value_columns) + t_.lanes - 1) / t_.lanes;
    if (k.tile_rows * vectors + vectors + kScratchRegisters > t_.vector_registers)
      return unsupported("mr {} nr {}: more than the registers", k.tile_rows, k.key_columns);
    return {};
  }
  std::optional<Setting> standard() const {
    Setting k{.parallel = problem_.threads > 1};
    k.tile_rows = t_.vector_registers >= 32 ? 8 : 4;
    k.key_columns = k.value_columns = 2 * t_.lanes;
    k.row_block = 32;
    k.score_vectors = 4;
    k.join_tiles = 1;
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
  static constexpr int64_t kFewestQueries = 4, kScratchRegisters = 3;
  void pack_keys(Script& s, const std::string& at, int64_t columns) const;

  const Problem& problem_;
  const Target& t_;
  const AttentionParts p_;
};

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
       [](S) { return Values{24, 32, 48, 64, 96}; }},
      {"score_vectors", "sv", "vectors of scores side by side", &Setting::score_vectors, 1, 16, false,
       [](S) { return Values{1, 2, 4}; }},
      {"join_tiles", "jt", "1: the tiles of a panel are one leaf", &Setting::join_tiles, 0, 1, true,
       [](S) { return Values{1, 0}; }},
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

// Panels of keys, each [depth][key].
void QueryTilesSketch::pack_keys(Script& s, const std::string& at, int64_t columns) const {
  const Expr& keys = load_of_keys(p_);
  s.move("create_temporary {} kp at={}", keys->name, at);
  if (at != "root") s.move("move_to_stack kp {}", at);
  const Buffer* kp = s.kernel().find_buffer("kp");
  if (!s.ok() || kp == nullptr) return;
  const size_t rank = kp->dims.size();  // at least of keys and depth
  s.move("tile_buffer kp {} {}", rank - 2, columns);
  s.move("swap_dims kp {} {}", rank - 1, rank);
  const std::string rows = fmt::format("kp_{}", rank - 2);
  const char* tail = "mask";  // of keys that are there, or of all
  for_each_stmt(s.kernel().body, [&](const Stmt& b) {
    if (b.iter == rows) tail = tail_of(b.extent, columns, problem_.kernel);
  });
  s.move("tile_scope {} {} tail={} as kpt,kpr", rows, columns, tail);
  s.move("tensorize kpr transpose");
}

Status QueryTilesSketch::write(Script& s, const Setting& k) const {
  const std::string i = p_.row->iter, j = p_.scores->iter, n = p_.columns->iter, j2 = p_.values->iter;
  const auto tail = [&](const Expr& extent, int64_t piece) { return tail_of(extent, piece, problem_.kernel); };
  const bool ragged = uses(p_.scores->extent, i);
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
  const char* row_tail = tail(p_.row->extent, k.row_block);
  const bool whole = row_tail[0] == 'e';
  s.move("tile_scope {} {} tail={} as {}0,{}1", i, k.row_block, row_tail, i, i);
  s.move("tile_scope {}1 {} tail={} as {}t,{}u", i, k.tile_rows, whole ? "exact" : "mask", i, i);
  // Scores, softmax, sums: three scopes over the queries of a block. A block has the scores of all keys that one of its
  // queries sees, a tile sums the values that one of its own sees.
  s.move("split_scope {} after=2 as {}_max", j, j);
  s.move("swap_ops {}u 0", i);
  if (ragged) {
    s.move("widen_scope {} {}u", j, i);
    s.move("widen_scope {}_max {}u as zb,ze", j, i);
    s.move("widen_scope {} {}t multiple={}", j, i, k.key_columns);
  }
  for (const std::string& name : {std::string("r"), p_.powered()}) s.move("move_to_stack {} {}0", name, i);
  pack_keys(s, panels_at, k.key_columns);
  std::vector<std::string> fills;
  for_each_stmt(s.kernel().body, [&](const Stmt& b) {
    if (b.iter == "zb" || b.iter == "ze") fills.push_back(b.iter);
  });
  for (size_t f = 0; f < fills.size(); ++f) s.move("swap_ops {}u {}", i, f + 1);
  const char* next = fills.empty() ? "soft" : "fill";
  s.move("split_scope {}u after=0 as {}u_{}", i, i, next);
  if (!fills.empty()) s.move("split_scope {}u_fill after={} as {}u_soft", i, fills.size() - 1, i);
  s.move("split_scope {}u_soft after=4 as {}u_out", i, i);
  s.move("split_scope {}t after=0 as {}t_soft", i, i);
  s.move("split_scope {}t_soft after={} as {}t_out", i, fills.empty() ? 0 : 1, i);
  bool baked = !fills.empty();
  for (const std::string& fill : fills) {
    const Fill kind = fill_of(s.kernel(), fill, i + "u_fill", t_.lanes);
    baked = baked && kind == Fill::baked;
    if (kind == Fill::any) {
      vectorize(s, fill, t_.lanes, "mask", false);
    } else {
      s.move("vectorize_scope {}", fill);
    }
  }
  if (baked) s.move("unroll_scope {}u_fill", i);
  vectorize_softmax(s, p_, i + "u_soft", j + "_max", k.score_vectors, t_.lanes);
  const bool join = k.join_tiles != 0 && whole;
  tile_product(s,
               {i + "t", i + "u", j, p_.depth->iter, p_.products(),
                ragged ? "mask" : tail(p_.scores->extent, k.key_columns), k.key_columns, join},
               t_.lanes);
  tile_product(s,
               {i + "t_out", i + "u_out", n, j2, p_.sums(), tail(p_.columns->extent, k.value_columns), k.value_columns,
                join && !ragged},
               t_.lanes);
  vectorize_copies(s, p_, t_.lanes);
  if (k.parallel != 0)
    s.move("parallelize {}", shared != "root" ? shared : p_.heads.empty() ? i + "0" : p_.heads[0]->iter);
  return {};
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
