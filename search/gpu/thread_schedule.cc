// See thread_schedule.h.
#include "search/gpu/thread_schedule.h"

#include <algorithm>
#include <numeric>

#include "ir/analysis/dependence.h"
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

// What it holds is used in one nest; null: in several, or in none.
const Stmt* only_user(const Kernel& kernel, const std::string& buffer) {
  const Stmt* out = nullptr;
  for (const Stmt& nest : kernel.body) {
    if (collect_accesses({nest}, {}, &buffer).empty()) continue;
    if (out != nullptr) return nullptr;
    out = &nest;
  }
  return out;
}

Status share_out(MoveList& list, const Kernel& kernel, const Stmt& outermost) {
  std::vector<const Stmt*> nest;
  for (const Stmt* s = &outermost; s->kind == Stmt::Kind::scope; s = &s->body.front()) {
    nest.push_back(s);
    if (s->body.size() != 1) break;
  }
  if (nest.empty()) return unsupported("{} has no rows", kernel.name);
  const std::string& b = nest.back()->iter;
  for (const Buffer& t : kernel.buffers) {
    if (is_param(t.place) || only_user(kernel, t.name) != &outermost) continue;
    if (t.dims.size() > nest.size()) return unsupported("{} holds rows of {}", t.name, kernel.name);
    list.move("move_to_register {} {}", t.name, b);
  }
  list.move("tile_scope {0} {1} tail=mask as {0}b,{0}t", b, threads_for(nest.back()->extent));
  for (size_t i = 0; i + 1 < nest.size(); ++i) list.move("parallelize_grid {}", nest[i]->iter);
  list.move("parallelize_grid {}b", b);
  list.move("parallelize_block {}t", b);
  return {};
}

}  // namespace

Result<Scheduled> thread_schedule(const GeneralKernel& rows, const SymbolValues&) {
  MoveList list(rows.kernel, "threads.1");
  for (const Stmt& nest : rows.kernel.body) LATHE_RETURN_IF_ERROR(share_out(list, rows.kernel, nest));
  return list.finish();
}

}  // namespace lathe::search
