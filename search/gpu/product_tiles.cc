// See product_tiles.h.
#include "search/gpu/product_tiles.h"

#include <algorithm>

#include "search/gpu/tile_rounds.h"

namespace lathe::search {

namespace {

constexpr int64_t kWarp = 32, kVector = 4, kMostThreads = 1024;
constexpr int64_t kSharedBytes = 48 * 1024;                   // of a block, without asking for more
constexpr int64_t kMostThreadSums = 64;                       // leaves room for operands and addresses in 255 registers
constexpr int64_t kMostUnrolled = 1024;                       // products of a thread in a step, written out
constexpr int64_t kMostStages = 3, kStagedBytes = 64 * 1024;  // of a block: every GPU has room
constexpr int64_t kPlaces = 2;                                // of steps that come ahead
constexpr double kBoth = 0.25;  // of what issue and shared memory take, which is not hidden behind the other
constexpr double kIssue = 4;    // instructions of warps in a cycle of a multiprocessor

int64_t shared_bytes(const ProductTile& t) { return (t.rows + kVector + t.columns + kVector) * t.depth * 4; }
int64_t registers(const ProductTile& t) {
  const int64_t next = t.ahead ? (t.rows + t.columns) * t.depth / t.threads() : 0;
  return t.thread_rows * t.thread_columns + 2 * (t.thread_rows + t.thread_columns) + next + 40;
}

}  // namespace

ir::Status check_tile(const ProductTile& t) {
  for (const int64_t part : {t.rows, t.columns, t.depth, t.thread_rows, t.thread_columns}) {
    if (part < 1) return ir::invalid("a tile without elements");
  }
  if (t.rows % t.thread_rows != 0 || t.columns % t.thread_columns != 0)
    return ir::invalid("a tile of {}x{}, which {}x{} does not divide", t.rows, t.columns, t.thread_rows,
                       t.thread_columns);
  if (t.threads() % kWarp != 0 || t.threads() > kMostThreads)
    return ir::invalid("{} threads, expected whole warps of at most {}", t.threads(), kMostThreads);
  if (t.thread_columns % kVector != 0 || t.depth % kVector != 0)
    return ir::invalid("{} columns of a thread and a depth of {}, expected multiples of {}", t.thread_columns, t.depth,
                       kVector);
  LATHE_RETURN_IF_ERROR(check_terms(t, t.ahead ? kPlaces : product_stages(t)));
  if (t.thread_rows * t.thread_columns > kMostThreadSums)
    return ir::invalid("{} sums of a thread, expected at most {}", t.thread_rows * t.thread_columns, kMostThreadSums);
  if (t.thread_rows * t.thread_columns * t.depth > kMostUnrolled)
    return ir::invalid("{} products of a thread in a step, expected at most {}",
                       t.thread_rows * t.thread_columns * t.depth, kMostUnrolled);
  if (registers(t) * t.threads() > kRegisters)
    return ir::invalid("{} registers of a block, expected at most {}", registers(t) * t.threads(), kRegisters);
  if ((t.ahead ? kPlaces : 1) * shared_bytes(t) > kSharedBytes)
    return ir::invalid("{} bytes of shared memory, expected at most {}", (t.ahead ? kPlaces : 1) * shared_bytes(t),
                       kSharedBytes);
  return {};
}

const std::vector<ProductTile>& product_tiles() {
  static const std::vector<ProductTile> tiles = [] {
    std::vector<ProductTile> out;
    for (const auto& [rows, columns] :
         {std::pair<int64_t, int64_t>{128, 128}, {128, 64}, {64, 128}, {64, 64}, {32, 64}, {32, 32}, {16, 64}}) {
      for (const auto& [down, across] : {std::pair<int64_t, int64_t>{8, 8}, {4, 8}, {8, 4}, {4, 4}, {2, 4}}) {
        for (const int64_t depth : {8, 16, 32}) {
          const ProductTile tile{rows, columns, depth, down, across};
          if (tile.threads() >= 64 && tile.threads() <= 256 && check_tile(tile).ok()) out.push_back(tile);
        }
      }
    }
    return out;
  }();
  return tiles;
}

int64_t product_stages(const ProductTile& t) {
  const int64_t last = (t.rows + t.columns) * 4;
  return std::clamp<int64_t>((kStagedBytes - last) / shared_bytes(t), 1, kMostStages);
}

double product_cycles(const ProductTile& t, const ProductShape& s, const ir::GpuTarget& gpu) {
  const auto step = static_cast<double>(t.depth), lines = static_cast<double>(t.rows + t.columns),
             area = static_cast<double>(t.rows * t.columns);
  const auto warps = static_cast<double>(t.threads()) / kWarp;
  // What a multiprocessor issues for a step: products, and accesses of four elements each for its operands.
  const auto sums = static_cast<double>(t.thread_rows * t.thread_columns);
  const auto operands = static_cast<double>(t.thread_rows + t.thread_columns);
  const double issue = step * warps * (sums + operands / kVector + 2) / kIssue;
  // Shared memory hands out 128 bytes in a cycle: threads of a warp share what they read of rows.
  // Of an operand that is turned round, asynchronous copies of 4 bytes ask for each sector several times.
  const bool copied = s.copied && !t.ahead;
  const auto turned = static_cast<double>((s.turned_rows ? t.rows : 0) + (s.turned_columns ? t.columns : 0));
  const double shared = step * (warps * operands / kVector * 1.5 + turned * (copied ? 0.5 : 0.15));
  TileWork work;
  work.tiles =
      s.batch * ceil_div(std::max<int64_t>(s.rows, 1), t.rows) * ceil_div(std::max<int64_t>(s.columns, 1), t.columns);
  const SumParts parts(t, s);
  work.tiles *= parts.count;
  work.steps = ceil_div(parts.depth, t.depth);
  work.threads = t.threads();
  work.registers = registers(t);
  work.stages = t.ahead ? kPlaces : copied ? product_stages(t) : 1;
  work.shared = work.stages * shared_bytes(t);
  work.step = std::max(issue, shared) + kBoth * std::min(issue, shared) + step * lines * 4 / 32;
  work.rest = area * 4 / 32;
  const double l2 = static_cast<double>(work.tiles) * (static_cast<double>(parts.depth) * lines + area) * 4 / kL2Bytes;
  const double busy = busy_cycles(work, gpu);
  return std::max({busy, l2, memory_cycles(s, 4)}) + kWorth * busy + parts.cycles;
}

std::vector<ProductTile> ranked_tiles(const ProductShape& shape, const ir::GpuTarget& gpu) {
  const auto with_parts = [&](ProductTile tile) {
    const int64_t blocks = shape.batch * ceil_div(shape.rows, tile.rows) * ceil_div(shape.columns, tile.columns);
    std::vector<ProductTile> out;
    tile.ahead = shape.copied && (shape.turned_rows || shape.turned_columns);
    if (tile.ahead) out.push_back(tile);
    tile.ahead = false;
    for (const int64_t terms : shared_terms(blocks, shape, tile.depth, gpu)) {
      tile.terms = terms;
      out.push_back(tile);
    }
    return out;
  };
  return ranked_at_best(product_tiles(), with_parts,
                        [&](const ProductTile& t) { return product_cycles(t, shape, gpu); });
}

}  // namespace lathe::search
