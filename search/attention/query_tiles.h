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
// are rounded to bf16 and panels of v that hold pairs of keys; or a step is a whole tile (query_tiles_whole.cc).
#pragma once
#include "search/attention/parts.h"
#include "search/sketches/sketch.h"

namespace lathe::search {

class QueryTilesSketch {
 public:
  enum : int64_t { kSingle = 0, kPairs = 1, kTiles = 2 };  // values of `dots`
  struct Setting {
    int64_t tile_rows = 0, key_columns = 0, value_columns = 0, row_block = 0, score_vectors = 1, join_tiles = 0,
            copy_queries = 0, block_keys = 0, dots = 0, fetch_next = 0, parallel = 0;
    bool operator==(const Setting&) const = default;
  };
  QueryTilesSketch(const Problem& problem, const ir::Target& target)
      : problem_(problem),
        t_(target),
        p_(attention_parts(problem.kernel)),
        score_pairs_(has_score_pairs()),
        value_pairs_(score_pairs_ && has_value_pairs()),
        even_keys_(has_even_keys()),
        tiles_(value_pairs_ && has_tiles()) {}

  static bool matches(const Problem& problem);
  static const std::vector<KnobRow<QueryTilesSketch>>& table();
  ir::Status accepts(const Setting& k) const;
  std::optional<Setting> standard() const;
  std::vector<Setting> simpler(const Setting& k) const;
  ir::Status write(Script& s, const Setting& k) const;
  double estimate(const Setting& k) const;
  Structure structure(const Setting& k, const ProblemFacts& facts) const;

 private:
  static constexpr int64_t kFewestQueries = 4, kScratchRegisters = 3, kMostFill = 32, kAhead = 16384, kMostUnrolled = 8;
  static constexpr int64_t kTileDepth = 32, kTileRows = 32, kTileColumns = 16;  // two tiles of sums, and their steps
  static constexpr double kTileTime = 0.2;                                      // of what multiply-adds of f32 take
  bool ragged() const { return ir::uses(p_.scores->extent, p_.row->iter); }
  int64_t query_bytes() const;
  // Whether so many queries leave most of the nearest cache to keys and scores.
  bool near(int64_t queries) const { return 4 * queries * query_bytes() <= t_.l1_bytes; }
  bool queries_are_near() const;
  const ir::Expr& load_of_queries() const;
  bool may_fetch_next() const;
  bool near_twice(const Setting& k) const;
  int64_t bytes_of_head(const ir::Expr& load, const ir::Expr& columns) const;
  bool whole(const Setting& k) const { return tail_of(p_.row->extent, k.row_block, problem_.kernel)[0] == 'e'; }
  bool known_keys() const;
  bool may_share_keys(const Setting& k) const;
  bool one_vector(Setting k) const;
  bool has_score_pairs() const;
  bool has_value_pairs() const;
  bool has_even_keys() const;
  bool has_tiles() const;
  bool narrow(const Setting& k) const { return k.dots != kSingle && value_pairs_; }
  ir::Status accepts_tiles(const Setting& k) const;
  int64_t most_queries() const;
  int64_t queries_of_tile() const;
  void add_tiles(std::vector<int64_t>& values) const;
  bool tiles_pay() const;
  Setting standard_vectors() const;
  Setting standard_tiles() const;
  // query_tiles_script.cc
  void fetch_next(Script& s, const Setting& k, const std::string& around) const;
  void pack_keys(Script& s, const std::string& at, const Setting& k) const;
  static void copy_keys(Script& s, const ir::Expr& load, const std::string& copy, const std::string& at, int64_t step);
  void pack_values(Script& s, const Setting& k) const;
  void write_rows(Script& s, const Setting& k, const std::string& panels_at, const std::string& among_threads) const;
  size_t copy_block(Script& s, const Setting& k, bool padded) const;
  void copy_queries(Script& s, const Setting& k) const;
  // query_tiles_whole.cc
  void write_tiles(Script& s, const Setting& k, const std::string& panels_at, const std::string& among_threads) const;
  struct TileProduct {
    std::string rows, columns, depth, sums;
    int64_t panel_columns;
  };
  void write_product(Script& s, const TileProduct& p, int64_t padded) const;

  static void prefetch(Script& s, const std::string& buffer, const std::string& loop, int64_t ahead, int64_t bytes);
  void fill(Script& s, const std::vector<std::string>& fills, int64_t most) const;

  const Problem& problem_;
  const ir::Target& t_;
  const AttentionParts p_;
  const bool score_pairs_, value_pairs_, even_keys_, tiles_;
};

}  // namespace lathe::search
