// See thread_schedule.h.
#include "search/gpu/thread_schedule.h"

#include <algorithm>
#include <numeric>

#include "ir/analysis/analysis.h"
#include "ir/analysis/dependence.h"
#include "ir/core/names.h"
#include "search/gpu/powers_of_two.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kThreads = 64, kLeast = 8, kWarp = 32;
constexpr int64_t kBytes = 16;  // of an access

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

// for k < K: t += i32(x[.., k]): exact in any order.
bool sums_neighbours(const std::vector<Stmt>& body) {
  if (body.size() != 2 || body[0].kind != Stmt::Kind::assign || body[1].kind != Stmt::Kind::scope ||
      body[1].body.size() != 1)
    return false;
  const Stmt& s = body[1].body[0];
  if (s.kind != Stmt::Kind::assign || s.op != AssignOp::add || s.value->type != DType::i32 ||
      s.value->op != Op::k_cast || s.target != body[0].target)
    return false;
  const Expr& x = s.value->args[0];
  return x->op == Op::k_load && !x->args.empty() && x->args.back()->op == Op::k_iter &&
         x->args.back()->name == body[1].iter;
}

// A warp has a row, or what a short row has work for.
void share_out_row(MoveList& list, const Kernel& kernel, const std::vector<const Stmt*>& nest) {
  const std::string &row = nest.back()->iter, &k = nest.back()->body[1].iter, &sum = nest.back()->body[0].target;
  const int64_t most = std::clamp<int64_t>(interval(nest.back()->body[1].extent, Ranges(kernel)).hi, 1, kBytes * kWarp);
  const int64_t vector = std::min(floor_pow2(most), kBytes), lanes = floor_pow2((most + vector - 1) / vector);
  list.move("create_temporary {0} {0}_w at={1} mode=accumulate", sum, row);
  list.move("move_to_register {}_w {}", sum, row);
  list.move("tile_scope {0} {1} tail=mask as {0}c,{0}v", k, vector);
  list.move("deal_scope {0}c {1} as {0}l,{0}t", k, lanes);
  for (const Stmt* s : nest) list.move("parallelize_grid {}", s->iter);
  list.move("parallelize_block {}l", k);
  list.move("vectorize_scope {}v", k);
}

Status share_out(MoveList& list, const Kernel& kernel, const Stmt& outermost) {
  std::vector<const Stmt*> nest;
  for (const Stmt* s = &outermost; s->kind == Stmt::Kind::scope; s = &s->body.front()) {
    nest.push_back(s);
    if (s->body.size() != 1) break;
  }
  if (nest.empty()) return unsupported("{} has no rows", kernel.name);
  if (sums_neighbours(nest.back()->body)) {
    const std::string& sum = nest.back()->body[0].target;
    if (kernel.find_buffer(sum)->place == Place::heap && only_user(kernel, sum) == nullptr) {  // for later nests
      share_out_row(list, kernel, nest);
      return {};
    }
  }
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

Status share_out_before(MoveList& list, const Kernel& kernel) {
  for (size_t i = 0; i + 1 < kernel.body.size(); ++i) LATHE_RETURN_IF_ERROR(share_out(list, kernel, kernel.body[i]));
  return {};
}

Result<Scheduled> thread_schedule(const GeneralKernel& rows, const SymbolValues&) {
  MoveList list(rows.kernel, "threads.1");
  for (const Stmt& nest : rows.kernel.body) LATHE_RETURN_IF_ERROR(share_out(list, rows.kernel, nest));
  return list.finish();
}

}  // namespace lathe::search
