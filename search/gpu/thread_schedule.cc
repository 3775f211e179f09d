// See thread_schedule.h.
#include "search/gpu/thread_schedule.h"

#include <algorithm>
#include <numeric>

#include "ir/core/names.h"
#include "search/gpu/move_list.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kThreads = 64, kLeast = 8;

// Whole blocks, where the rows have a number that is known: what divides by it is proven to stay inside.
int64_t threads_for(const Expr& extent) {
  const int64_t divisor = is_const_int(extent) ? std::gcd(std::max<int64_t>(extent->ival, 1), kThreads) : kThreads;
  return divisor < kLeast ? kThreads : divisor;
}

}  // namespace

Result<Scheduled> thread_schedule(const GeneralKernel& rows, const SymbolValues&) {
  std::vector<const Stmt*> nest;
  for (const std::vector<Stmt>* body = &rows.kernel.body; body->size() == 1 && body->front().kind == Stmt::Kind::scope;
       body = &body->front().body)
    nest.push_back(&body->front());
  if (nest.empty()) return unsupported("{} has no rows", rows.kernel.name);
  const std::string& b = nest.back()->iter;
  MoveList list(rows.kernel, "threads.1");
  for (const Buffer& t : rows.kernel.buffers) {
    if (is_param(t.place)) continue;
    if (t.dims.size() > nest.size()) return unsupported("{} holds rows of {}", t.name, rows.kernel.name);
    list.move("move_to_register {} {}", t.name, b);
  }
  list.move("tile_scope {0} {1} tail=mask as {0}b,{0}t", b, threads_for(nest.back()->extent));
  for (size_t i = 0; i + 1 < nest.size(); ++i) list.move("parallelize_grid {}", nest[i]->iter);
  list.move("parallelize_grid {}b", b);
  list.move("parallelize_block {}t", b);
  return list.finish();
}

}  // namespace lathe::search
