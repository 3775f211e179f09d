// Products with weights of few bits whose sums wait in tiles of the CPU's own (tile_u8s8): each group's weights are
// made bytes first, as tiles read them. When that is legal, its moves, what it costs.
//
//   m0 tile { c = 0 | g { w = bytes | s = start | k2 { s += 64 bytes } | c += f32(s) * factor } | y = f(c) }
//
// Signed bytes that share one scale are read where they lie, as those of a matmul of bytes:
//
//   m0 tile { s = 0 | k2 { s += 64 bytes } | y = f(f32(s) * factor) }
#include "search/quantised/dots_sketch.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kAhead = 8192;         // bytes of the largest field, from memory
constexpr int64_t kLeastRows = 4;        // that are worth tiles of panels: fewer keep up with memory without
constexpr int64_t kMostLines = 128;      // of four steps
constexpr int64_t kMostHeld = 16 << 10;  // bytes of a group's weights: they stay in the first cache
constexpr int64_t kRowsOfShort = 24;     // up to which groups of a tile or half of one gain nothing
// Cycles of an operation on four bytes in each lane, of a group, of a row of a group.
constexpr double kDecode = 0.75, kGroup = 60, kRow = 12, kRowAndRest = 13;
constexpr double kTileLines = 16, kLine = 1.2;  // lines of a tile of weights, cycles of one from the second cache

}  // namespace

bool DotsSketch::holds_bytes() const { return !g_.whole_tiles() && g_.in_tiles() && g_.group * panel() <= kMostHeld; }

bool DotsSketch::has_tiles() const {
  return t_.has(kCpu_amx_tile | kCpu_amx_int8) && (g_.whole_tiles() || holds_bytes()) &&
         proves_divisible(p_.n->extent, panel(), Ranges(problem_.kernel));
}

Status DotsSketch::accepts_tiles(const Setting& k) const {
  if (!has_tiles()) return unsupported("ti 1: groups of {} on this level", g_.group);
  if (k.panel_columns != panel() || k.streams != 1 || in_parts(k))
    return unsupported("ti 1: one panel of {} columns, a scale for each group", panel());
  if (k.tile_rows > kTileRows || k.tile_rows < 2)
    return unsupported("mr {}: expected 2 to {} rows of tiles", k.tile_rows, kTileRows);
  return {};
}

// With more rows than one of the CPU's tiles has. What is made of a group's weights is made again for the next tile.
// Short groups gain where each has a minimum or a zero point, and rows are some more.
std::optional<DotsSketch::Setting> DotsSketch::standard_tiles() const {
  const Setting k{.tile_rows = std::min(m_, kTileRows),
                  .panel_columns = panel(),
                  .prefetch = problem_.cold ? kAhead : 0,
                  .parallel = problem_.threads > 1,
                  .tiles = 1};
  if (g_.whole_tiles()) {
    const bool hurried = !problem_.unhurried && !is_const_int(p_.m->extent);
    Setting whole = k;
    if (problem_.cold && m_ > kTileRows) whole.prefetch = -1;
    return m_ >= kLeastRows && !hurried && accepts(whole).ok() ? std::optional(whole) : std::nullopt;
  }
  const int64_t few = !g_.fill_tiles() ? kRowsOfShort : problem_.cold ? kTileRows / 2 - 1 : kTileRows / 2;
  if (m_ <= few || !(g_.fill_tiles() || g_.weight.rest)) return {};
  if (!accepts(k).ok()) return {};
  return k;
}

// As a program of intrinsics took on an Intel server: bench/results/limits_llm_xeon.txt, groups of 128.
double DotsSketch::tile_cycles(int64_t rows) const {
  if (g_.whole_tiles()) {
    const double down = static_cast<double>(rows), steps = static_cast<double>(k_) / static_cast<double>(kTileDepth);
    return steps * std::max(2 * down, (2 * kTileLines + down) * kLine) + kGroup + down * kRow;
  }
  const double quads = static_cast<double>(g_.quads() * panel() / t_.lanes);
  return quads * g_.unpacking * kDecode + kGroup + static_cast<double>(rows) * (g_.weight.rest ? kRowAndRest : kRow);
}

// The bytes of a group as tiles read them.
void DotsSketch::write_held(Script& s) const {
  s.move("tile_buffer {} 0 {}", kHeld, kQuad);
  s.move("swap_dims {} 1 2", kHeld);
  s.move("tile_scope {0}_1 {1} tail=exact as {0}v,{0}l", kHeld, t_.lanes);
  s.move("unroll_scope {}v", kHeld);
  s.move("vectorize_scope {}l", kHeld);
  s.move("tensorize kj decode4_u8");
}

void DotsSketch::write_tile(Script& s, const Setting& k, const std::string& depth) const {
  s.move("tile_scope {} {} tail=exact as kt,kt1", depth, g_.tile_depth());
  s.move("tile_scope kt1 {} tail=exact as ktq,ktj", kQuad);
  s.move("unroll_scope ktq");
  s.move("unroll_scope ktj");
  s.move("tensorize kt {}", reads_panels(k)                 ? "tile_s8s8"
                            : g_.tile_depth() == kTileDepth ? "tile_u8s8"
                                                            : "tile_u8s8_32");
}

// To L2, as those of a matmul in tiles.
void DotsSketch::prefetch_panels(Script& s, const Setting& k) const {
  const std::string& field = bytes_.largest;
  if (k.prefetch > 0) s.move("prefetch {} kt ahead={} lines={} to=l2", field, k.prefetch, kMostLines);
  const int64_t tiles = (m_ + k.tile_rows - 1) / k.tile_rows;
  if (k.prefetch == -1)
    s.move("prefetch {} kt next=m0 lines={} to=l2", field,
           std::max<int64_t>(kMostLines / std::max<int64_t>(tiles, 1), 1));
}

}  // namespace lathe::search
