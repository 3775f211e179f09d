// Iterations that store to rows which integers name, of which two may be the same. The later one's values stay, so one
// that is followed by another with its integer need not run. Then no two that run store to one cell.
//
//   for t < T: c[s[t]] = e(t)
//     ->  for a < T: {l[a] = 0;  for b < T - a - 1: l[a] max= select(s[a] == s[a + b + 1], 1, 0);
//           k[a] = select(l[a] == 0, 1, 0)}
//         for t < T: for o < k[t]: c[s[t]] = e(t)
#pragma once
#include <string>
#include <vector>

#include "ir/core/kernel.h"

namespace lathe::search {

struct LastNames {
  std::string named, later, kept;  // buffers: the integers, whether there is a later one, whether it is the last
  std::string each, behind;        // scopes
};
// The nest that finds the last ones of `count` integers of the type.
ir::Stmt last_nest(const LastNames& names, const ir::Expr& count, ir::DType type);

// The buffers in which each iteration of the scope, if it runs, stores to a row of its own, as such a nest says.
std::vector<std::string> in_last_rows(const ir::Kernel& kernel, const ir::Stmt& scope);

}  // namespace lathe::search
