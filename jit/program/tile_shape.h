// Which tile registers hold what: sums, rows of a, lines of b. A row of a has four bytes for each line of b.
#pragma once
#include "jit/program/leaf_program.h"

namespace lathe::jit {

inline constexpr int kFirstTileOfA = 4, kFirstTileOfB = 6;  // sums come first; those of b are used in turns

// Bytes of a row of a tile register; rows: of each.
inline int tile_row_bytes(const uint8_t (&rows)[kMaxTiles], int tile) {
  const bool of_a = tile >= kFirstTileOfA && tile < kFirstTileOfB;
  return of_a ? kTileBytes / kTileRows * rows[kFirstTileOfB] : kTileBytes;
}

}  // namespace lathe::jit
