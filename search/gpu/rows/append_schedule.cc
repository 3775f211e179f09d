// See append_schedule.h.
#include "search/gpu/rows/append_schedule.h"

#include <algorithm>
#include <bit>

#include "ir/analysis/analysis.h"
#include "search/gpu/move_list.h"
#include "search/gpu/vector_width.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kBlock = 256, kWarp = 32;
constexpr int64_t kMostTurns = 8;  // vectors of a lane, where a warp is enough

struct Appended {
  const Stmt *head = nullptr, *token = nullptr, *slot = nullptr;
  std::vector<const Stmt*> columns;  // of a head
};

Result<Appended> appended(const Kernel& k) {
  const auto refuse = [&] { return unsupported("{} appends to no cache", k.name); };
  std::vector<const Stmt*> nest;
  for (const std::vector<Stmt>* body = &k.body; body->size() == 1 && body->front().kind == Stmt::Kind::scope;
       body = &body->front().body) {
    nest.push_back(&body->front());
    if (body->front().role == "slot") break;
  }
  if (nest.size() != 3 || nest[2]->role != "slot") return refuse();
  Appended out{nest[0], nest[1], nest[2], {}};
  for (const Stmt& s : out.slot->body) {
    if (s.kind == Stmt::Kind::assign) continue;
    if (!std::all_of(s.body.begin(), s.body.end(), [](const Stmt& b) { return b.kind == Stmt::Kind::assign; }))
      return refuse();
    out.columns.push_back(&s);
  }
  return out;
}

int64_t ceil_pow2(int64_t n) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1)))); }

}  // namespace

Result<Scheduled> append_schedule(const GeneralKernel& general, const SymbolValues& sizes) {
  const Kernel& kernel = general.kernel;
  LATHE_ASSIGN(const Appended a, appended(kernel));
  const auto hinted = [&](const Stmt& s) { return std::max<int64_t>(evaluate(s.extent, sizes).value_or(kBlock), 1); };
  int64_t width = 1;
  for (const Stmt* c : a.columns) width = std::max(width, hinted(*c));
  // Of what is read; elements of a cache of narrower ones are stored fewer bytes at a time.
  const int64_t vector = vector_width(kernel.buffers.front().type, width), vectors = (width + vector - 1) / vector;
  const int64_t lanes = std::min(std::max(std::min(ceil_pow2(vectors), kWarp), ceil_pow2(vectors) / kMostTurns), kBlock);
  const int64_t heads = std::min(ceil_pow2(hinted(*a.head)), kBlock / lanes);
  const std::string &h = a.head->iter, &u = a.slot->iter;
  MoveList list(kernel, "append.1");
  list.knob("threads", lanes);
  list.knob("heads", heads);
  for (const Buffer& b : kernel.buffers) {
    if (!is_param(b.place)) list.move("move_to_register {} {}", b.name, u);
  }
  list.move("tile_scope {0} {1} tail=mask as {0}b,{0}t", h, heads);
  list.move("parallelize_grid {}b", h);
  list.move("parallelize_block {}t", h);
  for (const Stmt* c : a.columns) {
    list.move("tile_scope {0} {1} tail=mask as {0}_c,{0}_v", c->iter, vector);
    list.move("deal_scope {0}_c {1} as {0}_t,{0}_i", c->iter, lanes);
    list.move("parallelize_block {}_t", c->iter);
    list.move("unroll_scope {}_i", c->iter);
    list.move("vectorize_scope {}_v", c->iter);
  }
  return list.finish();
}

}  // namespace lathe::search
