// See tensor_tiles.h.
#include "search/gpu/tensor/tensor_tiles.h"

#include <algorithm>

#include "search/gpu/tensor/staged_results.h"
#include "search/gpu/tile_rounds.h"

namespace lathe::search {

namespace {

constexpr int64_t kWarp = 32, kMostThreads = 1024;
constexpr int64_t kStaticBytes = 48 * 1024, kMostBytes = 227 * 1024;  // of shared memory: of any GPU, of some
constexpr int64_t kFew = 16, kMostSwapped = 32;                       // columns of a tile
constexpr int64_t kSquare = 16, kColumns = 8, kPadding = 8;           // on tensor cores
constexpr int64_t kMostStages = 8;
constexpr int64_t kMostSums = 128;  // of a thread
constexpr int64_t kMostThreadRegisters = 232;
constexpr double kProducts = 1024;    // in a cycle of its tensor cores
constexpr double kSharedCycle = 128;  // bytes of shared memory in a cycle
constexpr double kIssue = 4;          // instructions of warps in a cycle
constexpr double kChain = 40;         // cycles from a square's first read to its product
// Measured on an H100, 12 tiles at 4096 cubed and 2048 x 14336 x 4096 (bench/results/h100.txt): within a tenth.
constexpr double kOverlap = 0.6;  // of what tensor cores and shared memory take together
constexpr double kWaits = 1.17;   // times as long, where squares of a step are read behind its barrier

// Of a step, whichever way operands lie.
int64_t staged(const TensorTile& t) {
  const int64_t padding = t.swizzled ? 0 : kPadding;
  const auto of = [&](int64_t lines) { return 2 * std::max(lines * (t.depth + padding), t.depth * (lines + padding)); };
  return of(t.rows) + of(t.columns);
}
int64_t sums(const TensorTile& t) { return t.warp_rows * t.warp_columns / kWarp; }
int64_t fragments(const TensorTile& t) { return (t.warp_rows + t.warp_columns) * kSquare / 2 / kWarp; }
int64_t registers(const TensorTile& t) {
  const int64_t by_registers = t.stages == 1 ? (t.rows + t.columns) * t.depth / 2 / t.threads() : 0;
  return sums(t) + fragments(t) + by_registers + 40;
}
// Whether squares of the next step are read before the last products of one (jit/cuda/passes/read_ahead.h).
bool reads_ahead(const TensorTile& t) {
  const int64_t more = registers(t) + fragments(t);
  return t.stages > 1 && more <= kMostThreadRegisters &&
         kRegisters / (t.threads() * more) == kRegisters / (t.threads() * registers(t));
}
// Blocks where each sums all terms.
int64_t tiles_of(const TensorTile& t, const ProductShape& s) {
  const int64_t rows = t.swapped ? t.columns : t.rows, columns = t.swapped ? t.rows : t.columns;
  return s.batch * ceil_div(std::max<int64_t>(s.rows, 1), rows) * ceil_div(std::max<int64_t>(s.columns, 1), columns);
}

}  // namespace

int64_t shared_bytes(const TensorTile& t) { return t.stages * staged(t) + (t.staged ? staged_bytes(t.threads()) : 0); }

ir::Status check_tile(const TensorTile& t) {
  for (const int64_t part : {t.rows, t.columns, t.depth, t.warp_rows, t.warp_columns}) {
    if (part < 1) return ir::invalid("a tile without elements");
  }
  for (const auto& [part, step] : {std::pair{t.rows, kSquare}, {t.warp_rows, kSquare}, {t.columns, kColumns}}) {
    if (part % step != 0) return ir::invalid("{} elements, expected a multiple of {}", part, step);
  }
  if (t.warp_columns != kColumns && t.warp_columns % kSquare != 0)
    return ir::invalid("{} columns of a warp, expected {} or a multiple of {}", t.warp_columns, kColumns, kSquare);
  if (t.stages < 1 || t.stages > kMostStages) return ir::invalid("{} stages, expected 1..{}", t.stages, kMostStages);
  if (t.depth % (2 * kSquare) != 0)
    return ir::invalid("a depth of {}, expected a multiple of {}", t.depth, 2 * kSquare);
  LATHE_RETURN_IF_ERROR(check_terms(t, t.stages));
  if (t.raster < 0 || t.raster > kMostRaster)
    return ir::invalid("{} tiles below each other, expected at most {}", t.raster, kMostRaster);
  if (t.staged && (t.swapped || t.terms > 0 || t.warp_columns % kStagedColumns != 0))
    return ir::invalid(
        "results of {} columns of a warp are staged, expected a multiple of {}, as they are, of all terms",
        t.warp_columns, kStagedColumns);
  if (t.rows % t.warp_rows != 0 || t.columns % t.warp_columns != 0)
    return ir::invalid("a tile of {}x{}, which {}x{} does not divide", t.rows, t.columns, t.warp_rows, t.warp_columns);
  if (t.threads() > kMostThreads) return ir::invalid("{} threads, expected at most {}", t.threads(), kMostThreads);
  if (sums(t) > kMostSums) return ir::invalid("{} sums of a thread, expected at most {}", sums(t), kMostSums);
  if (registers(t) > kMostThreadRegisters || registers(t) * t.threads() > kRegisters)
    return ir::invalid("{} registers of a thread, expected at most {}", registers(t),
                       std::min(kMostThreadRegisters, kRegisters / t.threads()));
  if (shared_bytes(t) > (t.stages == 1 ? kStaticBytes : kMostBytes))
    return ir::invalid("{} bytes of shared memory, expected at most {}", shared_bytes(t),
                       t.stages == 1 ? kStaticBytes : kMostBytes);
  return {};
}

const std::vector<TensorTile>& tensor_tiles() {
  static const std::vector<TensorTile> tiles = [] {
    std::vector<TensorTile> out;
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{128, 128},
                                        {128, 64},
                                        {64, 128},
                                        {64, 64},
                                        {128, 32},
                                        {32, 128},
                                        {32, 64},
                                        {64, 32},
                                        {16, 128},
                                        {16, 64},
                                        {32, 32},
                                        {128, 16},
                                        {64, 16},
                                        {32, 16},
                                        {128, 8},
                                        {64, 8},
                                        {32, 8}}) {
      for (const auto& [down, across] : {std::pair<int64_t, int64_t>{64, 32},
                                         {32, 64},
                                         {64, 64},
                                         {32, 32},
                                         {16, 32},
                                         {32, 16},
                                         {16, 16},
                                         {32, 8},
                                         {16, 8}}) {
        for (const int64_t depth : {32, 64, 128}) {
          const bool few = columns <= kFew;
          if (across == kColumns && columns != kColumns) continue;
          if (depth == 128 && !few) continue;
          TensorTile tile{rows, columns, depth, down, across};
          if (!check_tile(tile).ok()) {  // a step would not go by registers
            tile.stages = 2;
            tile.swizzled = true;
          }
          if (!check_tile(tile).ok() || tile.threads() < 64 || tile.threads() > 256) continue;
          out.push_back(tile);
          tile.swapped = true;
          if (columns <= kMostSwapped) out.push_back(tile);
        }
      }
    }
    return out;
  }();
  return tiles;
}

double tensor_cycles(const TensorTile& t, const ProductShape& s, const ir::GpuTarget& gpu) {
  const auto step = static_cast<double>(t.depth), warps = static_cast<double>(t.threads()) / kWarp,
             area = static_cast<double>(t.rows * t.columns), lines = static_cast<double>(t.rows + t.columns),
             warp_lines = static_cast<double>(t.warp_rows + t.warp_columns);
  // What a multiprocessor does for a step: products, reads of squares from shared memory, stores of what is staged.
  const double products = step * area / kProducts;
  const double shared = step * (warps * warp_lines + lines) * 2 / kSharedCycle;
  const double stores = t.stages == 1 ? lines / 8 : lines / 16;
  const double issue = step / kSquare * (area / (kSquare * 8) + warps * (warp_lines / kSquare + 4) + stores) / kIssue;
  TileWork work;
  work.tiles = tiles_of(t, s);
  const SumParts parts(t, s);
  work.tiles *= parts.count;
  work.steps = ceil_div(parts.depth, t.depth);
  work.threads = t.threads();
  work.registers = registers(t);
  work.shared = shared_bytes(t);
  work.stages = t.stages;
  work.step = std::max(kOverlap * (products + shared), issue) * (reads_ahead(t) ? 1 : kWaits);
  work.rest = area * 2 / 32 * (t.staged ? kStagedRest : 1);
  work.chain = reads_ahead(t) ? 0 : step / kSquare * kChain;
  const double results = t.staged ? area : kHalfSectors * area;
  const double l2 =
      static_cast<double>(work.tiles) * (static_cast<double>(parts.depth) * lines + results) * 2 / kL2Bytes;
  const double busy = busy_cycles(work, gpu);
  return std::max({busy, l2, memory_cycles(s, 2)}) + kWorth * busy + parts.cycles;
}

std::vector<TensorTile> ranked_tensor_tiles(const ProductShape& shape, const ir::GpuTarget& gpu) {
  const auto with_stages_and_parts = [&](TensorTile tile) {
    std::vector<int64_t> parts = shared_terms(tiles_of(tile, shape), shape, tile.depth, gpu);
    parts.insert(parts.begin(), 0);
    std::vector<TensorTile> out;
    for (const int64_t stages : {1, 2, 3, 4, 6}) {
      tile.stages = stages;
      tile.swizzled = stages > 1;  // asynchronous copies fill lines of 128 bytes, which padding would move apart
      if (stages > 1 && (!shape.copied || shared_bytes(tile) > most_shared(gpu))) continue;
      for (const int64_t terms : parts) {
        tile.terms = terms;
        tile.staged = false;
        out.push_back(tile);
        tile.staged = shape.lines;
        if (tile.staged && shared_bytes(tile) <= most_shared(gpu)) out.push_back(tile);
      }
    }
    return out;
  };
  std::vector<TensorTile> tiles = tensor_tiles();
  std::erase_if(tiles, [&](const TensorTile& t) {
    return t.stages > 1 && (!shape.copied || shared_bytes(t) > most_shared(gpu));
  });
  return ranked_at_best(std::move(tiles), with_stages_and_parts,
                        [&](const TensorTile& t) { return tensor_cycles(t, shape, gpu); });
}

}  // namespace lathe::search
