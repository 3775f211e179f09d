// See matmul_dots.h. The nest, with tiles of rows:
//
//   nd0 { [copy B's columns] md0 { sums = 0 | kv { md1 { nd1 { kl @vector: sum += a * b } } } | y = epilogue(sums) }
//   [rest of the rows, the same] }
#include "search/sketches/matmul_dots.h"

#include <algorithm>
#include <cmath>

#include "ir/analysis/analysis.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kMostDots = 4;  // columns beyond whole vectors
constexpr int64_t kMostRows = 8;  // of a tile: two pipes of latency four are busy
constexpr double kFarLine = 12;   // cycles until a line of B has come from beyond L2
constexpr double kUsable = 0.75;  // of a cache
constexpr double kLaneSum = 5;    // cycles to add a vector's lanes and store the sum
constexpr double kCopied = 1.2;   // cycles per element of B that is copied
constexpr double kEnter = 16;     // of a tile, until its pipes are full
constexpr double kPipes = 2, kLoads = 1.85, kLatency = 4, kNear = 32, kFar = 24;  // as in matmul_model.cc

// As many sums as half of the registers hold.
int64_t rows_of_tile(int64_t columns, const Target& t) {
  return std::clamp<int64_t>(t.vector_registers / 2 / columns, 1, kMostRows);
}

// B's dimension k has the stride one.
bool unit_depth(const MatmulParts& p, const Kernel& kernel) {
  const Buffer& b = *kernel.find_buffer((*p.b)->name);
  if (!b.layout.empty()) return false;
  const auto depth = static_cast<size_t>(p.b_k);
  if (!b.strides.empty()) return is_const_int(b.strides[depth], 1);
  return std::all_of(b.dims.begin() + p.b_k + 1, b.dims.end(), [](const Expr& d) { return is_const_int(d, 1); });
}

// The scope that the scope named holds first.
std::string first_inside(const Script& s, const std::string& name) {
  const Stmt* scope = find_scope(s.kernel(), name);
  return scope == nullptr || scope->body.empty() ? std::string() : scope->body[0].iter;
}

// A tile: all the rows of the scope `rows`, whose sums go into registers of the scope `at`. What is left of K after
// whole vectors follows them.
void schedule_tile(Script& s, const std::string& rows, const std::string& at, const std::string& sums, int64_t lanes) {
  const std::string n = first_inside(s, rows);
  const Stmt* columns = find_scope(s.kernel(), n);
  if (!s.ok() || columns == nullptr || columns->body.size() != 3) return;
  const std::string k = columns->body[1].iter;
  const Expr depth = columns->body[1].extent;
  const bool few = is_const_int(depth) && depth->ival < lanes,
             whole = proves_divisible(depth, lanes, Ranges(s.kernel()));
  std::vector<std::string> vectors = {k};
  if (!few) {
    s.move("tile_scope {} {} tail={} as {}v,{}l{}", k, lanes, whole ? "exact" : "peel", k, k,
           whole ? "" : fmt::format(",{}t", k));
    vectors = {k + "l"};
    if (!whole) vectors.push_back(k + "t");
  }
  std::vector<std::string> parts = {""};  // of rows and columns: zeros, the vectors, the results
  for (size_t i = 0; i <= vectors.size(); ++i) {
    const std::string next = fmt::format("{}", static_cast<char>('a' + i));
    s.move("split_scope {}{} after=0 as {}{}", n, parts.back(), n, next);
    s.move("split_scope {}{} after=0 as {}{}", rows, parts.back(), rows, next);
    parts.push_back(next);
  }
  if (!few) {
    s.move("swap_scopes {}a {}v", n, k);
    s.move("swap_scopes {}a {}v", rows, k);
  }
  for (const std::string& part : parts) {
    s.move("unroll_scope {}{}", rows, part);
    s.move("unroll_scope {}{}", n, part);
  }
  s.move("move_to_register {} {}", sums, at);
  // A rest of one term has no lanes: it is added to the sums once their lanes are.
  const bool one_left = vectors.size() > 1 && is_const_int(depth) && depth->ival % lanes == 1;
  s.move("vectorize_scope {}", vectors.front());
  if (vectors.size() > 1) s.move("{} {}", one_left ? "unroll_scope" : "vectorize_scope", vectors.back());
}

}  // namespace

Dots matmul_dots(const MatmulParts& p, const Problem& problem, const Target& t) {
  const Kernel& kernel = problem.kernel;
  if (!is_const_int(p.n->extent) || is_const_int(p.k->extent, 1) || !rows_packable(p, kernel)) return {};
  const int64_t n = p.n->extent->ival, rest = n % t.lanes;
  if (n == 1 || p.swapped) return {n, 0};
  if (n < t.lanes || rest == 0 || rest > kMostDots || !is_const_int(p.m->extent)) return {};
  return {rest, n - rest};
}

bool dots_copy(const MatmulParts& p, const Kernel& kernel) { return !unit_depth(p, kernel); }

double dots_cycles(const DotsWork& w, const Target& t) {
  const double tile = static_cast<double>(rows_of_tile(static_cast<int64_t>(w.columns), t)),
               steps = std::ceil(w.k / t.lanes);
  const auto cycles = [&](double rows) {
    const double sums = rows * w.columns;
    return kEnter + steps * std::max({sums / kPipes, (rows + w.columns) / kLoads, kLatency}) + sums * kLaneSum;
  };
  const double full = std::floor(w.m / tile), rest = w.m - full * tile, bytes = w.m * w.k * w.a_element,
               far = kUsable * static_cast<double>(t.l2_bytes);
  const double arithmetic = full * cycles(tile) + (rest > 0 ? cycles(rest) : 0);
  const double rows = bytes > far ? bytes / kFar : 2 * bytes > static_cast<double>(t.l1_bytes) ? bytes / kNear : 0;
  // A column that lies apart is a line for each element.
  const double copy = w.copied ? kEnter + w.k * (w.columns * kCopied + (w.b_bytes > far ? kFarLine : 0)) : 0;
  return std::max(arithmetic, rows) + copy;
}

std::string split_dots(Script& s, const MatmulParts& p, const Dots& dots) {
  const std::string m = p.m->iter, n = p.n->iter;
  if (dots.whole == 0) {
    s.move("tile_scope {} {} tail=exact as nd0,nd1", n, dots.columns);
    s.move("swap_scopes {} nd0", m);
    return {};
  }
  s.move("tile_scope {} {} tail=peel as nw,ni,nd", n, dots.whole);
  s.move("merge_scopes nw ni as nm");
  s.move("split_scope {} after=0 as md", m);
  s.move("tile_scope nd {} tail=exact as nd0,nd1", dots.columns);
  s.move("swap_scopes md nd0");
  s.move("split_buffer {} nd0 as cd", p.product->target);
  return "nm";
}

int64_t most_dot_rows(const Dots& dots, const Target& t) { return rows_of_tile(dots.columns, t); }

void schedule_dots(Script& s, const MatmulParts& p, const Dots& dots, int64_t tile, int64_t block_rows, int64_t ahead,
                   const Target& t) {
  const std::string b = (*p.b)->name;
  std::string rows = dots.whole == 0 ? p.m->iter : "md", sums = dots.whole == 0 ? p.product->target : "cd";
  if (block_rows != 0) {
    s.move("tile_scope {} {} tail={} as mm,mi", rows, block_rows, tail_of(p.m->extent, block_rows, s.kernel()));
    s.move("swap_scopes nd0 mm");
    rows = "mi";
  }
  if (dots_copy(p, s.kernel())) {
    s.move("create_temporary {} bd at=nd0", b);
    s.move("move_to_stack bd nd0");
    const bool depth_first = p.b_k < p.b_n, several = dots.columns > 1;
    const std::string depth = several && !depth_first ? "bd_1" : "bd_0";
    if (several && depth_first) {
      s.move("swap_dims bd 0 1");
      s.move("swap_scopes bd_0 bd_1");
    }
    s.move("tile_scope {} {} tail={} as {}v,{}l", depth, t.lanes, tail_of(p.k->extent, t.lanes, s.kernel()), depth,
           depth);
    s.move("vectorize_scope {}l", depth);
  }
  const auto tile_of = [&](const std::string& tile_rows, const std::string& at, const std::string& of) {
    schedule_tile(s, tile_rows, at, of, t.lanes);
    if (ahead != 0) s.prefetch("{} {}a ahead={} lines=1", (*p.a)->name, tile_rows, ahead);
  };
  const Expr extent = p.m->extent;
  if (is_const_int(extent) && extent->ival <= tile) {
    tile_of(rows, "nd0", sums);
  } else if (is_const_int(extent) && block_rows == 0 && extent->ival % tile != 0) {
    s.move("tile_scope {} {} tail=peel as md0,md1,md2", rows, tile);
    s.move("split_buffer {} md2 as ce", sums);
    tile_of("md1", "md0", sums);
    tile_of("md2", "nd0", "ce");
  } else {
    s.move("tile_scope {} {} tail={} as md0,md1", rows, tile,
           block_rows == 0 ? tail_of(extent, tile, s.kernel()) : "mask");
    tile_of("md1", "md0", sums);
  }
}

}  // namespace lathe::search
