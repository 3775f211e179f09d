// What a Kernel of rows is made of: its passes over the columns, what a row keeps between them, what is read in order.
#pragma once
#include <string>
#include <vector>

#include "search/sketches/recipe.h"

namespace lathe::search {

// What the knobs of the row recipe depend on.
struct RowShape {
  std::string row;                      // the innermost row scope, empty if there is none
  std::vector<const ir::Stmt*> passes;  // column scopes
  std::vector<std::string> scalars;     // temporaries of a row: one value
  std::vector<std::string> kept;        // temporaries of a row: one value per column
  std::vector<std::string>
      streamable;                  // outputs that may go past the caches: nothing reads them, cells are written once
  std::vector<std::string> whole;  // inputs with an element for each of the result, read in order
  int64_t rows = 1, cols = 1;
  int64_t overlapped_sums = 0;         // reductions of the first two passes
  double bytes_in = 0, bytes_out = 0;  // of the widest elements
  bool functions = false;
  bool norm = false;  // a root of a sum
  bool normal_cdf = false;
  bool some_rows = false, two_rows = false, again = false, online = false;
  bool decides = false;      // how often its passes run depends on the row
  bool running = false;      // the first pass reads its own sum while it runs
  bool first_keeps = false;  // the first pass writes what the later ones read: of two rows at a time there would be two
  bool first_stores = false;  // that is a result
};
// streams: results may go past the caches; which of them is looked at only then.
RowShape row_shape_of(const Problem& problem, bool streams);

}  // namespace lathe::search
