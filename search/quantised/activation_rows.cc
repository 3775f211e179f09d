// See activation_rows.h.
#include "search/quantised/activation_rows.h"

#include <string>
#include <vector>

#include "search/sketches/sketch.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kBeside = 4;                   // vectors or groups side by side
constexpr int64_t kLine = 64, kSameSets = 1024;  // bytes; rows of as many, or a multiple, share sets of the first cache

}  // namespace

void write_activation_rows(Script& s, const ActivationRows& of) {
  if (!s.ok()) return;
  const std::vector<const Stmt*> rows = scopes_with_role(s.kernel(), "quantise");
  if (rows.empty()) return;
  const Stmt scale = rows.back()->body[0], group = scale.body[4];
  const std::string outermost = rows.front()->iter, largest = scale.body[1].iter, bytes = group.body[1].iter;
  // Rows that a tile reads side by side would share sets of the first cache.
  if (of.depth % kSameSets == 0) {
    const Stmt& made = group.body[1].body[0];
    s.move("repeat_padding {} {} {}", made.target, made.index.size() - 1, kLine);
  }
  const auto vectors = [&](const std::string& scope, int64_t extent, int64_t beside) {
    const int64_t step = beside * of.lanes;
    std::string inner = scope;
    if (extent > step && beside > 1) {
      s.move("tile_scope {} {} tail={} as {}s,{}u", scope, step, extent % step == 0 ? "exact" : "mask", scope, scope);
      inner = scope + "u";
    }
    s.move("tile_scope {} {} tail={} as {}v,{}l", inner, of.lanes, extent % of.lanes == 0 ? "exact" : "mask", scope,
           scope);
    if (inner != scope || extent <= step) s.move("unroll_scope {}v", scope);
    s.move("vectorize_scope {}l", scope);
  };
  // What one group waits for, others do meanwhile.
  std::string around = scale.iter;
  const bool short_groups = of.scale <= kBeside * of.lanes;
  const int64_t scales = of.depth / of.scale, side_by_side = scales % kBeside == 0 ? kBeside : scales % 2 == 0 ? 2 : 1;
  if (short_groups && side_by_side > 1) {
    s.move("tile_scope {} {} tail=exact as {}s,{}u", around, side_by_side, around, around);
    around += "u";
  }
  s.move("move_to_register {} {}", scale.body[0].target, around);
  s.move("move_to_register {} {}", scale.body[2].target, around);
  s.move("move_to_register {} {}", group.body[0].target, group.iter);
  vectors(largest, of.scale, kBeside);
  vectors(bytes, of.group, kBeside);
  if (short_groups) s.move("unroll_scope {}", group.iter);
  if (around != scale.iter) s.move("unroll_scope {}", around);
  if (of.parallel) s.move("parallelize {}", outermost);
}

}  // namespace lathe::search
