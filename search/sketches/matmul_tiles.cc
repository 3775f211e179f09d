// The matmul recipe where a step is several products, whose factors lie side by side in a lane of 32 bits: two of bf16
// (dot2_bf16), four of bytes (mma_u8s8); and where sums wait in tiles of the CPU's own (tile_bf16, tile_u8s8). Where
// it has them, which settings are legal, what they cost.
#include <algorithm>
#include <cmath>

#include "ir/analysis/analysis.h"
#include "search/sketches/generic_rules.h"
#include "search/sketches/matmul_sketch.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

int64_t matmul_step(const MatmulParts& p, const Problem& problem, const Target& t) {
  const DType a = problem.kernel.find_buffer((*p.a)->name)->type, b = problem.kernel.find_buffer((*p.b)->name)->type;
  const auto byte = [](DType type) { return type == DType::i8 || type == DType::u8; };
  const bool bytes = byte(a) && byte(b) && a != b, pairs = a == DType::bf16 && b == DType::bf16 &&
                                                           (problem.allowed & kBf16Dots) != 0 && t.has(kCpu_avx512bf16);
  const int64_t step = bytes ? 4 : pairs ? 2 : 1;
  const bool packs =
      panels_of(p, problem.kernel) == Panels::packed && !is_const_int(p.n->extent, 1) && is_const_int(p.k->extent);
  return packs && p.k->extent->ival % step == 0 && p.k->extent->ival > step ? step : 1;
}

bool matmul_of_integers(const MatmulParts& p, const Kernel& kernel) {
  return !is_float(kernel.find_buffer(p.product->target)->type);
}

Status MatmulSketch::accepts_step(const Setting& k) const {
  if (k.dots == kSingle) {
    if (step_ > 1 && (problem_.one_layout || integers_)) return unsupported("dp 0: not the layout of this weight");
    return {};
  }
  if (k.pack_rows != 0 || k.depth_sums != 0) return unsupported("dp 1: rows of A are read in place, along whole steps");
  const int64_t depth = matmul_block_depth(k.depth_block, k_);
  if (depth != 0 && k_ % depth != 0) return unsupported("kc {}: K {} is not whole blocks of steps", k.depth_block, k_);
  return {};
}

// Beside factors and sums: of the instructions that stand for a missing one.
int64_t MatmulSketch::step_registers() const {
  constexpr int64_t kHalves = 2;
  const bool one = t_.has(kCpu_avx512f) ? t_.has(kCpu_avx512vnni) : t_.has(kCpu_avx_vnni);
  return integers_ && !one ? kHalves : 0;
}

// Sums of rows and columns of bytes, before the product: along rows in vectors.
void MatmulSketch::write_operand_sums(Script& s) const {
  constexpr int64_t kUnroll = 4;
  for (const Stmt* sums : p_.sums) {
    const Stmt* inner = sums;
    while (inner->body.back().kind == Stmt::Kind::scope) inner = &inner->body.back();
    s.move("parallelize {}", sums->iter);
    const Stmt* now = find_scope(s.kernel(), inner->iter);
    if (now == nullptr || now->mark != Mark::none || !unit_stride(s.kernel(), *now)) continue;
    const Stmt copy = *now;
    vectorize_columns(s, copy, extent_at(copy.extent, problem_) >= kUnroll * t_.lanes ? kUnroll : 1, t_.lanes);
  }
}

bool MatmulSketch::has_tiles() const {
  return t_.has(kCpu_amx_tile | (integers_ ? kCpu_amx_int8 : kCpu_amx_bf16)) && k_ % tile_depth() == 0 &&
         k_ > tile_depth() && proves_divisible(p_.n->extent, kTileColumns, Ranges(problem_.kernel));
}

// Sums wait in tiles: none of the other forms of a tile applies.
Status MatmulSketch::accepts_tiles(const Setting& k) const {
  const Setting plain{.tile_rows = k.tile_rows,
                      .panel_columns = kTileColumns,
                      .streams = k.streams,
                      .depth_block = k.depth_block,
                      .row_block = k.row_block,
                      .prefetch = k.prefetch,
                      .dots = kTiles};
  if (k != plain) return unsupported("dp 2: panels of {} columns, A in place", kTileColumns);
  const int64_t kc = k.depth_block;
  if (kc != 0 && (k_ % kc != 0 || kc >= k_ || kc % tile_depth() != 0 || kc == tile_depth()))
    return unsupported("kc {}: K {} is not several whole blocks of steps, two or more", kc, k_);
  if (k.tile_rows > kTileRows || k.tile_rows > m_max_)
    return unsupported("mr {}: expected at most {} and {}", k.tile_rows, kTileRows, m_max_);
  const bool wide =
      k.tile_rows <= kTileRows / 2 && proves_divisible(p_.n->extent, 2 * kTileColumns, Ranges(problem_.kernel));
  if (k.streams > 2 || (k.streams == 2 && !wide))
    return unsupported("st {}: two panels of at most {} rows, which are whole", k.streams, kTileRows / 2);
  if (k.streams > 1 && k.prefetch == -1) return unsupported("pf next: two panels have streams of their own");
  if (k.streams > 1 && k.depth_block != 0) return unsupported("st {}: a K block is one panel's", k.streams);
  if (k.row_block != 0 && (m_ <= 2 * k.row_block || k.row_block < k.tile_rows))
    return unsupported("mc {}: m is {}, mr {}", k.row_block, m_, k.tile_rows);
  if (k.prefetch == -1 && m_ <= k.tile_rows) return unsupported("pf next: a single tile has nothing to share it with");
  if (k.prefetch > 0 && m_ > kMaxOwnStream) return unsupported("pf {}: m is {}", k.prefetch, m_);
  return {};
}

// A tile instruction takes a cycle for each row of sums, a load of a tile half of one for each of its rows, and more
// where these come from L2 or from beyond. A panel comes from memory under all tiles that use it if it is the next one,
// else under the first of them.
MatmulCycles MatmulSketch::tile_cycles(const MatmulWork& w) const {
  constexpr double kLoad = 0.5, kPairs = 16, kSumRow = 6, kBlockRow = 3, kEnter = 150, kTwoStreams = 0.95, kShown = 0.1;
  constexpr double kNearLine = 1.2, kFarLine = 5, kUsable = 0.75;  // cycles of 64 bytes from L2, and from beyond
  const double across = 2 * w.panels, walks = w.n / (w.panels * kTileColumns);
  const double depth = w.kc > 0 ? w.kc : w.k, blocks = std::ceil(w.k / depth), rows_of_block = w.mc > 0 ? w.mc : w.m;
  const auto l1 = kUsable * static_cast<double>(t_.l1_bytes), l2 = kUsable * static_cast<double>(t_.l2_bytes);
  // A's rows pass by once under each panel; a panel stays in L1 for all tiles, or comes anew under each.
  const double a_bytes = rows_of_block * w.k * w.a_element, b_bytes = w.n * w.k * w.b_element,
               panel = across * kTileLanes * depth * w.b_element, rows_beside = w.mr * depth * w.a_element;
  const double a_line = a_bytes > l2       ? kFarLine
                        : 2 * a_bytes > l1 ? kNearLine
                                           : 0,
               b_line = rows_of_block <= w.mr || panel + rows_beside <= l1 ? 0 : kNearLine;
  const auto tile = [&](double rows) {
    const double loads = (across * kPairs + rows) * kLoad, lines = rows * a_line + across * kPairs * b_line;
    const double step = std::max({across * rows, loads, lines}) + kShown * (loads + lines);
    const double sums = across * rows * (kSumRow + (blocks > 1 ? kBlockRow * blocks : 0));
    return rows > 0 ? walks * (w.k / static_cast<double>(tile_depth()) * step + sums) : 0;
  };
  MatmulCycles out;
  out.compute = std::floor(w.m / w.mr) * tile(w.mr) + tile(std::fmod(w.m, w.mr));
  const double row_blocks = std::ceil(w.m / rows_of_block), calls = w.looped ? 1 : std::ceil(rows_of_block / w.mr);
  out.compute += walks * row_blocks * blocks * calls * kEnter;
  if (!w.cold && b_bytes > l2) out.compute += row_blocks * b_bytes / 64 * kFarLine;
  out.memory =
      w.cold ? w.n * w.k * static_cast<double>(b_bytes_) / t_.memory_rate / (w.panels > 1 ? kTwoStreams : 1) : 0;
  const double under = w.prefetch == -1 ? out.compute : w.prefetch == 0 ? 0 : tile(w.mr);
  out.total = std::max(under, out.memory) + 0.1 * std::min(under, out.memory) + out.compute - under;
  return out;
}

// Those that the default is one of. A single row is read from the streams of more panels.
void MatmulSketch::each_tile_setting(const std::function<void(const Setting&)>& visit) const {
  constexpr int64_t kBlockBytes = 512;  // of a row of A: a block of a panel stays in L1
  const std::vector<int64_t> prefetches = problem_.cold ? std::vector<int64_t>{-1, 8192, 0} : std::vector<int64_t>{0};
  for (const int64_t rows : {std::min(m_, kTileRows), kTileRows / 2}) {
    if (rows > m_ || m_ <= 1) continue;
    const Setting k{.tile_rows = rows, .panel_columns = kTileColumns, .dots = kTiles};
    each_setting(k,
                 {{&Setting::streams, {1, 2}},
                  {&Setting::prefetch, prefetches},
                  {&Setting::depth_block, {0, kBlockBytes / a_bytes_, 2 * kBlockBytes / a_bytes_}},
                  {&Setting::row_block, {0, 256, 512}}},
                 visit);
  }
}

}  // namespace lathe::search
