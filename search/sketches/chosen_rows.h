// What recipes of products share where integers choose the weights: groups of rows, and what is computed before them.
#pragma once
#include <vector>

#include "search/sketches/recipe.h"

namespace lathe::search {

// Whether integers say how many rows a weight has. These are not proven to lie apart from those of another.
bool has_groups(const ir::Stmt& m);
// Rows of a weight: where integers say how many it has, as many as each has on average. `a` is the load of a row's
// element.
int64_t rows_of_weight(const ir::Stmt& m, const ir::Expr& a, const Problem& problem);
// Whether threads share out panels, and each is of all weights that are chosen: groups of any size, or too few rows
// that choose, are nothing to share out among them.
bool shares_panels(const ir::Stmt& m, const Problem& problem);
// What fills an operand or clears a result before all else: in vectors where it lies that way, rows shared out, or the
// columns of few rows.
void write_prologues(Script& s, const std::vector<const ir::Stmt*>& prologues, const Problem& problem, int64_t lanes);

}  // namespace lathe::search
