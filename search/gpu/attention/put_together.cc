// See put_together.h.
#include "search/gpu/attention/put_together.h"

#include <algorithm>

#include "search/gpu/powers_of_two.h"

namespace lathe::search {

namespace {

constexpr int64_t kWarp = 32, kMostThreads = 128;
constexpr int64_t kPartsAtOnce = 16;  // loads of a thread that are on their way together

}  // namespace

void put_together(MoveList& list, const ir::Kernel& kernel, const AttentionParts& p,
                  const std::vector<std::string>& scopes, const std::string& row, int64_t part) {
  const std::string n = p.columns->iter + "_m";
  for (const std::string& t : scopes) list.move("parallelize_grid {}_m", t);
  for (const std::string& name : {p.maximum() + "_all", p.total() + "_all", p.inverse()})
    list.move("move_to_register {} {}_m", name, row);
  for (const char* all : {"kp_m", "kp_w"}) {
    list.move("tile_scope {0} {1} tail=mask as {0}i,{0}t", all, kWarp);
    list.move("parallelize_block {}t", all);
  }
  list.move("deal_scope {0} {1} as {0}t,{0}i", n, std::min(floor_pow2(p.columns->extent->ival), kMostThreads));
  list.move("move_to_register {}_all {}i", p.sums(), n);
  const int64_t parts = (most_keys_seen(kernel, p) + part - 1) / part;
  const int64_t at_once = std::min(floor_pow2(parts), kPartsAtOnce);
  // Where their number is known, none of these stands under a condition.
  const bool known = list.is_constant("kp_s");
  list.move("tile_scope kp_s {} tail={} as kp_so,kp_su{}", at_once, known ? "peel" : "mask", known ? ",kp_sr" : "");
  list.move("unroll_scope kp_su");
  list.move("parallelize_block {}t", n);
}

void clear_rows(MoveList& list, const AttentionParts& p) {
  const std::string &rows = p.clear[0]->iter, &heads = p.clear[1]->iter, &line = p.clear[2]->iter;
  list.move("deal_scope {} {} as zt,zi", line, kMostThreads);
  list.move("parallelize_grid {}", rows);
  list.move("parallelize_grid {}", heads);
  list.move("parallelize_block zt");
}

}  // namespace lathe::search
