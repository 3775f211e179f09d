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

#include "search/gpu/move_list.h"
#include "search/gpu/product_form.h"
#include "search/gpu/tensor/staged_results.h"
#include "search/gpu/tensor/tensor_schedule.h"
#include "search/gpu/tile_rounds.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int kSm = 90;
constexpr int64_t kHalves = 8, kFloats = 4;  // elements of 2 bytes in an access of 16; those that are computed
constexpr int64_t kRows = 64, kTerms = 16;   // of one instruction
constexpr int64_t kDepth = 64, kPlaces = 2;  // of a step: lines of 128 bytes; steps in shared memory
constexpr int64_t kWarpRows = 16, kLaneRows = 8, kColumns = 8, kLaneColumns = 2;
constexpr int64_t kMostColumns = 256, kPadding = 8;
constexpr int64_t kRaster = 8, kManyTiles = 16;
constexpr int64_t kFewLines = 64;     // rows or columns that other Schedules are better at
constexpr int64_t kManyLines = 1024;  // that are worth warps which only ask for boxes

class Writer {
 public:
  Writer(const Kernel& kernel, const ProductForm& product, const GroupTile& tile)
      : kernel_(kernel),
        p_(product),
        t_(tile),
        list_(kernel, "groups.1"),
        m_(p_.m->iter),
        n_(p_.n->iter),
        k_(p_.k->iter) {}

  Result<Scheduled> run() {
    list_.knob("rows", t_.rows);
    list_.knob("columns", t_.columns);
    list_.knob("group_columns", t_.group_columns);
    tile_result(list_, p_, t_.rows, t_.columns, kDepth, !t_.roles, t_.pairs);
    if (!t_.roles) list_.move("tile_scope {0}2 {1} tail=mask as {0}z,{0}y", k_, kTerms);
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
  int64_t across(const ProductOperand& s) const { return s.of_rows ? t_.rows : t_.columns; }

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
    if (t_.raster > 0) {
      list_.move("tile_scope {0}b {1} tail=mask as {0}g,{0}h", m_, t_.raster / (t_.pairs == TilePairs::below ? 2 : 1));
      list_.move("swap_scopes {}h {}b", m_, n_);
      for (const std::string& s : {m_ + "g", n_ + "b", m_ + "h"}) list_.move("parallelize_grid {}", s);
    } else {
      list_.move("parallelize_grid {}b", m_);
      list_.move("parallelize_grid {}b", n_);
    }
    const bool pairs = t_.pairs != TilePairs::none;
    if (pairs) list_.move("parallelize_cluster {}", block_of(p_, t_.pairs));
    if (t_.persistent) list_.move("make_persistent {}", pairs || t_.raster == 0 ? block_of(p_, t_.pairs) : m_ + "h");
    for (const ProductOperand& s : p_.operands) {
      list_.move("move_to_shared {}_s {}0", s.buffer, k_);
      if (!t_.roles) list_.move("move_to_shared {}_t {}z", s.buffer, k_);
      // Lines of 64 neighbours: where there are more, a panel of them follows the other.
      if ((s.terms_last ? kDepth : across(s)) > kDepth) {
        list_.move("tile_buffer {}_s 1 {}", s.buffer, kDepth);
        list_.move("swap_dims {}_s 0 1", s.buffer);
      }
      if (!t_.roles) list_.move("repeat_padding {}_t 1 {}", s.buffer, kHalves);
    }
  }

  //   for k1: for mi: for ni  ->  for groups of rows: for groups of columns: for 16 terms: a product
  // step: of its scopes.
  void groups(const std::string& step) {
    const std::string m = m_ + "ik" + step, n = n_ + "ik" + step, k = k_ + "1" + step;
    list_.move("tile_scope {0} {1} tail=exact as {0}k,{0}t", k, kTerms);
    list_.move("tile_scope {0} {1} tail=exact as {0}w,{0}t", m, kRows);
    list_.move("tile_scope {0} {1} tail=exact as {0}w,{0}t", n, t_.group_columns);
    list_.sort({k + "k", k + "t", m + "w", m + "t", n + "w", n + "t"},
               {m + "w", n + "w", k + "k", k + "t", m + "t", n + "t"});
    for (const std::string& s : {m, n}) list_.move("parallelize_block {}w", s);
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
    const std::string m = m_ + part, n = n_ + part;
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
      list_.sort({mw, mx, mo, ml, nw, nq, nl, nv}, {mw, nw, mx, mo, ml, nq, nl, nv});
    }
    for (const std::string& s : {mw, nw, mx, ml, nl}) list_.move("parallelize_block {}", s);
    for (const std::string& s : {mo, nq}) list_.move("unroll_scope {}", s);
    list_.move("vectorize_scope {}", nv);
  }

  const Kernel& kernel_;
  const ProductForm& p_;
  const GroupTile& t_;
  MoveList list_;
  const std::string m_, n_, k_;
};

}  // namespace

Result<Scheduled> hopper_schedule(const GeneralKernel& general, const GroupTile& tile) {
  LATHE_RETURN_IF_ERROR(check_tile(tile));
  LATHE_ASSIGN(const ProductForm product, tensor_form(general.kernel));
  if (tile.stages > 0 && !is_given(general.kernel, product))
    return unsupported("{} makes an operand of its product, of which there are no boxes", general.kernel.name);
  return Writer(general.kernel, product, tile).run();
}

Result<std::vector<GroupTile>> group_tiles_of(const GeneralKernel& general, const SymbolValues& sizes,
                                              const GpuTarget& target) {
  if (target.sm != kSm) return unsupported("{} multiplies no tiles of shared memory", target.name);
  LATHE_ASSIGN(const ProductForm product, tensor_form(general.kernel));
  ProductShape shape = shape_of(product, sizes);
  shape.lines = has_lines(general.kernel, product) && shape.columns % kHalves == 0;
  if (shape.rows <= kFewLines || shape.columns <= kFewLines)
    return unsupported("{} x {} results, expected more than {} rows and columns", shape.rows, shape.columns, kFewLines);
  std::vector<GroupTile> out = ranked_group_tiles(shape, target);
  // Boxes are of what lies in memory, in lines that begin at multiples of 16 bytes.
  const bool boxes = is_given(general.kernel, product) &&
                     std::all_of(product.operands.begin(), product.operands.end(), [&](const ProductOperand& o) {
                       return (o.terms_last ? shape.depth : o.of_rows ? shape.rows : shape.columns) % kHalves == 0;
                     });
  if (!boxes) std::erase_if(out, [](const GroupTile& t) { return t.stages > 0; });
  if (shape.rows < kManyLines || shape.columns < kManyLines)
    std::erase_if(out, [](const GroupTile& t) { return t.roles; });
  // Blocks that run at once share rows and columns alike where there are many of both.
  for (GroupTile& t : out) {
    const bool many = shape.rows >= kManyTiles * t.rows && shape.columns >= kManyTiles * t.columns;
    if (t.stages > 0 && many) t.raster = kRaster;
  }
  // The best tile in other forms, so that measuring may judge between them.
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

// Tiles.

namespace {

constexpr int64_t kMostThreads = 1024, kMostThreadRegisters = 232, kMostShared = 227 * 1024;
constexpr int64_t kGroup = 128, kMostGroups = 3, kOfThreeGroups = 152;  // threads; beside others of a role; registers
constexpr int64_t kRing = 8;  // bytes of shared memory that say whether a step is there
constexpr int64_t kMostRaster = 16;
constexpr int64_t kLeastStages = 3, kMostStages = 8, kMostBox = 256;
constexpr double kSharedCycle = 128;  // bytes of shared memory in a cycle of a multiprocessor
constexpr double kProducts = 2048;    // in a cycle of its tensor cores
constexpr double kBegin = 1000;       // cycles from the end of a block to the first products of the next one
constexpr double kTogether = 100;     // that blocks of a cluster wait for each other in a tile

int64_t sums(const GroupTile& t) { return kRows * t.group_columns / 128; }
// Of a block. Where there are roles it has all registers, and warps that multiply get what others leave.
int64_t block_threads(const GroupTile& t) { return t.threads() + (t.roles ? kGroup : 0); }
int64_t most_registers(const GroupTile& t) {
  if (t.roles && t.threads() > 2 * kGroup) return kOfThreeGroups;
  return std::min(kMostThreadRegisters, kRegisters / t.threads());
}
int64_t registers(const GroupTile& t) {
  const int64_t staged = t.stages > 0 ? 0 : (t.rows + t.columns) * kDepth / 2 / t.threads();
  return sums(t) + staged + 48;
}
int64_t places(const GroupTile& t) { return t.stages > 0 ? t.stages : kPlaces; }
int64_t shared_bytes(const GroupTile& t) {
  const auto tail = [](int64_t lines) {
    return 2 * std::max(lines * (kTerms + kPadding), kTerms * (lines + kPadding));
  };
  const int64_t step = 2 * kDepth * (t.rows + t.columns) + (t.roles ? 2 : 1) * kRing;
  return step * places(t) + (t.roles ? 0 : tail(t.rows) + tail(t.columns)) + (t.staged ? staged_bytes(t.threads()) : 0);
}

}  // namespace

ir::Status check_tile(const GroupTile& t) {
  for (const int64_t part : {t.rows, t.columns, t.group_columns}) {
    if (part < 1) return invalid("a tile without elements");
  }
  if (t.rows % kRows != 0) return invalid("{} rows, expected a multiple of {}", t.rows, kRows);
  if (t.group_columns % kTerms != 0 || t.group_columns > kMostColumns)
    return invalid("{} columns of a group, expected a multiple of {}, at most {}", t.group_columns, kTerms,
                   kMostColumns);
  if (t.columns % t.group_columns != 0)
    return invalid("{} columns, which {} of a group do not divide", t.columns, t.group_columns);
  if (t.group_columns % kDepth != 0 && kDepth % t.group_columns != 0)
    return invalid("{} columns of a group, expected lines of {}", t.group_columns, kDepth);
  if (t.raster < 0 || t.raster > kMostRaster)
    return invalid("{} tiles below each other, expected at most {}", t.raster, kMostRaster);
  if (t.stages != 0 && (t.stages < kLeastStages || t.stages > kMostStages))
    return invalid("{} stages, expected none or {}..{}", t.stages, kLeastStages, kMostStages);
  if (t.stages != 0 && (t.rows > kMostBox || t.columns > kMostBox || t.columns % kDepth != 0))
    return invalid("boxes of {} rows and {} columns, expected multiples of {}, at most {}", t.rows, t.columns, kDepth,
                   kMostBox);
  if (t.roles && (t.stages == 0 || t.threads() > kMostGroups * kGroup))
    return invalid("roles of {} groups with {} stages, expected at most {}, and boxes", t.threads() / kGroup, t.stages,
                   kMostGroups);
  if (t.staged && t.group_columns % kStagedColumns != 0)
    return invalid("results of {} columns of a group are staged, expected a multiple of {}", t.group_columns,
                   kStagedColumns);
  if (t.pairs == TilePairs::below && t.raster % 2 != 0)
    return invalid("{} tiles below each other, expected whole pairs", t.raster);
  if (t.pairs != TilePairs::none && !t.roles) return invalid("blocks that share boxes, expected roles in them");
  if (t.persistent && !t.roles) return invalid("blocks that go through several tiles, expected roles in them");
  if (t.threads() > kMostThreads) return invalid("{} threads, expected at most {}", t.threads(), kMostThreads);
  if (registers(t) > most_registers(t))
    return invalid("{} registers of a thread, expected at most {}", registers(t), most_registers(t));
  if (shared_bytes(t) > kMostShared)
    return invalid("{} bytes of shared memory, expected at most {}", shared_bytes(t), kMostShared);
  return {};
}

const std::vector<GroupTile>& group_tiles() {
  static const std::vector<GroupTile> tiles = [] {
    std::vector<GroupTile> out;
    // Of tiles that are as good the first one is the better.
    for (const GroupTile& t : {GroupTile{128, 256, 256, 4, 0, true},
                               {128, 192, 192, 5, 0, true},
                               {192, 128, 128, 5, 0, true},
                               {128, 128, 128, 6, 0, true},
                               {128, 256, 256, 4},
                               {256, 128, 128, 4},
                               {128, 192, 192, 5},
                               {192, 128, 128, 5},
                               {128, 128, 128, 6},
                               {128, 128, 128, 3},
                               {128, 64, 64, 4},
                               {64, 256, 256, 4},
                               {64, 128, 128, 4},
                               {64, 64, 64, 4},
                               {128, 256, 256},
                               {128, 192, 192},
                               {192, 128, 128},
                               {128, 128, 128},
                               {128, 64, 64},
                               {64, 256, 128},
                               {64, 128, 128},
                               {64, 64, 64}}) {
      if (check_tile(t).ok()) out.push_back(t);
    }
    return out;
  }();
  return tiles;
}

double group_cycles(const GroupTile& t, const ProductShape& s, const ir::GpuTarget& gpu) {
  const int64_t depth = std::max<int64_t>(s.depth, 1);
  const int64_t below = t.pairs == TilePairs::below ? 2 : 1, beside = t.pairs == TilePairs::beside ? 2 : 1;
  const auto area = static_cast<double>(t.rows * t.columns), lines = static_cast<double>(t.rows + t.columns);
  // Factors are read by each group; both are stored once.
  const auto groups = static_cast<double>(t.threads()) / 128,
             reads = groups * static_cast<double>(kRows + t.group_columns);
  TileWork work;
  const auto along = [](int64_t size, int64_t tile, int64_t pairs) {
    return ceil_div(std::max<int64_t>(size, 1), tile * pairs) * pairs;
  };
  work.tiles = s.batch * along(s.rows, t.rows, below) * along(s.columns, t.columns, beside);
  const int64_t rounds = ceil_div(work.tiles, std::max(gpu.multiprocessors, 1));
  work.steps = ceil_div(depth, kDepth);
  work.threads = block_threads(t);
  work.registers = t.roles ? kRegisters / block_threads(t) : registers(t);
  if (t.roles) work.meeting = 0;
  work.shared = shared_bytes(t);
  work.stages = places(t);
  work.step = static_cast<double>(kDepth) * std::max(area / kProducts, (reads + lines) * 2 / kSharedCycle);
  work.rest = area * 2 / 32 * (t.staged ? kStagedRest : 1);
  const double results = t.staged ? area : kHalfSectors * area;
  // A pair reads what both need once.
  const auto read = static_cast<double>(t.rows / beside + t.columns / below);
  const double l2 = static_cast<double>(work.tiles) * (static_cast<double>(depth) * read + results) * 2 / kL2Bytes;
  // A block that follows another one begins with an empty ring; one that goes on has the first steps of its next tile.
  const double begin = t.roles && !t.persistent ? kBegin * static_cast<double>(rounds - 1) : 0;
  const double together = below * beside > 1 ? kTogether * static_cast<double>(rounds) : 0;
  return std::max(busy_cycles(work, gpu), l2) + begin + together;
}

// Whether there are tiles for two blocks each way, more of them than run at once, and multiprocessors for pairs.
static bool is_worth_pairs(const GroupTile& t, TilePairs pairs, const ProductShape& s, const ir::GpuTarget& gpu) {
  const int64_t rows = ceil_div(s.rows, t.rows), columns = ceil_div(s.columns, t.columns);
  return t.roles && ir::has_clusters(gpu) && gpu.multiprocessors % 2 == 0 &&
         (pairs == TilePairs::below ? rows : columns) >= 2 && s.batch * rows * columns > gpu.multiprocessors;
}

std::vector<GroupTile> ranked_group_tiles(const ProductShape& shape, const ir::GpuTarget& gpu) {
  const auto others = [&](GroupTile t) {
    std::vector<GroupTile> out;
    for (const TilePairs pairs : {TilePairs::none, TilePairs::below, TilePairs::beside}) {
      if (pairs != TilePairs::none && !is_worth_pairs(t, pairs, shape, gpu)) continue;
      t.pairs = pairs;
      for (const bool persistent : {false, true}) {
        for (const bool staged : {false, true}) {
          t.persistent = persistent;
          t.staged = staged;
          if ((!persistent || t.roles) && (!staged || shape.lines)) out.push_back(t);
        }
      }
    }
    return out;
  };
  return ranked_at_best(group_tiles(), others, [&](const GroupTile& t) { return group_cycles(t, shape, gpu); });
}

}  // namespace lathe::search
