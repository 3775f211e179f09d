// Prefetches of the fields of a weight of few bits that lies in panels.
#pragma once
#include "search/quantised/parts.h"

namespace lathe::search {

// Bytes that fit ahead of a tile of many rows, beside these, into the cache that prefetches go to.
int64_t far_ahead(const ir::Target& target);
// Bytes that tiles of so many rows fetch ahead by default; 0: the core's prefetcher keeps up. plain: the bytes are the
// weights; slow: of blocks of several groups, which are short or whose weights are made of several fields.
int64_t usual_distance(const ir::Target& target, int64_t rows, bool plain, bool slow);

struct FieldPrefetch {
  int64_t ahead = 0;       // bytes of the largest field
  bool start = false;      // a line of each step of the largest field also twice as far
  int64_t tiles = 0;       // that share out the next panel of the largest field instead; 0: none do
  int64_t rows = 0;        // of a tile, if what follows the sums of the next one is fetched as well; 0: it is near
  int64_t group = 1;       // weights of a scope of groups, at least
  int64_t columns = 0;     // that are walked side by side
  int64_t depth = 0;       // weights of a column
  double weights = 1;      // in all
  bool together = false;   // fields are one stream
  bool to_second = false;  // to the second cache, whatever the core has
};

// Where the scheduled loops read the field. Tiles run over scope m0. With the largest field also what has an element
// for each result, as a residual, of the next tile.
void prefetch_field(Script& s, const QuantisedField& f, const FieldBytes& bytes, const FieldPrefetch& how);

}  // namespace lathe::search
