// Which cells of a buffer a part of the loop tree touches: a box, one range per dimension, in terms
// of the scopes outside that part. Over-approximates; `exact` says when every cell of the box is
// touched. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ir/analysis/dependence.h"
#include "search/moves/transform_util.h"

namespace lathe::search {

// base + sum of coeff * iterator, base free of the iterators asked about.
struct LinearIndex {
  ir::Expr base;
  std::vector<std::pair<std::string, int64_t>> terms;  // coefficients are not 0
};
std::optional<LinearIndex> linear_in(const ir::Expr& e, const std::vector<std::string>& iters);

// Two nested iterators a, b that count as one, a = ab // tile, b = ab % tile: the extent of ab. Null
// extent: they do not (b's extent is neither constant nor the tail of a tile of a).
struct TilePair {
  ir::Expr extent;
  int64_t tile = 0;
};
TilePair merged_extent(const std::string& outer, const ir::Expr& outer_extent, const ir::Expr& inner_extent,
                       const ir::Ranges& ranges);

struct DimRange {
  ir::Expr base, extent;
  bool whole = false;   // nothing better than the whole dimension is known
  bool exact = false;   // every value of the range occurs (unless the extent is <= 0)
  bool varies = false;  // some inner iterator indexes it
  std::string role;     // of the scope that does
};

// `fixed` scopes of access.scopes stay outside; ranges knows them.
std::vector<DimRange> footprint(const ir::Kernel& kernel, const ir::Access& access, size_t fixed,
                                const ir::Ranges& ranges);
// The box around all accesses of one buffer.
std::vector<DimRange> footprint(const ir::Kernel& kernel, const std::vector<const ir::Access*>& accesses, size_t fixed,
                                const ir::Ranges& ranges);
// The size of a buffer that holds the range, of a dimension `dim`: free of iterators (constant if
// asked for) and not negative. Null if none is known.
ir::Expr storage_size(const DimRange& range, const ir::Expr& dim, const ir::Ranges& ranges, bool constant);
// What a temporary for a box of a buffer's cells holds, one entry per dimension of the buffer; a
// dimension of one cell is left out of it.
struct Staged {
  std::vector<DimRange> box;
  std::vector<bool> kept;
  std::vector<ir::Expr> rebase(const std::vector<ir::Expr>& index) const;
};
// The box of cells, cut back to whole dimensions where it cannot be shown to lie inside the buffer.
Staged stage_box(const ir::Kernel& kernel, const ir::Buffer& buffer, const std::vector<const ir::Access*>& accesses,
                 size_t fixed, const ir::Ranges& ranges);
// The most by which the value rises from one iteration to the next; nothing: it may fall, or it is not known.
std::optional<int64_t> rise_of(const ir::Expr& e, const std::string& with);
// Minima and maxima around sums, products with numbers above 0 and quotients by them.
ir::Expr choices_outside(const ir::Expr& e, const ir::Ranges& ranges);
// a <= b, looking through min on the left and max on the right, and through quotients by the same number.
bool surely_le(const ir::Expr& a, const ir::Expr& b, const ir::Ranges& ranges);

}  // namespace lathe::search
