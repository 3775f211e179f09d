// The moves of the matmul recipe. See matmul_sketch.h.
#include <algorithm>

#include "ir/analysis/analysis.h"
#include "search/sketches/generic_rules.h"
#include "search/sketches/matmul_sketch.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

// A as [tile][k][row], in scratch of the thread that owns the block `at`, or of all if A is packed before everything
// else. The copy's scopes are ap_0 (rows) and ap_1 (k).
void pack_rows(Script& s, const std::string& a, const std::string& at, int64_t mr, const char* tail) {
  s.move("create_temporary {} ap at={}", a, at);
  if (at != "root") s.move("move_to_stack ap {}", at);  // before its layout: a temporary that shrinks lies plainly
  s.move("tile_buffer ap 0 {}", mr);
  s.move("swap_dims ap 1 2");
  s.move("tile_scope ap_0 {} tail={} as apt,apr", mr, tail);
  s.move("tensorize apr transpose");
  if (at == "root") s.move("parallelize apt");
}

// The layout [.., n / nr, k, n % nr]; of steps of several products, [.., n / nr, k / step, n % nr, k % step].
void pack_panels(Script& s, const std::string& b, int b_n, int b_k, int64_t nr, int64_t step) {
  s.move("tile_buffer {} {} {}", b, b_n, nr);
  for (const auto part : {LayoutDim::Part::inner, LayoutDim::Part::outer}) {
    const Buffer* buffer = s.kernel().find_buffer(b);
    const auto at =
        std::find_if(buffer->layout.begin(), buffer->layout.end(), [&](const LayoutDim& d) { return d.part == part; });
    const size_t from = static_cast<size_t>(at - buffer->layout.begin());
    const size_t to = part == LayoutDim::Part::inner ? buffer->layout.size() - 1 : buffer->dims.size() - 2;
    if (from != to && at != buffer->layout.end()) s.move("swap_dims {} {} {}", b, from, to);
  }
  if (step == 1) return;
  s.move("tile_buffer {} {} {}", b, b_k, step);
  const size_t dims = s.kernel().find_buffer(b)->layout.size();
  s.move("swap_dims {} {} {}", b, dims - 2, dims - 1);
}

// A panel of B that lies with unit-stride k is transposed into scratch before the tiles that use it. The copy's scopes
// are bt_0 and bt_1, in the order of B's dimensions.
void transpose_panel(Script& s, const std::string& b, const char* at, bool n_first) {
  s.move("create_temporary {} bt at={}", b, at);
  s.move("move_to_stack bt {}", at);
  if (n_first) s.move("swap_dims bt 0 1");
  s.move("tensorize bt_0 transpose");
}

// A panel of B that lies row-major, copied together before the tiles that use it. The copy's scopes are bp_0 and bp_1,
// in the order of B's dimensions: k and n.
void copy_panel(Script& s, const std::string& b, const char* at) {
  s.move("create_temporary {} bp at={}", b, at);
  s.move("move_to_stack bp {}", at);
}

// Of parts of K.
constexpr int64_t kMostPartRows = 32, kLeastPartDepth = 1024;
constexpr int64_t kMostWaiting = int64_t{1} << 20;  // bytes of sums that wait to be added
constexpr int64_t kFewSums = 6;                     // rows of sums that ways of L1 hold wherever they lie
constexpr double kStart = 4000;                     // cycles of a phase that threads begin and end together
constexpr double kAdd = 4;                          // of a vector of sums, to be cleared, fetched and added

// The name of the scope that the nest of `outer` ends in.
std::string innermost(const Kernel& kernel, const std::string& outer) {
  const Stmt* at = find_scope(kernel, outer);
  while (at != nullptr && at->body.size() == 1 && at->body[0].kind == Stmt::Kind::scope) at = &at->body[0];
  return at == nullptr ? outer : at->iter;
}

}  // namespace

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

bool MatmulSketch::shares_panels() const {
  return problem_.kernel.family == "experts" && search::shares_panels(*p_.m, problem_);
}

Status MatmulSketch::write(Script& s, const Setting& k) const {
  const Kernel& kernel = problem_.kernel;
  LATHE_RETURN_IF_ERROR(is_setting(k));
  write_prologues(s, p_.prologues, problem_, t_.lanes);
  write_operand_sums(s);
  if (k.row_lanes != 0) {
    write_row_lanes(s, k);
    return {};
  }
  if (p_.swapped) s.move("swap_scopes {} {}", p_.n->iter, p_.m->iter);
  const int64_t row_block = k.block_rows();
  const bool parts = k.depth_parts > 1;
  if (parts) split_depth(s, k);
  const std::string m = parts ? kPartRows : p_.m->iter;
  const char* n_tail = tail_of(columns(k), k.tile_columns(), kernel);

  const std::vector<const Stmt*> batches = scopes_with_role(kernel, "batch");
  const std::string n = k.depth_sums != 0 ? split_dots(s, p_, dots_) : parts ? kPartColumns : p_.n->iter;
  if (only_dots(k)) {
    schedule_dots(s, p_, dots_, k.tile_rows > 1 ? k.tile_rows : most_dot_rows(dots_, t_), row_block, k.prefetch, t_);
    if (!batches.empty() || row_block != 0) s.move("parallelize {}", batches.empty() ? "mm" : batches.front()->iter);
    return {};
  }
  if (row_block != 0)
    s.move("tile_scope {} {} tail={} as mm,mi", m, row_block, tail_of(p_.m->extent, row_block, kernel));
  const char* row_tail = row_block != 0 ? "mask" : tail_of(p_.m->extent, k.tile_rows, kernel);
  s.move("tile_scope {} {} tail={} as m0,m1", row_block != 0 ? "mi" : m, k.tile_rows, row_tail);
  std::string columns_of = n;
  if (k.column_block != 0) {
    s.move("tile_scope {} {} tail={} as nb,ni", n, k.column_block, tail_of(columns(k), k.column_block, kernel));
    columns_of = "ni";
    if (const Stmt* block = find_scope(s.kernel(), "ni")) n_tail = tail_of(block->extent, k.tile_columns(), s.kernel());
  }
  s.move("tile_scope {} {} tail={} as n0,n1", columns_of, k.tile_columns(), n_tail);
  const int64_t depth = k.function_pass != 0 ? k_ : matmul_block_depth(k.depth_block, k_);
  std::string steps = parts ? kPartDepth : p_.k->iter;
  if (depth != 0) {
    s.move("tile_scope {} {} tail={} as k0,k1", steps, depth, tail_of(p_.k->extent, depth, kernel));
    steps = "k1";
  }
  std::vector<std::string> around = {steps};
  if (k.dots == kSteps) {
    s.move("tile_scope {} {} tail=exact as k2,kp", steps, step_);
    around = {"k2", "kp"};
  } else if (k.dots == kTiles) {
    s.move("tile_scope {} {} tail=exact as k2,kq", steps, tile_depth());
    s.move("tile_scope kq {} tail=exact as kr,kp", step_);
    around = {"k2", "kr", "kp"};
  }
  steps = around.front();
  if (depth != 0) around.insert(around.begin(), "k0");
  for (const char* outer : {"nb", "n0"}) {
    if (outer == std::string("nb") && k.column_block == 0) continue;
    s.move("swap_scopes m1 {}", outer);
    s.move("swap_scopes m0 {}", outer);
  }
  for (size_t h = p_.sharing.size(); k.share_heads != 0 && h > 0; --h)
    s.move("swap_scopes {} n0", p_.sharing[h - 1]->iter);
  const bool few = shares_panels();
  for (size_t h = batches.size(); few && h > 0; --h) s.move("swap_scopes {} n0", batches[h - 1]->iter);
  for (const char* scope : {"n1", "m1"}) {
    if (parts) continue;  // a sum alone
    s.move("split_scope {} after=0 as {}b", scope, scope);
    s.move("split_scope {}b after=0 as {}c", scope, scope);
  }
  for (const std::string& scope : around) {
    s.move("swap_scopes {} {}", parts ? "n1" : "n1b", scope);
    s.move("swap_scopes {} {}", parts ? "m1" : "m1b", scope);
  }
  if (k.dots == kTiles) s.move("unroll_scope kr");
  if (k.dots != kSingle) s.move("unroll_scope kp");
  if (k.column_block == 0) write_panels(s, k, "n0", n_tail);
  const std::vector<const Stmt*> batch = scopes_with_role(s.kernel(), "batch");
  const bool all_share = k.share_heads != 0 && p_.sharing.size() == batch.size();
  const std::string outermost = !batch.empty() && !all_share && !few ? batch.front()->iter
                                : row_block != 0                     ? "mm"
                                : k.column_block != 0                ? "nb"
                                                                     : "n0";
  // Rows of groups are not proven to lie apart; where there are threads, they share out panels.
  const bool groups = problem_.kernel.family == "experts" && !batch.empty() && outermost == batch.front()->iter;
  if (k.pack_rows != 0) {
    const std::string at = row_block != 0 ? "mm" : batch.empty() ? "root" : batch.back()->iter;
    pack_rows(s, (*p_.a)->name, at, k.tile_rows, row_tail);
  }
  if (k.dots == kTiles) {
    write_whole_tile(s, k);
  } else if (parts) {
    write_sums(s, k, "m0", steps, n_tail);
  } else if (depth == 0) {
    write_tile(s, k, n_tail);
  } else {
    write_blocked_tile(s, k, steps, n_tail);
  }
  if (k.copy_panels == kCopyFirst) copy_with_first(s, steps, n_tail);
  if (!is_const_int(p_.k->extent, 1))  // of sums with one term nothing is left
    s.move("tensorize {} {}", steps,
           k.dots == kTiles    ? (integers_ ? "tile_u8s8" : "tile_bf16")
           : k.dots == kSingle ? "mma"
           : integers_         ? "mma_u8s8"
                               : "dot2_bf16");
  const std::string b = (*p_.b)->name;
  const int64_t row = k.panel_columns * b_bytes_,
                depth_step = k.dots == kTiles   ? tile_depth()
                             : k.dots == kSteps ? step_
                                                : 1,
                lines = 4 * depth_step * row / 64;  // of B per four steps
  const bool first = k.copy_panels == kCopyFirst;
  // Lines on their way to L1 keep rows of A, which tiles load from L2, waiting.
  const auto prefetch = [&](const std::string& what) {
    k.dots == kTiles ? s.move("prefetch {} to=l2", what) : s.prefetch("{}", what);
  };
  if (k.prefetch > 0 && in_place()) {
    s.prefetch("{} {} ahead={} lines={}", b, first ? kCopyScope : steps, k.prefetch, std::max<int64_t>(row / 64, 1));
  }
  for (int64_t stream = 0; k.prefetch > 0 && !in_place() && stream < k.streams; ++stream)
    prefetch(fmt::format("{} {} ahead={} lines={}", b, steps, k.prefetch + stream * k_ * row, lines));
  if (k.prefetch == -1 && !packed()) {
    if (first) s.prefetch("{} {} next=k0 lines={}", b, kCopyScope, lines_of_block(k));
    s.prefetch("{} {} next=k0 lines={}", b, steps, lines_of_block(k));
  } else if (k.prefetch == -1) {
    const int64_t rows = row_block != 0 ? row_block : m_,
                  tiles = std::max<int64_t>(1, (rows + k.tile_rows - 1) / k.tile_rows);
    prefetch(fmt::format("{} {} next={} lines={}", b, steps, depth != 0 ? "m0b" : "m0", (lines + tiles - 1) / tiles));
  }
  if (k.depth_sums != 0) schedule_dots(s, p_, dots_, most_dot_rows(dots_, t_), 0, 0, t_);
  if (parts) s.move("parallelize {}", kPartScope);
  if (!groups || problem_.threads > 1) s.move("parallelize {}", outermost);
  return {};
}

// Of the next block of a B that is not packed, per four steps of a tile: as many as let its tiles have all rows, each
// one of its own if there are enough.
int64_t MatmulSketch::lines_of_block(const Setting& k) const {
  constexpr int64_t kMost = 16, kLine = 64, kSteps = 4;
  const auto parts = [](int64_t of, int64_t size) { return (of + size - 1) / size; };
  const int64_t depth = matmul_block_depth(k.depth_block, k_), columns = k.column_block;
  const int64_t rows = in_place() ? depth : columns, row = parts((in_place() ? columns : depth) * b_bytes_, kLine);
  const int64_t tiles = parts(m_, k.tile_rows) * parts(columns, k.panel_columns), turns = parts(depth, kSteps);
  if (row % turns == 0 && row / turns <= kMost && tiles >= rows) return row / turns;
  int64_t lines = 1;
  while (lines < kMost && parts(row, lines) * parts(rows, turns) > tiles) ++lines;
  return lines;
}

void MatmulSketch::write_panels(Script& s, const Setting& k, const char* at, const char* tail) const {
  const std::string b = (*p_.b)->name;
  if (packed()) {
    pack_panels(s, b, p_.b_n, p_.b_k, k.panel_columns, k.dots != kSingle ? step_ : 1);
  } else if (!in_place()) {
    transpose_panel(s, b, at, p_.b_n < p_.b_k);
  } else if (k.copy_panels != 0) {
    copy_panel(s, b, at);
    if (k.copy_panels == kCopyPanel) vectorize_tile(s, "bp_1", 0, 1, t_.lanes, tail);
  }
}

void MatmulSketch::write_tile(Script& s, const Setting& k, const char* tail) const {
  for (const char* rows : {"m1", "m1b", "m1c"}) s.move("unroll_scope {}", rows);
  for (const char* columns : {"n1", "n1b", "n1c"})
    vectorize_tile(s, columns, k.panel_columns, k.streams, t_.lanes, tail);
  s.move("move_to_register {} m0", p_.product->target);
  if (k.join_tiles != 0) s.move("unroll_scope m0");
}

// The first tile under a panel copies what it reads of it, for the others, and does not wait for a copy of all of it.
//
//   bp = b | m0 tiles { ct = c | k: ct += a * bp | c = ct }
//   ->  tile { ct = c | k: { bp = b | ct += a * b } | c = ct } | m0 further tiles { ct = c | k: ct += a * bp | c = ct }
void MatmulSketch::copy_with_first(Script& s, const std::string& steps, const char* tail) const {
  const Stmt* tiles = find_scope(s.kernel(), "m0b");
  s.move("rotate_scope m0b after={}", tiles == nullptr ? 0 : tiles->body.size() - 1);
  s.move("split_buffer ct m0b as cu");
  s.move("inline_temporary bp at={}_p", steps);
  vectorize_tile(s, "bp_1", 0, 1, t_.lanes, tail);
  s.move("swap_ops n0b 0");
  s.move("join_scopes {} {}_p", kCopyScope, steps);
  s.move("tensorize {} mma", kCopyScope);
}

// Sums come from scratch and go there: the instruction has registers of its own.
void MatmulSketch::write_whole_tile(Script& s, const Setting& k) const {
  if (k.depth_block != 0) {
    s.move("split_scope m0 after=0 as m0b");
    s.move("split_scope m0b after=0 as m0c");
    s.move("swap_scopes m0b k0");
  }
  s.move("unroll_scope m1b");
  vectorize_tile(s, "n1b", k.panel_columns, k.streams, t_.lanes, "exact");
  for (const char* columns : {"n1", "n1c"}) {
    s.move("tile_scope {} {} tail=exact as {}v,{}l", columns, t_.lanes, columns, columns);
    s.move("vectorize_scope {}l", columns);
  }
  s.move("move_to_stack {} {}", p_.product->target, k.depth_block != 0 ? "n0" : "m0");
}

// Sums wait in scratch between the blocks of K, or for their functions.
void MatmulSketch::write_blocked_tile(Script& s, const Setting& k, const std::string& steps, const char* tail) const {
  s.move("split_scope m0 after=0 as m0b");
  s.move("split_scope m0b after=0 as m0c");
  s.move("swap_scopes m0b k0");
  if (k.column_block != 0) {
    s.move("split_scope n0 after=0 as n0b");
    s.move("split_scope n0b after=0 as n0c");
    s.move("swap_scopes n0b k0");
    write_panels(s, k, "n0b", tail);
  }
  write_sums(s, k, "m0b", steps, tail);
  for (const char* columns : {"n1", "n1c"}) {
    s.move("tile_scope {} {} tail={} as {}v,{}l", columns, t_.lanes, tail, columns, columns);
    s.move("vectorize_scope {}l", columns);
  }
}

// The sums of the tile `at` in registers, from where they wait and back. Its children are then: load of partial sums,
// tensor loop, store; each but the loop is an m scope around an n scope.
void MatmulSketch::write_sums(Script& s, const Setting& k, const char* at, const std::string& steps,
                              const char* tail) const {
  const bool parts = k.depth_parts > 1;
  const std::string sums = parts ? kPartSums : p_.product->target;
  s.move("create_temporary {} ct at={} mode=accumulate", sums, at);
  s.move("move_to_register ct {}", at);
  if (!parts) {
    s.move("move_to_stack {} {}", sums, k.column_block != 0 ? "nb" : "n0");
    if (k.column_block > k.panel_columns && k.tile_rows > kFewSums) gather_sums(s, k);
  }
  std::vector<std::pair<std::string, std::string>> copies;
  if (const Stmt* tile = find_scope(s.kernel(), at)) {
    for (const Stmt& child : tile->body) {
      if (child.kind == Stmt::Kind::scope && child.iter != steps && !child.body.empty()) {
        const std::string inner = child.body[0].iter;  // a statement's is empty: there is one row, or one column
        const bool one_row = inner.empty() && k.tile_rows == 1;
        copies.emplace_back(one_row ? inner : child.iter, one_row ? child.iter : inner);
      }
    }
  }
  copies.emplace_back(parts ? "m1" : "m1b", parts ? "n1" : "n1b");
  for (const auto& [row, column] : copies) {
    if (!row.empty()) s.move("unroll_scope {}", row);
    if (!column.empty()) vectorize_tile(s, column, k.panel_columns, k.streams, t_.lanes, tail);
  }
}

// The sums of a block of columns, tile by tile: rows of a block that is a page wide share the sets of L1. Those of
// batches, and a last block that is shorter, lie plainly.
void MatmulSketch::gather_sums(Script& s, const Setting& k) const {
  const std::vector<Expr>& index = p_.product->index;
  if (index.size() != 2 || !uses(index[0], p_.m->iter) || !uses(index[1], p_.n->iter)) return;
  if (!proves_divisible(columns(k), k.column_block, Ranges(problem_.kernel))) return;
  s.move("tile_buffer {} 1 {}", p_.product->target, k.panel_columns);
  s.move("swap_dims {} 0 1", p_.product->target);
}

// Few rows by few columns and a long K: parts of K that are summed apart, so that threads have something to share, and
// added in order. What is summed when is the Schedule's, whatever the number of threads.
//
//   c = 0 | cp = 0 | ks parts { n0 panels { m0 tile { ct = cp | kd: ct += a * b | cp = ct } } } | c += cp[0], cp[1], ..
//   y = epilogue(c)
//
// The numbers of parts that are worth trying.
std::vector<int64_t> MatmulSketch::parts_worth_trying() const {
  std::vector<int64_t> out = {1, 2, 4, 8, 16, 32, kMostParts};
  const int64_t panels = (n_ + widths_.front() - 1) / widths_.front();
  std::erase_if(out, [&](int64_t parts) {
    return parts > 1 && (parts >= 2 * problem_.threads || (parts / 2) * panels >= 2 * problem_.threads ||
                         !accepts_parts({.depth_parts = parts}).ok());
  });
  return out.size() > 1 && m_ <= kMostPartRows && panels < 2 * problem_.threads ? out : std::vector<int64_t>{};
}

Status MatmulSketch::accepts_parts(const Setting& k) const {
  if (k.depth_parts == 1) return {};
  if (!is_const_int(p_.k->extent) || p_.swapped || !scopes_with_role(problem_.kernel, "batch").empty())
    return unsupported("sk {}: K varies, or one column or several products", k.depth_parts);
  if (k.blocked() || k.row_block != 0 || k.column_block != 0 || k.depth_sums != 0 || k.join_tiles != 0 ||
      k.dots == kTiles || k.copy_panels != 0 || k.share_heads != 0)
    return unsupported("sk {}: expected tiles of all rows, without blocks, copies and tile instructions",
                       k.depth_parts);
  const int64_t depth = part_depth(k);
  if (depth < kLeastPartDepth)
    return unsupported("sk {}: parts of {}, expected at least {}", k.depth_parts, depth, kLeastPartDepth);
  if (k.dots != kSingle && k_ % depth != 0)
    return unsupported("sk {}: K {} is not whole parts of pairs", k.depth_parts, k_);
  if (4 * m_max_ * n_ * k.depth_parts > kMostWaiting || !is_const_int(p_.n->extent))
    return unsupported("sk {}: too many sums wait, or n varies", k.depth_parts);
  return {};
}

// Clearing and adding the parts' sums, by one thread.
double MatmulSketch::joining_cycles(const Setting& k) const {
  if (k.depth_parts == 1) return 0;
  return kStart + kAdd * static_cast<double>(m_ * ((n_ + t_.lanes - 1) / t_.lanes) * (k.depth_parts + 1));
}

// Leaves the sums of a part alone in `ks { mp { np { kd } } }`; all else is done.
void MatmulSketch::split_depth(Script& s, const Setting& k) const {
  const std::string m = p_.m->iter, n = p_.n->iter, sums = p_.product->target;
  const int64_t depth = part_depth(k);
  for (const auto& [scope, middle, last] : {std::tuple{n, kPartColumns, "nq"}, std::tuple{m, kPartRows, "mq"}}) {
    s.move("split_scope {} after=0 as {}", scope, middle);
    s.move("split_scope {} after=0 as {}", middle, last);
  }
  s.move("tile_scope {} {} tail={} as {},{}", p_.k->iter, depth, tail_of(p_.k->extent, depth, s.kernel()), kPartScope,
         kPartDepth);
  s.move("swap_scopes {} {}", kPartColumns, kPartScope);
  s.move("swap_scopes {} {}", kPartRows, kPartScope);
  s.move("split_reduction {} {} at=root as {}", sums, kPartScope, kPartSums);
  // c = 0, cp = 0, c += cp, y = epilogue(c): rows of vectors.
  for (const std::string& outer :
       {m, fmt::format("{}_0", kPartSums), fmt::format("{}_0b", kPartSums), std::string("mq")}) {
    const Stmt* columns = find_scope(s.kernel(), innermost(s.kernel(), outer));
    if (columns == nullptr || !unit_stride(s.kernel(), *columns)) continue;
    const Stmt copy = *columns;
    vectorize_columns(s, copy, 1, t_.lanes);
  }
}

}  // namespace lathe::search
