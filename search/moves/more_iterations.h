// What a scope that gets more iterations than it has must not do. Internal to search.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "search/moves/transform_util.h"

namespace lathe::search {

inline bool computes_with(const ir::Expr& e, const std::string& iterator) {
  if (e->op == ir::Op::k_load) return false;
  if (e->op == ir::Op::k_iter) return e->name == iterator;
  return std::any_of(e->args.begin(), e->args.end(), [&](const ir::Expr& a) { return computes_with(a, iterator); });
}

// Whether the iterator stands anywhere but in indices: further iterations would compute with it, or have other extents.
inline bool computes_with(const std::vector<ir::Stmt>& body, const std::string& iterator) {
  bool out = false;
  ir::for_each_stmt(body, [&](const ir::Stmt& s) {
    out =
        out || (s.kind == ir::Stmt::Kind::scope ? ir::uses(s.extent, iterator)
                                                : s.kind == ir::Stmt::Kind::assign && computes_with(s.value, iterator));
  });
  return out;
}

}  // namespace lathe::search
