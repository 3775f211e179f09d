// What attention in tiles of queries is decided by. See query_tiles.h.
#include <algorithm>

#include "ir/analysis/analysis.h"
#include "search/attention/query_tiles.h"
#include "search/moves/transform_util.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

bool QueryTilesSketch::matches(const Problem& problem) {
  if (problem.kernel.family != "attention") return false;
  const AttentionParts p = attention_parts(problem.kernel);
  if (!p || queries_of_sequence(p, problem) < kFewestQueries) return false;
  const auto most = [&](const Expr& e) { return interval(e, Ranges(problem.kernel)).hi; };
  return most(p.depth->extent) > 1 && most(problem.kernel.find_buffer(p.powered())->dims.back()) > 1;
}

Status QueryTilesSketch::accepts(const Setting& k) const {
  if (k.row_block % k.tile_rows != 0) return unsupported("mb {}: no whole tiles of {}", k.row_block, k.tile_rows);
  if (k.dots == kTiles) return accepts_tiles(k);
  const int64_t vectors = (std::max(k.key_columns, k.value_columns) + t_.lanes - 1) / t_.lanes;
  if (k.tile_rows * vectors + vectors + kScratchRegisters > t_.vector_registers)
    return unsupported("mr {} nr {}: more than the registers", k.tile_rows, k.key_columns);
  if (k.dots != kSingle && !score_pairs_) return unsupported("dp 1: no pairs of bf16, or they are not allowed");
  if (k.block_keys != 0 && !may_share_keys(k))
    return unsupported("bk 1: no whole blocks, or no keys from the first on");
  if (k.fetch_next != 0 && !may_fetch_next()) return unsupported("fn 1: no keys that follow");
  if (k.block_keys == 0 && one_vector(k))
    return unsupported("bk 0 mb {}: tiles whose keys end inside of one vector", k.row_block);
  return {};
}

// A block of queries is one tile, and takes the keys of its last query.
Status QueryTilesSketch::accepts_tiles(const Setting& k) const {
  if (!tiles_) return unsupported("dp 2: no tiles here, or not whole ones");
  const Setting plain{.tile_rows = k.row_block,
                      .key_columns = k.key_columns,
                      .value_columns = k.value_columns,
                      .row_block = k.row_block,
                      .score_vectors = k.score_vectors,
                      .join_tiles = 1,
                      .block_keys = ragged(),
                      .dots = kTiles,
                      .fetch_next = k.fetch_next,
                      .parallel = k.parallel};
  if (k != plain) return unsupported("dp 2: a block is one tile, of queries in place");
  if (k.row_block > kTileRows || k.row_block > most_queries())
    return unsupported("mb {}: expected at most {} and {}", k.row_block, kTileRows, most_queries());
  const auto fits = [&](int64_t size, int64_t of) { return size <= kTileDepth && of % size == 0; };
  if (!fits(k.key_columns, kTileDepth)) return unsupported("nr {}: no part of a tile of {}", k.key_columns, kTileDepth);
  if (!fits(k.value_columns, p_.columns->extent->ival)) return unsupported("vr {}: no whole tiles", k.value_columns);
  if (k.fetch_next != 0 && !may_fetch_next()) return unsupported("fn 1: no keys that follow");
  return {};
}

int64_t QueryTilesSketch::most_queries() const { return interval(p_.row->extent, Ranges(problem_.kernel)).hi; }

// As few blocks as there can be, of as many queries each.
int64_t QueryTilesSketch::queries_of_tile() const {
  if (!is_const_int(p_.row->extent)) return std::min(most_queries(), kTileRows);
  const int64_t queries = p_.row->extent->ival, blocks = (queries + kTileRows - 1) / kTileRows;
  return (queries + blocks - 1) / blocks;
}

// Whole tiles take as long as full ones: 33 keys are two, and take .6 to 1.1 of the time of multiply-adds; from so many
// scores on, and no more than half as many in vain, .12 to .8.
bool QueryTilesSketch::tiles_pay() const {
  constexpr int64_t kFewestScores = 512;
  const int64_t keys = extent_at(problem_.kernel.find_buffer(p_.powered())->dims.back(), problem_);
  const int64_t padded = (keys + kTileDepth - 1) / kTileDepth * kTileDepth;
  return 2 * padded <= 3 * keys && keys * extent_at(p_.row->extent, problem_) >= kFewestScores;
}

QueryTilesSketch::Setting QueryTilesSketch::standard_tiles() const {
  Setting k{
      .score_vectors = 4, .join_tiles = 1, .block_keys = ragged(), .dots = kTiles, .parallel = problem_.threads > 1};
  k.tile_rows = k.row_block = queries_of_tile();
  k.key_columns = kTileDepth;
  k.value_columns = p_.columns->extent->ival % kTileDepth == 0 ? kTileDepth : kTileColumns;
  k.fetch_next = may_fetch_next() && near_twice(k);
  return k;
}

std::optional<QueryTilesSketch::Setting> QueryTilesSketch::standard() const {
  return tiles_ && tiles_pay() ? standard_tiles() : standard_vectors();
}

QueryTilesSketch::Setting QueryTilesSketch::standard_vectors() const {
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

std::vector<QueryTilesSketch::Setting> QueryTilesSketch::simpler(const Setting& k) const {
  return {standard_vectors(),
          {.tile_rows = 2,
           .key_columns = t_.lanes,
           .value_columns = t_.lanes,
           .row_block = 32,
           .score_vectors = 1,
           .parallel = k.parallel}};
}

int64_t QueryTilesSketch::query_bytes() const {
  return extent_at(p_.depth->extent, problem_) * dtype_bytes(load_of_queries()->type);
}

// Whether all of them stay where the second cache keeps them: then they need not be fetched ahead. At half of it blocks
// of 64 to 128 queries took 3 to 6 % less time without a copy, beyond it up to 8 % more.
bool QueryTilesSketch::queries_are_near() const {
  int64_t bytes = extent_at(p_.row->extent, problem_) * query_bytes();
  for (const Stmt* h : p_.heads) bytes *= extent_at(h->extent, problem_);
  return !problem_.cold && bytes <= t_.l2_bytes / 2;
}

// Whether the depth of scores, the keys of a block and columns are whole tiles.
bool QueryTilesSketch::has_tiles() const {
  const Expr &depth = p_.depth->extent, &columns = p_.columns->extent;
  return t_.has(kCpu_amx_tile | kCpu_amx_bf16) && depth->ival % kTileDepth == 0 && depth->ival > kTileDepth &&
         columns->ival % kTileColumns == 0;
}

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

// Numbers of queries that tiles are tried with.
void QueryTilesSketch::add_tiles(std::vector<int64_t>& values) const {
  for (const int64_t rows : {queries_of_tile(), kTileRows / 2, kTileRows}) {
    if (tiles_ && std::find(values.begin(), values.end(), rows) == values.end()) values.push_back(rows);
  }
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
       [](S s) {
         Values v = s.t_.vector_registers >= 32 ? Values{4, 6, 8, 12} : Values{2, 4, 6};
         s.add_tiles(v);
         return v;
       }},
      {"key_columns", "nr", "keys of a panel", &Setting::key_columns, 1, 256, false, vectors},
      {"value_columns", "vr", "columns of a panel", &Setting::value_columns, 1, 256, false, vectors},
      {"row_block", "mb", "queries of a block", &Setting::row_block, 1, 4096, false,
       [](S s) {
         Values v = {16, 24, 32, 48, 64, 96};
         s.add_tiles(v);
         return v;
       }},
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
      {"dots", "dp", "1: products of bf16 are two a step; 2: a tile a step", &Setting::dots, 0, 2, true,
       [](S s) { return s.tiles_         ? Values{1, 0, 2}
                        : s.score_pairs_ ? Values{1, 0}
                                         : Values{}; }},
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

Structure QueryTilesSketch::structure(const Setting& k, const ProblemFacts& facts) const {
  Structure s = facts.naive;
  const double vectors = static_cast<double>((k.key_columns + t_.lanes - 1) / t_.lanes);
  s.tile_rows = static_cast<double>(k.tile_rows);
  s.tile_vectors = vectors;
  s.registers = k.dots == kTiles ? kScratchRegisters : s.tile_rows * vectors + vectors + kScratchRegisters;
  if (k.dots == kTiles) s.slowdown = kTileTime;
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
