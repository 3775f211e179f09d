// See parts.h.
#include "search/attention/parts.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

AttentionParts attention_parts(const Kernel& kernel) {
  const auto all = [&](const char* role) { return scopes_with_role(kernel, role); };
  const std::vector<const Stmt*> rows = all("row"), keys = all("key"), depth = all("k"), columns = all("n");
  if (rows.size() != 1 || keys.size() != 3 || depth.size() != 1 || columns.size() != 1) return {};
  if (rows[0]->body.size() != 6 || keys[0]->body.size() != 4 || columns[0]->body.size() != 3) return {};
  return {rows[0], keys[0], depth[0], keys[1], columns[0], keys[2], all("batch")};
}

void vectorize(Script& s, const std::string& scope, int64_t lanes, const char* tail, bool unrolled) {
  s.move("tile_scope {} {} tail={} as {}v,{}l", scope, lanes, tail, scope, scope);
  if (unrolled) s.move("unroll_scope {}v", scope);
  s.move("vectorize_scope {}l", scope);
}

}  // namespace lathe::search
