// What is shared out among threads: heads, sequences, and parts of the keys. See parts.h.
#include <algorithm>

#include "search/attention/parts.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

void split_keys(Script& s, const AttentionParts& p, int64_t keys) {
  const std::string& i = p.row->iter;
  s.move("split_softmax {} {} {} {} as {}", p.scores->iter, p.powers->iter, p.values->iter, keys, kKeyPart);
  s.move("split_scope {} after=0 as {}_m", i, i);
  for (size_t h = p.heads.size(); h-- > 0;) {
    const std::string& scope = p.heads[h]->iter;
    // What is copied for the heads stands before them.
    const Stmt* found = s.ok() ? find_scope(s.kernel(), scope) : nullptr;
    const size_t before = found == nullptr ? 0 : found->body.size() - 2;
    s.move("split_scope {} after={} as {}_m", scope, before, scope);
  }
}

void merge_parts(Script& s, const AttentionParts& p, int64_t lanes, int64_t column_vectors, bool parallel) {
  const std::string part = kKeyPart, row = p.row->iter + "_m", columns = p.columns->iter + "_m";
  s.move("move_to_stack m_weight {}", row);
  for (const char* name : {"m_all", "a_all", "r"}) s.move("move_to_register {} {}", name, row);
  for (const Stmt* h : p.heads) {
    if (parallel) s.move("parallelize {}_m", h->iter);
  }
  for (const char* pass : {"_m", "_w"}) vectorize(s, part + pass, lanes, "mask", false);
  const int64_t block = column_vectors * lanes;
  sum_columns(s, columns, part + "_s", p.sums() + "_all", block, lanes, tail_of(p.columns->extent, block, s.kernel()));
}

bool sequences_apart(const AttentionParts& p) { return p.clear.empty(); }

void share_out(Script& s, const AttentionParts& p, std::vector<std::string> scopes) {
  // Rows of queries that offsets name may be those of two sequences, for all that is proven: heads are shared out, each
  // with all sequences.
  if (!sequences_apart(p)) {
    if (scopes.size() < 2) return;
    s.move("swap_scopes {} {}", scopes[0], scopes[1]);
    scopes = {scopes[1]};
  }
  for (const std::string& scope : scopes) s.move("parallelize {}", scope);
}

void sum_columns(Script& s, const std::string& columns, const std::string& depth, const std::string& sums,
                 int64_t block, int64_t lanes, const char* tail) {
  const std::string& n = columns;
  s.move("tile_scope {} {} tail={} as {}0,{}1", n, block, tail, n, n);
  s.move("split_scope {}1 after=0 as {}_sum", n, n);
  s.move("split_scope {}_sum after=0 as {}_end", n, n);
  s.move("swap_scopes {}_sum {}", n, depth);
  for (const char* piece : {"1", "_sum", "_end"}) vectorize(s, n + piece, lanes, tail, true);
  s.move("move_to_register {} {}0", sums, n);
}

}  // namespace lathe::search
