// Where packed parameters lie in one stretch of memory: one after another, but those whose layout has steps
// (ir/core/layout_steps.h) in the room that others with the same outermost step leave, where that is wide enough.
#pragma once
#include <vector>

#include "runtime/compile/compiler.h"

namespace lathe::runtime {

// A physical dimension of a packed form: elements from one to the next.
struct PackedDim {
  int64_t size = 0, step = 0;
};
// Outermost first. INVALID: a symbol has no value, or a size overflows.
ir::Result<std::vector<PackedDim>> packed_dims(const PackedParam& packed, const SymbolValues& symbols);

// Pieces of bytes at the same offsets in each of `count` periods.
struct PackedPlace {
  int64_t at = 0, span = 0;  // the first byte, and bytes to the last one
  int64_t count = 1, period = 0;
  int64_t piece = 0;                     // bytes of one
  int64_t outermost = 1, innermost = 1;  // sizes of its dimensions, if it has several; of the last one
  std::vector<int64_t> offsets;          // from the beginning of a period
  bool shares = false;                   // its periods have room between pieces
};

// Of what packed_places() decides: bumped when parts of a constant lie elsewhere than before, so that bytes that a host
// has kept are refused.
inline constexpr uint64_t kPlacesVersion = 2;

struct PackedPlaces {
  std::vector<PackedPlace> places;
  int64_t bytes = 0;
  bool gaps = false;  // there is room that nothing fills
};
// In the order of the parameters. Errors as of packed_bytes().
ir::Result<PackedPlaces> packed_places(const std::vector<const PackedParam*>& packed, const SymbolValues& symbols);

}  // namespace lathe::runtime
