// See tile_counts.h.
#include "jit/cuda/compile/tile_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace lathe::jit {

namespace {

using Kind = DeviceStmt::Kind;

void add(const std::vector<DeviceStmt>& list, int64_t times, TileCounts& to) {
  for (const DeviceStmt& s : list) {
    int64_t inside = times;
    if (s.kind == Kind::loop && s.unrolled > 0)
      inside *= ir::is_const_int(s.integer) ? std::clamp<int64_t>(s.integer->ival, 0, s.unrolled) : s.unrolled;
    if (s.kind == Kind::box) to.box_copies += times;
    if (s.kind == Kind::warp) {
      const WarpOpRow& row = warp_op(s.warp);
      (row.goes_on() ? to.group_mma : row.moves() ? to.matrix_loads : to.mma) += times;
    }
    add(s.body, inside, to);
    add(s.otherwise, inside, to);
  }
}

}  // namespace

TileCounts tile_counts(const DeviceProgram& program) {
  TileCounts out;
  add(program.body, 1, out);
  return out;
}

std::string missed_tiles(const TileCounts& wanted, const CubinInfo& made) {
  if (made.instructions == 0) return {};
  for (const auto& [name, there, needed] : {std::tuple{"HMMA or IMMA", made.mma, wanted.mma},
                                            {"LDSM", made.matrix_loads, wanted.matrix_loads},
                                            {"HGMMA", made.group_mma, wanted.group_mma},
                                            {"UTMALDG", made.box_copies, wanted.box_copies}}) {
    if (there < needed) return fmt::format("{} of {} {}", there, needed, name);
  }
  return {};
}

}  // namespace lathe::jit
