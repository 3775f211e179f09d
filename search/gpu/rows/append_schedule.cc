// See append_schedule.h.
#include "search/gpu/rows/append_schedule.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "search/gpu/move_list.h"
#include "search/gpu/powers_of_two.h"
#include "search/gpu/vector_width.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kBlock = 256, kWarp = 32;
constexpr int64_t kMostTurns = 8;  // vectors of a lane, where a warp is enough
constexpr int64_t kFewTokens = 2;  // which take turns sooner than a second launch begins
constexpr const char* kRecipe = "append.1";
constexpr const char* kTogether = "together";  // tokens

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

// Which tokens are the last with their slots: a warp looks through those behind each. most: tokens.
void find_last(MoveList& list, int64_t most) {
  list.move("move_to_register later each");
  list.move("tile_scope each {} tail=mask as each_b,each_t", kBlock / kWarp);
  list.move("parallelize_grid each_b");
  list.move("parallelize_block each_t");
  list.move("deal_scope behind {} as behind_t,behind_i", floor_pow2(std::min(most - 1, kWarp)));
  list.move("parallelize_block behind_t");
}

}  // namespace

bool appends(const GeneralKernel& general) { return appended(general.kernel).ok(); }

Result<Scheduled> append_schedule(const GeneralKernel& general, const SymbolValues& sizes,
                                  std::optional<bool> together) {
  const Kernel& kernel = general.kernel;
  LATHE_ASSIGN(const Appended a, appended(kernel));
  const auto hinted = [&](const Stmt& s) { return std::max<int64_t>(evaluate(s.extent, sizes).value_or(kBlock), 1); };
  int64_t width = 1;
  for (const Stmt* c : a.columns) width = std::max(width, hinted(*c));
  // Of what is read; elements of a cache of narrower ones are stored fewer bytes at a time.
  const int64_t vector = vector_width(kernel.buffers.front().type, width), vectors = (width + vector - 1) / vector;
  const int64_t all = floor_pow2(vectors), lanes = std::min(std::max(std::min(all, kWarp), all / kMostTurns), kBlock);
  const int64_t heads = std::min(ceil_pow2(hinted(*a.head)), kBlock / lanes);
  const std::string &h = a.head->iter, &t = a.token->iter, &u = a.slot->iter;
  MoveList list(kernel, kRecipe);
  list.knob("threads", lanes);
  list.knob("heads", heads);
  if (together.value_or(hinted(*a.token) > kFewTokens)) {
    list.knob(kTogether, 1);
    list.move("skip_replaced {} as later,last,each,behind,once", t);
    list.move("swap_scopes {} {}", h, t);
    list.move("parallelize_grid {}", t);  // while rows are named by integers: of a cache of one row, they are simpler
    find_last(list, interval(a.token->extent, Ranges(kernel)).hi);
  }
  for (const Buffer& b : kernel.buffers) {
    if (!is_param(b.place)) list.move("move_to_register {} {}", b.name, u);
  }
  list.move("tile_scope {0} {1} tail=mask as {0}b,{0}t", h, heads);
  list.move("parallelize_grid {}b", h);
  list.move("parallelize_block {}t", h);
  for (const Stmt* c : a.columns) {
    const int64_t along = std::min(vector, floor_pow2(hinted(*c)));
    list.move("tile_scope {0} {1} tail=mask as {0}_c,{0}_v", c->iter, along);
    list.move("deal_scope {0}_c {1} as {0}_t,{0}_i", c->iter,
              floor_pow2(std::min(lanes, (hinted(*c) + along - 1) / along)));
    list.move("parallelize_block {}_t", c->iter);
    list.move("unroll_scope {}_i", c->iter);
    list.move("vectorize_scope {}_v", c->iter);
  }
  return list.finish();
}

}  // namespace lathe::search
