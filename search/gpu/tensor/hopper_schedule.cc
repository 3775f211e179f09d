// See hopper_schedule.h. A group has the sums of its part in registers, shared out among its threads as the instruction
// wants them. It adds the products of a step, while its threads load the next one and store it to the other of two
// places.
//
//   for m: for n: c = 0; for k: c += f32(a[m, k]) * f32(b[k, n]); y = f(c)
//     -> for mb @grid: for nb @grid: for threads: c[..] = 0
//          {a_s[0] = a_r = a; b_s[0] = b_r = b}
//          for k0: {a_r = a; b_r = b; for groups: for kk: c[..] += a_s[k0 % 2] * b_s[k0 % 2] @tensor(wgmma_bf16);
//                   a_s[(k0 + 1) % 2] = a_r; b_s[(k0 + 1) % 2] = b_r}
//          {for groups: the products of the last step}
//          {the last terms, staged the same way, each thread for its own sums}
//          for threads: y = f(c)
//
// With stages boxes of both go to a ring of so many places, the latest ones while products are added:
//          for k0: {a_s[(k0 + S - 1) % S] = a @tensor(tma_2d); b_s[..] = b; for groups: .. a_s[k0 % S] * b_s[k0 % S]}
//
// With pairs two such blocks are a cluster (mc is of two iterations), of which each asks for half of what both need:
//     -> for mb @grid: for nb @grid: for mc @cluster: ...
//
// With roles other warps ask for them, steps are whole (boxes are 0 beyond the last term), and nobody meets:
//          for k0: {for once @role: {a_s[k0 % S] = a @tensor(tma_2d); b_s[..] = b}; for groups: .. a_s * b_s}
#include "search/gpu/tensor/hopper_schedule.h"

#include <algorithm>
#include <optional>

#include "search/gpu/move_list.h"
#include "search/gpu/product_form.h"
#include "search/gpu/split_sum.h"
#include "search/gpu/swizzles.h"
#include "search/gpu/tensor/staged_results.h"
#include "search/gpu/tensor/tensor_schedule.h"
#include "search/gpu/tile_rounds.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int kSm = 90;
constexpr int64_t kHalves = 8, kFloats = 4;  // elements of 2 bytes in an access of 16; those that are computed
constexpr int64_t kRows = 64, kTerms = 16;   // of one instruction
constexpr int64_t kDepth = GroupTile::depth, kPlaces = 2;  // of a step: lines of 128 bytes; steps in shared memory
constexpr int64_t kWarpRows = 16, kLaneRows = 8, kColumns = 8, kLaneColumns = 2;
constexpr int64_t kFewLines = 64;  // that no tile is full of

class Writer {
 public:
  // whole: what the Schedule is of. kernel: that, or what it is once blocks share its sums over `summed`.
  Writer(const Kernel& whole, const Kernel& kernel, const ProductForm& product, const GroupTile& tile,
         std::string summed)
      : kernel_(kernel),
        p_(product),
        t_(tile),
        summed_(std::move(summed)),
        list_(whole, "groups.1"),
        m_(p_.m->iter),
        n_(p_.n->iter),
        k_(p_.k->iter),
        r_(tile.swapped ? n_ : m_),
        c_(tile.swapped ? m_ : n_) {}

  Result<Scheduled> run() {
    list_.knob("rows", t_.rows);
    list_.knob("columns", t_.columns);
    list_.knob("group_columns", t_.group_columns);
    if (t_.swapped) list_.knob("swapped", 1);
    if (t_.terms > 0) split_sum(list_, summed_, t_.terms);
    tile_result(list_, p_, t_.swapped ? t_.columns : t_.rows, t_.swapped ? t_.rows : t_.columns, kDepth, !t_.roles,
                t_.pairs);
    if (!t_.roles) list_.move("tile_scope {0}2 {1} tail=mask as {0}z,{0}y", k_, kTerms);
    // The sums of a thread lie as the instruction has them.
    if (t_.swapped) list_.move("swap_dims {} 0 1", p_.sum);
    if (t_.stages > 0) list_.knob("stages", t_.stages);
    if (t_.raster > 0) list_.knob("raster", t_.raster);
    if (t_.roles) list_.knob("roles", 1);
    if (t_.persistent) list_.knob("persistent", 1);
    if (t_.staged) list_.knob("staged", 1);
    if (t_.pairs != TilePairs::none) list_.knob("cluster_rows", t_.pairs == TilePairs::below ? 2 : 1);
    if (t_.pairs != TilePairs::none) list_.knob("cluster_columns", t_.pairs == TilePairs::beside ? 2 : 1);
    stage();
    launch();
    const bool bf16 = kernel_.find_buffer(p_.operands[0].buffer)->type == DType::bf16;
    const char* product = bf16 ? "wgmma_bf16" : "wgmma_f16";
    if (t_.roles) {
      list_.move("specialize_roles {}0 after={} stages={}", k_, p_.operands.size() - 1, t_.stages);
      for (const char* part : {"i", "ik"}) pad(part);
      groups("");
      for (const ProductOperand& s : p_.operands) list_.move("tensorize {}_s_0 tma_2d", s.buffer);
      list_.move("tensorize {}1t {}", k_, product);
      lanes("i", "exact");
      results();
      if (t_.terms > 0) add_up_parts(list_, kernel_);
      return list_.finish();
    }
    const size_t copies = t_.stages > 0 ? p_.operands.size() : 2 * p_.operands.size();
    list_.move("pipeline {}0 after={} stages={}", k_, copies - 1, t_.stages > 0 ? t_.stages : kPlaces);
    // Products first: what is copied meanwhile goes to another place.
    for (size_t i = 0; i < p_.operands.size(); ++i) list_.move("swap_ops {}0 {}", k_, copies - 1 - i);
    for (const char* part : {"i", "ik", "ik_e", "ik_t"}) pad(part);
    groups("");
    groups("_e");
    for (const ProductOperand& s : p_.operands) {
      for (const char* step : {"_p", "_n"}) {
        if (t_.stages > 0) {
          list_.move("tensorize {}_s_0{} tma_2d", s.buffer, step);
          continue;
        }
        copy(s, s.buffer + "_r", kDepth, step);
        copy(s, s.buffer + "_s", kDepth, step);
      }
      copy(s, s.buffer + "_t", kTerms, "");
    }
    for (const char* step : {"1", "1_e"}) list_.move("tensorize {}{}t {}", k_, step, product);
    lanes("i", "exact");
    lanes("ik_t", "exact");
    results();
    return list_.finish();
  }

 private:
  bool is_made(const ProductOperand& s) const {
    return std::find(p_.made.begin(), p_.made.end(), s.buffer) != p_.made.end();
  }
  int64_t across(const ProductOperand& s) const { return s.of_rows != t_.swapped ? t_.rows : t_.columns; }

  void pad(const std::string& part) {
    list_.move("pad_scope {}{}", m_, part);
    list_.move("pad_scope {}{}", n_, part);
  }

  void stage() {
    for (const ProductOperand& s : p_.operands) {
      list_.move("create_temporary {0} {0}_s at={1}0 mode=stage", s.buffer, k_);
      if (!t_.roles) list_.move("create_temporary {0} {0}_t at={1}z mode=stage", s.buffer, k_);
    }
    const Expr& depth = p_.k->extent;
    if (t_.roles && (!is_const_int(depth) || depth->ival % kDepth != 0)) list_.move("fill_scope {}1", k_);
    // All loads of a step are on their way before the first of them is waited for.
    for (const ProductOperand& s : p_.operands)
      if (t_.stages == 0) list_.move("create_temporary {0} {0}_r at={1}0 mode=stage", s.buffer, k_);
    for (const std::string& made : p_.made) list_.move("inline_temporary {}", made);
    for (const ProductOperand& s : p_.operands) {
      if (t_.stages == 0) list_.move("move_to_register {}_r {}0", s.buffer, k_);
      list_.move("move_to_stack {}_s {}0", s.buffer, k_);
      if (!t_.roles) list_.move("move_to_stack {}_t {}z", s.buffer, k_);
    }
  }

  void launch() {
    for (const Stmt* b : p_.batch) list_.move("parallelize_grid {}", b->iter);
    const int64_t raster = t_.raster / (t_.pairs == TilePairs::below ? 2 : 1);
    for (const std::string& s : tiles_in_order(list_, p_, raster)) list_.move("parallelize_grid {}", s);
    const bool pairs = t_.pairs != TilePairs::none;
    if (pairs) list_.move("parallelize_cluster {}", block_of(p_, t_.pairs));
    if (t_.persistent) list_.move("make_persistent {}", pairs || t_.raster == 0 ? block_of(p_, t_.pairs) : m_ + "h");
    for (const ProductOperand& s : p_.operands) {
      list_.move("move_to_shared {}_s {}0", s.buffer, k_);
      if (!t_.roles) list_.move("move_to_shared {}_t {}z", s.buffer, k_);
      swizzle_lines(list_, s.buffer + "_s", 1, s.terms_last ? kDepth : across(s));
      if (!t_.roles) list_.move("repeat_padding {}_t 1 {}", s.buffer, kHalves);
    }
  }

  //   for k1: for mi: for ni  ->  for groups of rows: for groups of columns: for 16 terms: a product
  // step: of its scopes.
  void groups(const std::string& step) {
    const std::string r = r_ + "ik" + step, c = c_ + "ik" + step, k = k_ + "1" + step;
    const std::string &m = t_.swapped ? c : r, &n = t_.swapped ? r : c;
    list_.move("tile_scope {0} {1} tail=exact as {0}k,{0}t", k, kTerms);
    list_.move("tile_scope {0} {1} tail=exact as {0}w,{0}t", r, kRows);
    list_.move("tile_scope {0} {1} tail=exact as {0}w,{0}t", c, t_.group_columns);
    list_.sort({k + "k", k + "t", m + "w", m + "t", n + "w", n + "t"},
               {r + "w", c + "w", k + "k", k + "t", r + "t", c + "t"});
    for (const std::string& s : {r, c}) list_.move("parallelize_block {}w", s);
    list_.move("unroll_scope {}k", k);
  }

  // Threads share out the copy of an operand, in vectors of neighbours.
  void copy(const ProductOperand& s, const std::string& buffer, int64_t depth, const std::string& step) {
    const int64_t vector = is_made(s) ? kFloats : kHalves;
    const int64_t inner = s.terms_last ? depth : across(s), outer = across(s) * depth / inner;
    const int64_t down = std::max<int64_t>(1, std::min(outer, t_.threads() / (inner / vector)));
    const std::string line = buffer + "_0" + step, place = buffer + "_1" + step;
    list_.move("tile_scope {0} {1} tail=mask as {0}c,{0}v", place, vector);
    list_.move("tile_scope {0} {1} tail=mask as {0}r,{0}t", line, down);
    list_.move("parallelize_block {}t", line);
    list_.move("unroll_scope {}r", line);
    list_.move("parallelize_block {}c", place);
    list_.move("vectorize_scope {}v", place);
  }

  void results() {
    if (t_.staged) return stage_results(list_, p_, kRows, t_.group_columns, true, false);
    lanes("ie", "mask");
  }

  // for mi: for ni  ->  for groups of rows: for groups of columns: for warps and lanes: rows and pairs of each
  void lanes(const char* part, const char* tail) {
    const std::string m = r_ + part, n = c_ + part;
    list_.move("tile_scope {0} {1} tail={2} as {0}w,{0}u", m, kRows, tail);
    list_.move("tile_scope {0}u {1} tail={2} as {0}x,{0}y", m, kWarpRows, tail);
    list_.move("tile_scope {0}y {1} tail={2} as {0}o,{0}l", m, kLaneRows, tail);
    list_.move("tile_scope {0} {1} tail={2} as {0}w,{0}r", n, t_.group_columns, tail);
    list_.move("tile_scope {0}r {1} tail={2} as {0}q,{0}s", n, kColumns, tail);
    list_.move("tile_scope {0}s {1} tail={2} as {0}l,{0}v", n, kLaneColumns, tail);
    const std::string mw = m + "w", mx = m + "x", mo = m + "o", ml = m + "l", nw = n + "w", nq = n + "q", nl = n + "l",
                      nv = n + "v";
    if (std::string_view(part) == "ik_t") {
      const std::string terms = k_ + "y";
      list_.sort({terms, mw, mx, mo, ml, nw, nq, nl, nv}, {mw, nw, mx, ml, nl, terms, mo, nq, nv});
    } else {
      list_.sort(t_.swapped ? std::vector{nw, nq, nl, nv, mw, mx, mo, ml} : std::vector{mw, mx, mo, ml, nw, nq, nl, nv},
                 {mw, nw, mx, mo, ml, nq, nl, nv});
    }
    for (const std::string& s : {mw, nw, mx, ml, nl}) list_.move("parallelize_block {}", s);
    for (const std::string& s : {mo, nq}) list_.move("unroll_scope {}", s);
    list_.move("vectorize_scope {}", nv);
  }

  const Kernel& kernel_;
  const ProductForm& p_;
  const GroupTile& t_;
  const std::string summed_;
  MoveList list_;
  const std::string m_, n_, k_;
  const std::string r_, c_;  // of m_ and n_: the rows of the instruction, and its columns
};

}  // namespace

// Bytes of the narrowest swizzled lines of what is staged; 0: some of it has none.
static int64_t line_bytes(const ProductForm& product, const GroupTile& tile) {
  int64_t out = widest_swizzle(kDepth);
  for (const ProductOperand& o : product.operands)
    if (!o.terms_last) out = std::min(out, widest_swizzle(o.of_rows != tile.swapped ? tile.rows : tile.columns));
  return out;
}

Result<Scheduled> hopper_schedule(const GeneralKernel& general, const GroupTile& tile) {
  LATHE_RETURN_IF_ERROR(check_tile(tile));
  LATHE_ASSIGN(const ProductForm product, tensor_form(general.kernel));
  if (tile.stages > 0 && !is_given(general.kernel, product))
    return unsupported("{} makes an operand of its product, of which there are no boxes", general.kernel.name);
  if (line_bytes(product, tile) == 0)
    return unsupported("{} stages lines of {} x {} elements, expected multiples of {}", general.kernel.name, tile.rows,
                       tile.columns, kTerms);
  return whole_or_split(general.kernel, product, tile.terms, tensor_form,
                        [&](const Kernel& kernel, const ProductForm& form, const std::string& summed) {
                          return Writer(general.kernel, kernel, form, tile, summed).run();
                        });
}

// Leaves tiles of lines of 128 bytes. Of narrower lines, of which no GPU has said how fast they are, the best one, if
// it ranks before the others.
static std::optional<GroupTile> narrow_lines(const ProductForm& product, std::vector<GroupTile>& tiles) {
  const int64_t widest = widest_swizzle(kDepth);
  const auto best =
      std::find_if(tiles.begin(), tiles.end(), [&](const GroupTile& t) { return line_bytes(product, t) > 0; });
  std::optional<GroupTile> out;
  if (best != tiles.end() && line_bytes(product, *best) < widest) out = *best;
  std::erase_if(tiles, [&](const GroupTile& t) { return line_bytes(product, t) < widest; });
  return tiles.empty() ? std::nullopt : out;
}

Result<std::vector<GroupTile>> group_tiles_of(const GeneralKernel& general, const SymbolValues& sizes,
                                              const GpuTarget& target) {
  if (target.sm != kSm) return unsupported("{} multiplies no tiles of shared memory", target.name);
  LATHE_ASSIGN(const ProductForm product, tensor_form(general.kernel));
  ProductShape shape = shape_of(product, sizes, general.most);
  shape.lines = has_lines(general.kernel, product) && shape.columns % kHalves == 0;
  std::vector<GroupTile> out = ranked_group_tiles(shape, target);
  // Boxes are of what lies in memory, in lines that begin at multiples of 16 bytes.
  const bool boxes = is_given(general.kernel, product) &&
                     std::all_of(product.operands.begin(), product.operands.end(), [&](const ProductOperand& o) {
                       return (o.terms_last ? shape.depth : o.of_rows ? shape.rows : shape.columns) % kHalves == 0;
                     });
  if (!boxes) std::erase_if(out, [](const GroupTile& t) { return t.stages > 0; });
  // Of few rows only swapped tiles are full.
  if (shape.rows <= kFewLines) std::erase_if(out, [](const GroupTile& t) { return !t.swapped; });
  auto narrow = narrow_lines(product, out);
  if (shape.columns <= kFewLines || out.empty())
    return unsupported("{} x {} results, expected more than {} rows and columns, or boxes of more than {} columns",
                       shape.rows, shape.columns, kFewLines, kFewLines);
  const auto order = [&](GroupTile& t) {
    const int64_t below = ceil_div(shape.rows, t.swapped ? t.columns : t.rows);
    const int64_t tiles = shape.batch * below * ceil_div(shape.columns, t.swapped ? t.rows : t.columns);
    if (t.stages == 0 || t.terms > 0) return;
    t.raster = raster_of(below, tiles, target);
    if (t.pairs == TilePairs::below) t.raster += t.raster % 2;
  };
  for (GroupTile& t : out) order(t);
  if (narrow) order(*narrow);
  // The best tile in other forms, so that measuring may judge between them.
  if (narrow) out.insert(out.begin() + 1, *narrow);
  if (!out.empty() && out.front().pairs != TilePairs::none) {
    out.insert(out.begin() + 1, out.front());
    out[1].pairs = TilePairs::none;
  }
  for (bool GroupTile::* form : {&GroupTile::staged, &GroupTile::persistent}) {
    if (out.empty() || !(out.front().*form)) continue;
    out.insert(out.begin() + 1, out.front());
    out[1].*form = false;
  }
  return out;
}

Result<Scheduled> hopper_schedule(const GeneralKernel& general, const SymbolValues& sizes, const GpuTarget& target) {
  LATHE_ASSIGN(const std::vector<GroupTile> tiles, group_tiles_of(general, sizes, target));
  return hopper_schedule(general, tiles.front());
}

}  // namespace lathe::search
