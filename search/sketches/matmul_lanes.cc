// The matmul recipe where lanes are rows of A: for few rows by a B whose columns lie along K, in one piece each. A is
// transposed once; elements of B's columns are spread over the lanes where they lie, so that B is read in order and
// nothing of it is copied. The knob `rl`.
//
//   at = transpose(a)
//   nb block of columns { c = 0 | nx { cs = c | n0 { ct = cs | k: ct[n, m] += at[k, m] * b[n, k] (tensor) | cs = ct } |
//     c = cs } | y = epilogue(c) }
#include <algorithm>
#include <cmath>

#include "ir/analysis/analysis.h"
#include "search/sketches/matmul_sketch.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kMostVectors = 4;                 // of A's rows
constexpr int64_t kMostWaiting = int64_t{1} << 20;  // bytes of sums of a block of columns
constexpr int64_t kWide = 4;                        // bytes of an element that is spread without a conversion
constexpr int64_t kUsualBlock = 1024;               // columns
constexpr double kMovedSum = 2;                     // cycles of a sum that is cleared, transposed twice and stored
constexpr double kExposedStream = 0.1;              // of the stream of B, beside what its rows cost wherever they are

}  // namespace

bool MatmulSketch::has_row_lanes() const {
  if (panels_ != Panels::transposed || p_.swapped || integers_ || !rows_pack_ || k_ < 2) return false;
  if (b_bytes_ != kWide || !p_.prologues.empty()) return false;
  const bool fixed = is_const_int(p_.m->extent) && is_const_int(p_.n->extent) && is_const_int(p_.k->extent);
  return fixed && m_ > 1 && m_ <= kMostVectors * t_.lanes && scopes_with_role(problem_.kernel, "batch").empty();
}

// Vectors of A's rows are the columns of a panel, which there is one of.
Status MatmulSketch::accepts_row_lanes(const Setting& k) const {
  const Setting plain{.tile_rows = k.tile_rows,
                      .panel_columns = (m_ + t_.lanes - 1) / t_.lanes * t_.lanes,
                      .column_block = k.column_block,
                      .row_lanes = 1};
  if (!has_row_lanes()) return unsupported("rl 1: expected few rows, and columns that lie along K");
  if (k != plain) return unsupported("rl 1: expected a panel of all rows, without blocks of K, copies and prefetches");
  if (k.column_block < 2 || k.column_block > n_ || m_ * k.column_block * 4 > kMostWaiting)
    return unsupported("nb {}: n is {}, and sums of {} rows wait", k.column_block, n_, m_);
  const int64_t vectors = k.panel_columns / t_.lanes, own = vectors > 1 ? 1 + vectors : vectors,
                masks = t_.mask_registers == 0 && m_ % t_.lanes != 0;
  if (k.tile_rows < 2 || k.tile_rows > n_ || k.tile_rows * vectors + own + masks > t_.vector_registers)
    return unsupported("mr {}: registers, or a single column", k.tile_rows);
  return {};
}

// A and B have changed places: columns of B are rows of a tile, and all of A is one panel.
MatmulWork MatmulSketch::row_lanes_work(const Setting& k) const {
  MatmulWork w;
  w.m = static_cast<double>(n_);
  w.n = w.b_columns = static_cast<double>(m_);
  w.k = static_cast<double>(k_);
  w.mr = static_cast<double>(k.tile_rows);
  w.vectors = static_cast<double>(vectors(k));
  w.width = static_cast<double>(k.panel_columns);
  w.transposes = true;
  w.row_bytes = static_cast<double>(k_ * b_bytes_);
  w.a_element = static_cast<double>(b_bytes_);
  w.b_element = static_cast<double>(a_bytes_);
  w.threads = problem_.threads;
  return w;
}

MatmulCycles MatmulSketch::row_lanes_cycles(const MatmulWork& w) const {
  MatmulCycles out = matmul_cycles(w, t_);
  out.compute += w.m * w.n * kMovedSum;
  out.total += w.m * w.n * kMovedSum;
  if (!problem_.cold) return out;
  out.memory = w.m * w.k * w.a_element / t_.memory_rate;
  out.total = std::max(out.total, out.memory) + kExposedStream * std::min(out.total, out.memory);
  return out;
}

// Rows fill one or two vectors, and B comes from memory: measured on Zen 4, 16 rows in .75 of the time that panels of B
// take which each call transposes, 12 and 64 in as much.
bool MatmulSketch::row_lanes_pay() const {
  constexpr int64_t kFullVectors = 2;
  const int64_t all = (m_ + t_.lanes - 1) / t_.lanes * t_.lanes;
  return has_row_lanes() && problem_.cold && t_.vector_registers > 16 && 8 * m_ >= 7 * all &&
         m_ <= kFullVectors * t_.lanes && n_ * k_ * b_bytes_ > 2 * t_.l2_bytes;
}

// As many columns of B as ways of L1 keep where they share its sets, but one, which is for the panel.
MatmulSketch::Setting MatmulSketch::standard_row_lanes() const {
  const int64_t vectors = (m_ + t_.lanes - 1) / t_.lanes, own = vectors > 1 ? 1 + vectors : vectors,
                registers = t_.vector_registers - own - (t_.mask_registers == 0);
  Setting k{.tile_rows = std::clamp<int64_t>(t_.l1_ways - 1, 1, std::max<int64_t>(registers / vectors, 1)),
            .panel_columns = vectors * t_.lanes,
            .row_lanes = 1};
  for (const int64_t block : values_of(*this, &Setting::column_block)) {
    if (block <= kUsualBlock && block * problem_.threads <= n_) k.column_block = block;
  }
  return k;
}

void MatmulSketch::write_row_lanes(Script& s, const Setting& k) const {
  const Kernel& kernel = problem_.kernel;
  const std::string m = p_.m->iter, n = p_.n->iter, depth = p_.k->iter, a = (*p_.a)->name, sums = p_.product->target;
  const int64_t rows = k.tile_rows, block = (k.column_block + rows - 1) / rows * rows;
  const char* tail = tail_of(p_.m->extent, t_.lanes, kernel);
  s.move("tile_scope {} {} tail={} as nb,ni", n, block, tail_of(p_.n->extent, block, kernel));
  s.move("swap_scopes {} nb", m);
  s.move("split_scope ni after=0 as nj");
  s.move("split_scope {} after=0 as mj", m);
  s.move("split_scope nj after=0 as nz");
  s.move("split_scope mj after=0 as mz");
  const Stmt* columns = find_scope(s.kernel(), "nj");
  if (!s.ok() || columns == nullptr) return;
  const Expr extent = columns->extent;
  s.move("tile_scope nj {} tail={} as nx,nr", block, tail_of(extent, block, s.kernel()));
  s.move("swap_scopes mj nx");
  s.move("tile_scope nr {} tail={} as n0,n1", rows, tail_of(extent, rows, s.kernel()));
  for (const char* outer : {"n0", "n1"}) s.move("swap_scopes mj {}", outer);
  s.move("swap_scopes mj {}", depth);
  s.move("swap_scopes n1 {}", depth);
  s.move("create_temporary {} at at=root", a);
  s.move("swap_dims at 0 1");
  s.move("tensorize at_0 transpose");
  s.move("move_to_stack {} nb", sums);
  s.move("create_temporary {} cs at=nx mode=accumulate", sums);
  s.move("move_to_stack cs nx");
  s.move("swap_dims cs 0 1");
  s.move("create_temporary cs ct at=n0 mode=accumulate");
  s.move("move_to_register ct n0");
  const auto lanes_of = [&](const std::string& lanes, const std::string& unrolled) {
    s.move("unroll_scope {}", unrolled);
    vectorize_tile(s, lanes, 0, 1, t_.lanes, tail);
  };
  for (const char* copy : {"ct_0", "ct_0b"}) s.move("swap_scopes {0} ct_1{1}", copy, copy[4] == 'b' ? "b" : "");
  lanes_of("ct_0", "ct_1");
  lanes_of("ct_0b", "ct_1b");
  lanes_of("mj", "n1");
  for (const char* copy : {"cs_0", "cs_0b"}) s.move("tensorize {} transpose", copy);
  s.move("tensorize {} mma", depth);
  for (const char* pass : {"ni", "nz"}) {
    const Stmt* scope = find_scope(s.kernel(), pass);
    if (!s.ok() || scope == nullptr) return;
    const Stmt copy = *scope;
    vectorize_columns(s, copy, 1, t_.lanes);
  }
  s.move("parallelize nb");
}

}  // namespace lathe::search
