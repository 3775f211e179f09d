// See segments.h.
#include "search/moves/segments.h"

#include <algorithm>
#include <map>

#include "ir/analysis/dependence.h"
#include "ir/core/names.h"

namespace lathe::search {

using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {

// The integers whose differences the scope's extent is, from `t` on; null: it is none.
const ExprNode* first_of(const Expr& extent, const std::string& t) {
  if (extent->op != Op::k_sub) return nullptr;
  const auto loaded = [](const Expr& e) -> const ExprNode* {
    const Expr& inner = e->op == Op::k_cast ? e->args[0] : e;
    return inner->op == Op::k_load && inner->args.size() == 1 ? inner.get() : nullptr;
  };
  const ExprNode *last = loaded(extent->args[0]), *first = loaded(extent->args[1]);
  if (last == nullptr || first == nullptr || last->name != first->name) return nullptr;
  return equal(first->args[0], iter(t)) && equal(last->args[0], iter(t) + Expr(1)) ? first : nullptr;
}

}  // namespace

std::vector<std::string> in_segments(const Stmt& scope) {
  std::map<std::string, bool> apart;
  for (const Access& a : collect_accesses(scope.body)) {
    bool own = false;
    for (const Stmt* s : a.scopes) {
      if (first_of(s->extent, scope.iter) == nullptr || a.index.empty()) continue;
      own = own || equal(a.index[0], s->extent->args[1] + iter(s->iter));
    }
    const auto known = apart.try_emplace(a.buffer, own).first;
    known->second = known->second && own;
  }
  std::vector<std::string> out;
  for (const auto& [name, own] : apart) {
    if (own) out.push_back(name);
  }
  return out;
}

}  // namespace lathe::search
