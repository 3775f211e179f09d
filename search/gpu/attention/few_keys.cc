// See few_keys.h.
#include "search/gpu/attention/few_keys.h"

#include <algorithm>
#include <bit>

#include "search/gpu/attention/put_together.h"
#include "search/gpu/powers_of_two.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kThreads = 128;
constexpr int64_t kMostKeys = 8;  // blocks of fewer keys have no parts to add up

const Expr& room(const Kernel& kernel, const AttentionParts& p) { return kernel.find_buffer(p.powered())->dims.back(); }

}  // namespace

int64_t few_keys(const Kernel& kernel, const AttentionParts& p) {
  if (most_keys_seen(kernel, p) <= 1 || sees_fewer(kernel, p, 1)) return 1;
  const Expr& keys = room(kernel, p);
  if (!is_const_int(keys) || keys->ival > kMostKeys) return 0;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(keys->ival)));
}

Result<Scheduled> few_keys_schedule(const Kernel& kernel, const AttentionParts& p, int64_t keys) {
  MoveList list(kernel, "few_keys.1");
  const std::string &i = p.row->iter, &n = p.columns->iter;
  // One key at most by its loops alone: each thread goes through it.
  const bool by_all = most_keys_seen(kernel, p) <= 1;
  const bool anywhere = !by_all && !is_const_int(room(kernel, p));  // one key, and room for any number
  const auto bound = [&](const Stmt* scope) { list.move("bound_scope {0} size={1} as {0}t,{0}i", scope->iter, keys); };
  for (const AttentionParts::Copy& c : p.copies) list.move("inline_temporary {}", c.one().target);
  if (anywhere) {
    for (const Stmt* scope : {p.scores, p.powers, p.values}) bound(scope);
    list.move("reuse_dims {} {}", p.powered(), kernel.find_buffer(p.powered())->dims.size() - 1);
  }
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
  list.move("{} {} {}", by_all ? "move_to_register" : "move_to_shared", p.powered(), row);
  for (const std::string& name : {p.products(), p.maximum(), p.total(), p.inverse()}) {
    const bool of_key = !by_all && name == p.products();
    if (!of_key) list.move("move_to_register {} {}", name, row);
  }
  const int64_t columns = std::clamp<int64_t>(p.columns->extent->ival, 1, kThreads);
  list.move("deal_scope {0} {1} as {0}t,{0}i", n, floor_pow2(columns));
  list.move("move_to_register {} {}i", p.sums(), n);
  for (const Stmt* scope : {p.scores, p.powers}) {
    if (!by_all && !anywhere) bound(scope);
    if (!by_all) list.move("parallelize_block {}t", scope->iter);
  }
  if (!by_all) list.move("move_to_register {} {}t", p.products(), p.scores->iter);
  list.move("parallelize_block {}t", n);
  return list.finish();
}

}  // namespace lathe::search
