// See few_keys.h.
#include "search/gpu/attention/few_keys.h"

#include <algorithm>

#include "search/gpu/attention/put_together.h"
#include "search/gpu/powers_of_two.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kThreads = 128;

// Scores that a query has room for; 0: their number is not known.
int64_t room(const Kernel& kernel, const AttentionParts& p) {
  const Expr& keys = kernel.find_buffer(p.powered())->dims.back();
  return is_const_int(keys) ? keys->ival : 0;
}

}  // namespace

bool has_one_key(const Kernel& kernel, const AttentionParts& p) {
  return most_keys_seen(kernel, p) <= 1 || sees_fewer(kernel, p, 1);
}
bool has_few_keys(const Kernel& kernel, const AttentionParts& p) {
  const int64_t keys = room(kernel, p);
  return keys > 0 && keys <= kFewKeys;
}

Result<Scheduled> few_keys_schedule(const Kernel& kernel, const AttentionParts& p) {
  if (sees_fewer(kernel, p, 1)) return unsupported("{} has one key, which a query sees or not", kernel.name);
  MoveList list(kernel, "few_keys.1");
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
  list.move("move_to_shared {} {}", p.powered(), row);
  for (const std::string& name : {p.maximum(), p.total(), p.inverse()}) list.move("move_to_register {} {}", name, row);
  list.move("move_to_register {} {}", p.products(), p.scores->iter);
  list.move("move_to_register {} {}", p.sums(), n);
  // Threads are bounded where they are fewer than the keys that are known to be seen.
  int64_t keys = floor_pow2(room(kernel, p));
  while (keys > 1 && sees_fewer(kernel, p, keys)) keys /= 2;
  const int64_t columns = std::clamp<int64_t>(p.columns->extent->ival, 1, kThreads);
  for (const Stmt* scope : {p.scores, p.powers}) list.move("deal_scope {0} {1} as {0}t,{0}i", scope->iter, keys);
  list.move("deal_scope {0} {1} as {0}t,{0}i", n, floor_pow2(columns));
  for (const Stmt* scope : {p.scores, p.powers, p.columns}) list.move("parallelize_block {}t", scope->iter);
  return list.finish();
}

}  // namespace lathe::search
