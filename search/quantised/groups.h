// How the depth of weights of few bits goes into groups that share a scale, and quads: four weights of one lane.
//
//   k = group * (block * b + unrolled * l + u) + period * s + part * p + 4 * q + j
//
// Loops over b and l, and over s or q of long groups; the others are unrolled.
#pragma once
#include "ir/analysis/grouped_weight.h"
#include "search/quantised/parts.h"

namespace lathe::search {

inline constexpr int64_t kQuad = 4;
inline constexpr int64_t kUnrolledQuads = 16;  // of a group in straight code
inline constexpr int64_t kTileDepth = 64;      // terms of a product of tiles of bytes
// Activations that share a scale. A language model's logits bear 64, not 128 (docs/decoder_loop.md).
inline constexpr int64_t kLeastScale = 32, kUsualScale = 64, kMostScale = 256;

struct Groups {
  int64_t group = 0;          // weights; 0: the weight is nothing of the kind
  int64_t block = 1;          // groups after which the expressions begin anew
  int64_t unrolled = 1;       // groups of a block that differ in more than their address
  int64_t period = 0;         // weights after which they differ in their address alone
  int64_t part = 0;           // weights side by side that do
  bool parts_share = true;    // parts of a period read the same bytes; else quads of a part may
  double unpacking = 0;       // instructions that make the bytes of a quad, a load for one; the mean of a period
  int64_t sources = 1;        // loads that a quad's bytes come from, at most
  bool signed_bytes = false;  // one group, whose weights are signed bytes as they lie
  ir::GroupedWeight weight;   // of iterators "g" and that of the depth
  int64_t quads() const { return group / kQuad; }
  bool straight() const { return quads() <= kUnrolledQuads; }
  // Terms of a product of tiles, of the CPU's own, that sums of a group may wait in; some have half as many.
  int64_t tile_depth() const { return group % kTileDepth == 0 ? kTileDepth : kTileDepth / 2; }
  bool in_tiles() const { return group % tile_depth() == 0 && unpacking > 1; }
  // Whether the weights are signed bytes that tiles can read where they lie, all of them with one scale.
  bool whole_tiles() const { return signed_bytes && group % kTileDepth == 0 && group > kTileDepth && !weight.rest; }
  // Whether the tiles' rate, rather than what ends the sums of each group, may limit them.
  bool fill_tiles() const { return group > kTileDepth && in_tiles() && tile_depth() == kTileDepth; }
};

// The widest groups that serve; of 0 weights: the weight is nothing of the kind.
Groups groups_of(const QuantisedParts& parts, const ir::Ranges& ranges);
// Instructions that make the value, a load for one.
int64_t operations(const ir::Expr& e);

}  // namespace lathe::search
