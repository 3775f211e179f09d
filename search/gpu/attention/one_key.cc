// See one_key.h.
#include "search/gpu/attention/one_key.h"

#include <algorithm>
#include <bit>

#include "search/gpu/attention/put_together.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

static constexpr int64_t kThreads = 128;

bool has_one_key(const Kernel& kernel, const AttentionParts& p) { return most_keys_seen(kernel, p) <= 1; }

Result<Scheduled> one_key_schedule(const Kernel& kernel, const AttentionParts& p) {
  MoveList list(kernel, "one_key.1");
  const std::string &i = p.row->iter, &n = p.columns->iter;
  for (const AttentionParts::Copy& c : p.copies) list.move("inline_temporary {}", c.one().target);
  std::string row = i;
  if (p.clear.empty()) {
    for (const Stmt* t : p.heads) list.move("parallelize_grid {}", t->iter);
    list.move("parallelize_grid {}", i);
  } else {
    const std::string &sequence = p.heads.front()->iter, &head = p.heads.back()->iter;
    row = "once";
    list.move("level_scope {} {} as row,once", i, sequence);
    list.move("swap_scopes {} {}", sequence, head);
    clear_rows(list, p);
    list.move("parallelize_grid row");
    list.move("parallelize_grid {}", head);
  }
  const auto columns = static_cast<uint64_t>(std::clamp<int64_t>(p.columns->extent->ival, 1, kThreads));
  list.move("deal_scope {0} {1} as {0}t,{0}i", n, std::bit_floor(columns));
  for (const std::string& name : {p.products(), p.powered(), p.maximum(), p.total(), p.inverse()})
    list.move("move_to_register {} {}", name, row);
  list.move("move_to_register {} {}i", p.sums(), n);
  list.move("parallelize_block {}t", n);
  return list.finish();
}

}  // namespace lathe::search
