// See chosen_rows.h.
#include "search/sketches/chosen_rows.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "search/sketches/generic_rules.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

bool has_groups(const Stmt& m) {
  bool out = false;
  for_each_node(m.extent, [&](const ExprNode& e) { out |= e.op == Op::k_load; });
  return out;
}

int64_t rows_of_weight(const Stmt& m, const Expr& a, const Problem& problem) {
  const int64_t rows = extent_at(m.extent, problem);
  if (!has_groups(m)) return rows;
  int64_t groups = 1;
  for (const Stmt* s : scopes_with_role(problem.kernel, "batch"))
    groups *= std::max<int64_t>(extent_at(s->extent, problem), 1);
  const int64_t all = extent_at(problem.kernel.find_buffer(a->name)->dims[0], problem);
  return std::clamp<int64_t>((all + groups - 1) / groups, 1, std::max<int64_t>(rows, 1));
}

bool shares_panels(const Stmt& m, const Problem& problem) {
  if (problem.threads < 2) return false;
  if (!m.extent || evaluate(m.extent, problem.dims) == std::nullopt) return true;  // groups of any size
  int64_t chosen = 1;
  for (const Stmt* s : scopes_with_role(problem.kernel, "batch")) chosen *= extent_at(s->extent, problem);
  return chosen < 8 * problem.threads;
}

void write_prologues(Script& s, const std::vector<const Stmt*>& prologues, const Problem& problem, int64_t lanes) {
  constexpr int64_t kUnroll = 4, kLeastShare = 1024;  // vectors of a step; columns that are worth a thread
  for (const Stmt* prologue : prologues) {
    int64_t rows = 1;
    const Stmt* col = prologue;
    for (; col->body[0].kind == Stmt::Kind::scope; col = &col->body[0]) rows *= extent_at(col->extent, problem);
    const int64_t columns = extent_at(col->extent, problem);
    std::string shared = prologue->iter;
    if (rows < problem.threads && columns >= 2 * kLeastShare) {
      s.move("tile_scope {} {} tail=mask as {}b,{}c", col->iter, kLeastShare, col->iter, col->iter);
      shared = col->iter + "b";
    }
    s.move("parallelize {}", shared);
    const std::string inner = shared == prologue->iter ? col->iter : col->iter + "c";
    const Stmt* now = find_scope(s.kernel(), inner);
    if (now == nullptr || now->mark != Mark::none || !unit_stride(s.kernel(), *now)) continue;
    const Stmt copy = *now;
    vectorize_columns(s, copy, columns >= kUnroll * lanes ? kUnroll : 1, lanes);
  }
}

}  // namespace lathe::search
