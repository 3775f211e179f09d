// Products with weights of few bits whose sums wait in tiles of the CPU's own (tile_u8s8): each group's weights are
// made bytes first, as tiles read them. When that is legal, its moves, what it costs.
//
//   m0 tile { c = 0 | g { w = bytes | s = start | k2 { s += 64 bytes } | c += f32(s) * factor } | y = f(c) }
#include "search/quantised/dots_sketch.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kAhead = 8192;         // bytes of the largest field, from memory
constexpr int64_t kMostHeld = 16 << 10;  // bytes of a group's weights: they stay in the first cache
constexpr int64_t kRowsOfShort = 24;     // up to which groups of a tile or half of one gain nothing
// Cycles of an operation on four bytes in each lane, of a group, of a row of a group.
constexpr double kDecode = 0.75, kGroup = 60, kRow = 12, kRowAndRest = 13;

}  // namespace

bool DotsSketch::has_tiles() const {
  return t_.has(kCpu_amx_tile | kCpu_amx_int8) && g_.in_tiles() && g_.group * panel() <= kMostHeld &&
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
  if (m_ <= (g_.fill_tiles() ? kTileRows / 2 : kRowsOfShort) || !(g_.fill_tiles() || g_.weight.rest)) return {};
  if (!accepts(k).ok()) return {};
  return k;
}

// As a program of intrinsics took on an Intel server: bench/results/limits_llm_xeon.txt, groups of 128.
double DotsSketch::tile_cycles(int64_t rows) const {
  const double quads = static_cast<double>(g_.quads() * panel() / t_.lanes);
  return quads * g_.unpacking * kDecode + kGroup + static_cast<double>(rows) * (g_.weight.rest ? kRowAndRest : kRow);
}

void DotsSketch::write_tile(Script& s, const std::string& depth) const {
  s.move("tile_buffer {} 0 {}", kHeld, kQuad);
  s.move("swap_dims {} 1 2", kHeld);
  s.move("tile_scope {0}_1 {1} tail=exact as {0}v,{0}l", kHeld, t_.lanes);
  s.move("unroll_scope {}v", kHeld);
  s.move("vectorize_scope {}l", kHeld);
  s.move("tensorize kj decode4_u8");
  s.move("tile_scope {} {} tail=exact as kt,kt1", depth, g_.tile_depth());
  s.move("tile_scope kt1 {} tail=exact as ktq,ktj", kQuad);
  s.move("unroll_scope ktq");
  s.move("unroll_scope ktj");
  s.move("tensorize kt {}", g_.tile_depth() == kTileDepth ? "tile_u8s8" : "tile_u8s8_32");
}

}  // namespace lathe::search
