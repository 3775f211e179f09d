// Which setting of the matmul recipe is the default. See matmul_sketch.h.
#include <algorithm>
#include <limits>

#include "search/sketches/matmul_sketch.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kFunctionCode = 24;  // instructions of a function, about
constexpr int64_t kDepthAlong = 16;    // rows of B that are read along together, at least
constexpr int64_t kMostAlong = 128;
constexpr int64_t kVectorsAlone = 4;  // of a panel, where the core's prefetcher follows them
constexpr int64_t kLongPiece = 1024;  // columns of rows that are read along
constexpr int64_t kNextDepth = 128;   // along K, of a block that is fetched while tiles walk the one before
constexpr int64_t kMostNextRows = 128, kTilesOfCopy = 3, kManyTiles = 5;
constexpr int64_t kManyDepth = 512;  // along K, of panels that many tiles walk
constexpr int64_t kAlongRow = 256,
                  kFarAlongRow = 512;  // bytes that rows of B are prefetched ahead: next tiles' columns
constexpr int64_t kFewRows = 4;        // of A: what B's rows take from memory decides
constexpr int64_t kStreams = 6;        // rows that are summed along K
constexpr int64_t kWide = 4;           // bytes of an element that needs no conversion
constexpr int64_t kDepthOfRow = 8;     // as many for each row of A: sums come and go once for so many of B's lines

}  // namespace

// Of a default where M varies and a caller waits for its code. Four rows by two vectors keep two pipes of latency four
// busy. A B that every call transposes is worth more code: each panel that a call adds reads all rows of A again. So
// are groups, and calls of up to 32 rows: a weight comes from memory, and each tile reads its panel again. So are sums
// of pairs in blocks of K, where one panel's are too few for their latency.
constexpr int64_t kMostRows = 4, kMostTallRows = 8, kTallUpTo = 32;
constexpr int64_t kMostCode = 660, kMostTransposingCode = 1070, kMostTallCode = 1300;

// Instructions to be made for a tile and all lower ones, about: for each sum its start, four steps and the rest of K,
// and its way out; and for moving B, 64 of a square: one for each vector of a panel that is transposed, one for whole
// and one for cut panels that are packed; a copied panel has a load and a store of each vector, whole and cut.
int64_t MatmulSketch::code_of(const Setting& k) const {
  const int64_t whole = vectors(k), counts = k.tile_rows * (k.tile_rows + 1) / 2, tail = last_tile(k).vectors;
  const int64_t all = whole + (is_const_int(p_.n->extent) || tail == 0 ? tail : tail + (tail + 1) / 2);
  const int64_t out = k.function_pass != 0 ? 2 : functions() ? kFunctionCode : epilogue_;
  const int64_t copy = in_place() ? (k.copy_panels != 0 ? 4 * whole : 0)
                       : packed() ? 2 * 64
                                  : 64 * k.panel_columns / t_.lanes;
  return counts * all * (6 + out) + 5 * (counts + k.tile_rows * all) + 10 * k.tile_rows + copy;
}

// The cheapest predicted; where M varies and a first call waits, of what is made quickly: each row count is a leaf of
// its own then, K blocks and packed rows have leaves besides, and all of that has to be made meanwhile. Looks at what
// can win only: of as many tiles the most even ones, and little of what the search varies more finely. Where memory is
// slow, blocks of K stay in L1 until all tiles have had them.
std::optional<MatmulSketch::Setting> MatmulSketch::standard() const {
  const bool little = !problem_.unhurried && !is_const_int(p_.m->extent);
  const bool tall =
      problem_.kernel.family == "experts" || m_ <= kTallUpTo || (step_ > 1 && !integers_ && k_ > kDeepest);
  const int64_t most_rows = !little ? t_.vector_registers : tall ? kMostTallRows : kMostRows;
  const int64_t most_code = tall ? kMostTallCode : panels_ == Panels::transposed ? kMostTransposingCode : kMostCode;
  using Values = std::vector<int64_t>;
  // Of those that the search varies, the values that are looked at.
  const auto few = [&](int64_t Setting::* field, const Values& looked_at) {
    Choice<Setting> out{field, values_of(*this, field)};
    std::erase_if(out.values,
                  [&](int64_t x) { return std::find(looked_at.begin(), looked_at.end(), x) == looked_at.end(); });
    return out;
  };
  const auto all = [&](int64_t Setting::* field) { return Choice<Setting>{field, values_of(*this, field)}; };
  const bool slow = t_.slow_memory();
  const Values blocks = slow ? Values{0, 32, 128} : Values{0, 512, 1024},
               distances = slow ? Values{0, 2048, -1} : Values{0, 4096, 8192, 10240, 16384, -1};
  std::optional<Setting> best;
  double least = std::numeric_limits<double>::infinity();
  const auto visit = [&](const Setting& k) {
    if (little && ((k.depth_block != 0 && k.column_block == 0 && k_ <= kDeepest) || k.pack_rows != 0)) return;
    const double cycles = estimate(k);
    if (cycles >= least || !accepts(k).ok()) return;
    least = cycles;
    best = k;
  };
  // Panels where they lie, copied, and copied or transposed for all heads that share them.
  std::vector<Setting> copies = {{}};
  if (in_place()) copies.push_back({.copy_panels = 1});
  if (!packed() && !p_.sharing.empty()) copies.push_back({.copy_panels = in_place(), .share_heads = 1});
  // Rows of B in blocks of columns; few rows of A keep the sums of all of a thread's in the caches.
  const bool few_rows = m_ <= kFewRows;
  const int64_t depth = !few_rows             ? std::min(m_ * kDepthOfRow, kMostAlong)
                        : t_.prefetches_alone ? kDepthAlone
                                              : kDepthAlong;
  const int64_t share = few_rows ? columns_of_a_thread() : 0;
  for (const int64_t block : values_of(*this, &Setting::column_block)) {
    if (problem_.cold && in_place() && (share == 0 ? block >= kLongPiece : block == share))
      copies.push_back({.depth_block = depth, .column_block = block});
  }
  const Choice<Setting> tile_rows = all(&Setting::tile_rows), columns = all(&Setting::panel_columns),
                        streams = all(&Setting::streams), row_blocks = few(&Setting::row_block, {0, 96, 192});
  const std::vector<Choice<Setting>> inner = {all(&Setting::pack_rows), few(&Setting::prefetch, distances), row_blocks,
                                              few(&Setting::depth_block, blocks)};
  const auto look = [&](bool function_pass) {
    int64_t tiles = -1;
    for (const int64_t rows : tile_rows.values) {
      if (rows > most_rows || (m_ + rows - 1) / rows == tiles) continue;
      tiles = (m_ + rows - 1) / rows;
      for (const int64_t width : columns.values) {
        for (const int64_t panels : streams.values) {
          Setting k{.tile_rows = rows,
                    .panel_columns = width,
                    .streams = panels,
                    .function_pass = function_pass,
                    .dots = step_ > 1 ? kSteps : kSingle};
          if ((rows + 1) * vectors(k) >= t_.vector_registers || (little && code_of(k) > most_code)) break;
          each_setting(k, inner, [&](const Setting& inside) {
            for (const Setting& copy : copies) {
              if (copy.column_block != 0 && inside.depth_block != 0) continue;
              Setting at = inside;
              at.column_block = copy.column_block;
              at.depth_block = std::max(inside.depth_block, copy.depth_block);
              at.copy_panels = copy.copy_panels;
              at.share_heads = copy.share_heads;
              at.function_pass = function_pass && at.depth_block == 0;
              at.join_tiles = 0;
              if (at.depth_block == 0 || panels == 1) visit(at);
              at.join_tiles = 1;
              if (at.depth_block == 0 && may_join()) visit(at);
            }
          });
        }
      }
    }
  };
  if (little && functions()) look(true);
  if (!best) look(false);
  if (tiles_ && !little) each_tile_setting(visit);
  // With columns summed along K: other tiles, the rest as it is best without.
  if (best && dots_.whole != 0) {
    Setting k = *best;
    k.pack_rows = k.function_pass = k.share_heads = k.dots = 0;
    k.depth_sums = 1;
    each_setting(k, {tile_rows, columns, {&Setting::join_tiles, {0, 1}}}, visit);
  }
  // With parts of K for threads that would have nothing to do.
  if (best && !little) {
    Setting k = *best;
    k.streams = 1;
    k.depth_block = k.row_block = k.function_pass = k.share_heads = k.join_tiles = k.depth_sums = k.column_block = 0;
    each_setting(
        k,
        {all(&Setting::depth_parts), tile_rows, columns, all(&Setting::pack_rows), few(&Setting::prefetch, distances)},
        visit);
  }
  if (dots_.columns != 0 && dots_.whole == 0) {
    // Six rows from memory are streams that the hardware follows by itself; where a row has several products they are
    // late without prefetches, and so are those of narrow elements, which take more instructions for a line.
    const bool far = problem_.cold && k_ > t_.lanes, alone = dots_.columns == 1 && m_max_ >= kStreams;
    const Setting k{.tile_rows = far && alone ? kStreams : 1,
                    .panel_columns = widths_.front(),
                    .prefetch = !far                                      ? 0
                                : !alone                                  ? kRowsAhead
                                : a_bytes_ < kWide || t_.prefetches_alone ? kNarrowAhead
                                                                          : 0,
                    .depth_sums = 1};
    each_setting(k, {row_blocks}, visit);
  }
  if (best && problem_.cold && in_place()) {
    // A single row reads long pieces of B's rows; others need prefetches. A core whose prefetcher follows streams wants
    // few of them, and the next rows at the same columns.
    Setting along = *best;
    if (m_max_ == 1) along.panel_columns = widths_.back();
    if (m_ > 1) along.prefetch = few_rows ? kFarAlongRow : kAlongRow;
    if (few_rows && t_.prefetches_alone && along.column_block != 0) {
      if (m_max_ > 1 || b_bytes_ == kWide) along.panel_columns = kVectorsAlone * t_.lanes;
      along.prefetch = next_rows();
      if (!accepts(along).ok()) along.panel_columns = best->panel_columns;
    }
    if (accepts(along).ok()) best = along;
  }
  if (best && !little) {
    const Setting next = next_blocks(*best);
    if (next.prefetch == -1 && accepts(next).ok()) best = next;
  }
  // A core whose prefetcher follows the stream need not ask further than two pages.
  if (best && t_.prefetches_alone && best->dots == kSteps && best->prefetch > 2 * kPage) {
    Setting near = *best;
    near.prefetch = 2 * kPage;
    if (accepts(near).ok()) best = near;
  }
  if (row_lanes_pay() && accepts(standard_row_lanes()).ok()) best = standard_row_lanes();
  return best;
}

// Of a B from memory that every call reads where it lies or transposes: while tiles walk a block of it, the next one is
// fetched. Rows at a distance of pages share sets of L1, and so many of them share sets of L2 as a block is long in the
// other direction: what is read where it lies goes in long pieces of few rows, of which two blocks find room. Further
// tiles walk the copy of a panel that its first tile makes. Many tiles hide what the way of pieces takes: they walk
// deep panels, and their sums come and go less often. What is transposed goes panel by panel, each along its rows;
// deeper where many tiles wait for it.
MatmulSketch::Setting MatmulSketch::next_blocks(const Setting& best) const {
  const auto most_rows = [&](int64_t vectors) { return (t_.vector_registers - 2 - vectors) / vectors; };
  const auto tiles_of = [&](int64_t rows) { return (m_ + rows - 1) / rows; };
  const bool far = n_ * k_ * b_bytes_ > 2 * t_.l2_bytes && k_ >= 4 * kNextDepth && is_const_int(p_.m->extent);
  if (packed() || !problem_.cold || !far || m_ <= kFewRows || m_ > kMostNextRows) return best;
  const bool wide = !in_place() && tiles_of(most_rows(2)) > 1 && tiles_of(most_rows(3)) == tiles_of(most_rows(2));
  const int64_t tiles = tiles_of(most_rows(wide ? 3 : 2)), panel = (wide ? 3 : 2) * t_.lanes;
  Setting next{.tile_rows = (m_ + tiles - 1) / tiles,
               .panel_columns = panel,
               .depth_block = kNextDepth,
               .pack_rows = rows_pack_,
               .prefetch = -1};
  if (!in_place()) {
    next.column_block = panel;
    if (tiles >= kManyTiles) next.depth_block = 2 * kNextDepth;
    return next;
  }
  const int64_t widest = tiles >= kManyTiles ? kLongPiece / 4 : tiles == 1 ? kLongPiece / 2 : kLongPiece;
  for (int64_t block = widest; block >= kLongPiece / 8 && next.column_block == 0; block /= 2) {
    if (n_ % block == 0 && n_ / block >= problem_.threads) next.column_block = block;
  }
  const bool along = next.column_block == kLongPiece;
  if (along) next.depth_block = kNextDepth / 2;
  if (tiles >= kManyTiles && k_ >= 2 * kManyDepth) next.depth_block = std::min(kManyDepth, k_ / 4);
  if (along || tiles >= kTilesOfCopy) next.copy_panels = kCopyFirst;
  return next;
}

// Sums in their own order.
std::vector<MatmulSketch::Setting> MatmulSketch::simpler(const Setting& standard) const {
  Setting simple = standard;
  simple.depth_sums = 0;
  simple.depth_parts = 1;
  if (simple.row_lanes != 0) simple = {.tile_rows = std::min(simple.tile_rows, m_), .panel_columns = 2 * t_.lanes};
  return {simple};
}

}  // namespace lathe::search
