// What the rows of the move table share: places in the loop tree, fresh names, checked arguments,
// refusals, substitution and simplification of bodies. Decides nothing about legality (legality.h)
// and knows no move.
#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ir/analysis/analysis.h"
#include "ir/core/kernel.h"
#include "search/moves/transform.h"

namespace lathe::search {

using ScopePath = std::vector<const ir::Stmt*>;
using Renaming = std::vector<std::pair<std::string, ir::Expr>>;

// A scope and where it stands. Edits of the siblings invalidate it.
struct ScopeSite {
  std::vector<ir::Stmt>* siblings = nullptr;
  size_t index = 0;
  ScopePath outer;  // enclosing scopes, outermost first, without the scope itself
  ir::Stmt& scope() const { return (*siblings)[index]; }
  ScopePath path() const;  // outer and the scope
};
// A body moves can name: a scope's, or the Kernel's own as "root".
struct BodySite {
  std::vector<ir::Stmt>* body = nullptr;
  ScopePath path;  // enclosing scopes, the owner last
};

// INVALID "expected ..." when there is none.
ir::Result<ScopeSite> find_site(ir::Kernel& kernel, const std::string& iter);
ir::Result<BodySite> find_body(ir::Kernel& kernel, const std::string& name);
// The scope, not marked and not inside a vector or tensor scope: what moves that reorder or divide
// iterations need.
ir::Result<ScopeSite> find_plain_site(ir::Kernel& kernel, const std::string& iter);
bool inside_mark(const ScopePath& path, ir::Mark mark);
// Inside a scope that threads share out: @parallel, @grid or @block.
bool inside_shared_out(const ScopePath& path);
ir::Result<int64_t> int_arg(const std::string& text, const char* what, int64_t lo, int64_t hi);
// A temporary (heap, stack, reg) of that name.
ir::Result<ir::Buffer*> find_temporary(ir::Kernel& kernel, const std::string& name);

ir::Ranges ranges_at(const ir::Kernel& kernel, const ScopePath& path);

// The names of a Kernel: iterators, buffers, symbols.
class Names {
 public:
  explicit Names(const ir::Kernel& kernel);
  bool taken(const std::string& name) const { return std::find(used_.begin(), used_.end(), name) != used_.end(); }
  // base, or base with the first free letter b, c, ... (then bb, bc, ...); taken afterwards.
  std::string fresh(const std::string& base);
  ir::Status take(const std::string& name);

 private:
  std::vector<std::string> used_;  // few enough to look through
};
// The names after `as`, then fresh(defaults[i]) for those not given.
ir::Result<std::vector<std::string>> created_names(Names& names, const Move& move,
                                                   const std::vector<std::string>& defaults);

// Iterators, symbols or buffers.
bool uses_any(const ir::Expr& e, const std::vector<std::string>& names);
void substitute_body(std::vector<ir::Stmt>& body, const Renaming& map);
// Prefetches spread over scope `from` are spread over scope `to`.
void follow_prefetch(std::vector<ir::Stmt>& body, const std::string& from, const std::string& to);
// "n < min(32, N - 32*n0)", for refusals.
std::string print_extent(const ir::Stmt& scope);
// Gives every scope in the body a fresh name, old name + suffix; returns old and new names.
Renaming rename_scopes(std::vector<ir::Stmt>& body, const std::string& suffix, Names& names);
// Simplifies extents, indices (of loads as well) and counts of shifts below scopes that are already in ranges. With
// names: only their scopes and what uses them, where all else is as it was when it was simplified before.
void simplify_body(std::vector<ir::Stmt>& body, const ir::Ranges& ranges, const std::vector<std::string>& names = {});
ir::Expr simplify_loads(const ir::Expr& value, const ir::Ranges& ranges);
// Removes scopes with nothing left inside.
void prune_empty(std::vector<ir::Stmt>& body);

// UNSUPPORTED with the row's sentence number `number`, unless `holds` or the tests disabled it.
class Legality {
 public:
  Legality(const char* row, const TransformParams& params) : row_(row), params_(params) {}
  ir::Status require(int number, bool holds, const std::string& why = {}) const;

 private:
  const char* row_;
  const TransformParams& params_;
};

// The scopes that find_plain_site accepts, for propose().
std::vector<std::string> plain_scopes(const ir::Kernel& kernel);
// Whether no two instances of a buffer's plain assignments may write one cell.
bool written_once(const ir::Kernel& kernel, const std::string& buffer);

}  // namespace lathe::search
