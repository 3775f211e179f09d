// See matmul_panels.h.
#include "search/matmul_panels.h"

#include <algorithm>

#include "ir/analysis.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

const char* tail_of(const Expr& extent, int64_t tile, const Kernel& kernel) {
  return proves_divisible(extent, tile, Ranges(kernel)) ? "exact" : "mask";
}

void vectorize_tile(Script& s, const std::string& n, int64_t nr, int64_t panels, int64_t lanes, const char* tail) {
  std::string columns = n;
  if (panels > 1) {
    s.move("tile_scope {} {} tail=exact as {}s,{}p", n, nr, n, n);
    s.move("unroll_scope {}s", n);
    columns = n + "p";
  }
  s.move("tile_scope {} {} tail={} as {}v,{}l", columns, lanes, tail, n, n);
  s.move("unroll_scope {}v", n);
  s.move("vectorize_scope {}l", n);
}

void pack_rows(Script& s, const std::string& a, const std::string& at, int64_t mr, const char* tail) {
  s.move("create_temporary {} ap at={}", a, at);
  if (at != "root") s.move("move_to_stack ap {}", at);  // before its layout: a temporary that shrinks lies plainly
  s.move("tile_buffer ap 0 {}", mr);
  s.move("swap_dims ap 1 2");
  s.move("tile_scope ap_0 {} tail={} as apt,apr", mr, tail);
  s.move("tensorize apr transpose");
  if (at == "root") s.move("parallelize apt");
}

void pack_panels(Script& s, const std::string& b, int b_n, int64_t nr) {
  s.move("tile_buffer {} {} {}", b, b_n, nr);
  for (const auto part : {LayoutDim::Part::inner, LayoutDim::Part::outer}) {
    const Buffer* buffer = s.kernel().find_buffer(b);
    const auto at = std::find_if(buffer->layout.begin(), buffer->layout.end(), [&](const LayoutDim& d) { return d.part == part; });
    const size_t from = static_cast<size_t>(at - buffer->layout.begin());
    const size_t to = part == LayoutDim::Part::inner ? buffer->layout.size() - 1 : 0;
    if (from != to && at != buffer->layout.end()) s.move("swap_dims {} {} {}", b, from, to);
  }
}

void transpose_panel(Script& s, const std::string& b, bool n_first) {
  s.move("create_temporary {} bt at=n0", b);
  s.move("move_to_stack bt n0");
  if (n_first) s.move("swap_dims bt 0 1");
  s.move("tensorize bt_0 transpose");
}

void copy_panel(Script& s, const std::string& b, int64_t lanes, const char* tail) {
  s.move("create_temporary {} bp at=n0", b);
  s.move("move_to_stack bp n0");
  vectorize_tile(s, "bp_1", 0, 1, lanes, tail);
}

}  // namespace lathe::search
