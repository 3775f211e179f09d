// See product_tiles.h.
#include "search/gpu/product_tiles.h"

#include <algorithm>

namespace lathe::search {

namespace {

constexpr int64_t kWarp = 32, kVector = 4, kMostThreads = 1024;
constexpr int64_t kSharedBytes = 48 * 1024;  // of a block, without asking for more
constexpr int64_t kMostThreadSums = 64;      // leaves room for operands and addresses in 255 registers
constexpr int64_t kMostUnrolled = 1024;      // products of a thread in a step, written out
constexpr int64_t kResidentThreads = 2048, kRegisters = 65536, kResidentShared = 227 * 1024;
constexpr double kIssue = 4;            // instructions of warps in a cycle of a multiprocessor
constexpr double kL2Bytes = 5500;       // in a cycle of the GPU
constexpr double kBarrierCycles = 700;  // from a load of a tile to its first use, two barriers included

int64_t shared_bytes(const ProductTile& t) { return (t.rows + kVector + t.columns + kVector) * t.depth * 4; }
int64_t registers(const ProductTile& t) {
  return t.thread_rows * t.thread_columns + 2 * (t.thread_rows + t.thread_columns) + 40;
}
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr int64_t kSquare = 16, kPadding = 8;  // on tensor cores
constexpr int64_t kMostSums = 128;             // of a thread
constexpr int64_t kMostThreadRegisters = 232;
constexpr double kProducts = 1024;    // in a cycle of its tensor cores
constexpr double kSharedCycle = 128;  // bytes of shared memory in a cycle

// Of a step of so many terms, whichever way operands lie.
int64_t staged(const TensorTile& t, int64_t depth) {
  const auto of = [&](int64_t lines) { return 2 * std::max(lines * (depth + kPadding), depth * (lines + kPadding)); };
  return of(t.rows) + of(t.columns);
}
int64_t shared_bytes(const TensorTile& t) { return staged(t, t.depth) + staged(t, tail_depth(t)); }
int64_t sums(const TensorTile& t) { return t.warp_rows * t.warp_columns / kWarp; }
int64_t registers(const TensorTile& t) {
  const int64_t fragments = (t.warp_rows + t.warp_columns) * kSquare / 2 / kWarp;
  return sums(t) + fragments + (t.rows + t.columns) * t.depth / 2 / t.threads() + 40;
}

double depth_of(const ProductShape& s) { return static_cast<double>(std::max<int64_t>(s.depth, 1)); }

// How a GPU goes through the tiles of a result: cycles that a multiprocessor is busy for each that a tile takes it, and
// those that its steps wait for memory, but where other blocks are there to run meanwhile.
struct Rounds {
  double tiles = 0, busy = 1, waiting = 0;

  template <class Tile>
  Rounds(const Tile& t, const ProductShape& s, int multiprocessors) {
    const int64_t units = std::max(multiprocessors, 1);
    tiles = static_cast<double>(s.batch * ceil_div(std::max<int64_t>(s.rows, 1), t.rows) *
                                ceil_div(std::max<int64_t>(s.columns, 1), t.columns));
    const double waves = tiles / static_cast<double>(units);
    if (waves >= 1) busy = static_cast<double>(ceil_div(static_cast<int64_t>(tiles), units));
    const auto resident = static_cast<double>(
        std::max<int64_t>(1, std::min({kResidentThreads / t.threads(), kRegisters / (registers(t) * t.threads()),
                                       kResidentShared / shared_bytes(t)})));
    const double together = std::max(1.0, std::min(resident, waves));
    waiting = depth_of(s) / static_cast<double>(t.depth) * kBarrierCycles * busy / together;
  }
};

template <class Tile>
std::vector<Tile> ranked(std::vector<Tile> tiles, const ProductShape& shape, int multiprocessors,
                         double (*cycles)(const Tile&, const ProductShape&, int)) {
  std::stable_sort(tiles.begin(), tiles.end(), [&](const Tile& a, const Tile& b) {
    return cycles(a, shape, multiprocessors) < cycles(b, shape, multiprocessors);
  });
  return tiles;
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
  if (t.thread_rows * t.thread_columns > kMostThreadSums)
    return ir::invalid("{} sums of a thread, expected at most {}", t.thread_rows * t.thread_columns, kMostThreadSums);
  if (t.thread_rows * t.thread_columns * t.depth > kMostUnrolled)
    return ir::invalid("{} products of a thread in a step, expected at most {}",
                       t.thread_rows * t.thread_columns * t.depth, kMostUnrolled);
  if (registers(t) * t.threads() > kRegisters)
    return ir::invalid("{} registers of a block, expected at most {}", registers(t) * t.threads(), kRegisters);
  if (shared_bytes(t) > kSharedBytes)
    return ir::invalid("{} bytes of shared memory, expected at most {}", shared_bytes(t), kSharedBytes);
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

double product_cycles(const ProductTile& t, const ProductShape& s, int multiprocessors) {
  const double depth = depth_of(s);
  const auto warps = static_cast<double>(t.threads()) / kWarp;
  // What a multiprocessor issues for a tile: products, and accesses of four elements each for its operands.
  const auto sums = static_cast<double>(t.thread_rows * t.thread_columns);
  const auto operands = static_cast<double>(t.thread_rows + t.thread_columns);
  const double issue = depth * warps * (sums + operands / kVector + 2) / kIssue;
  // Shared memory hands out 128 bytes in a cycle: threads of a warp share what they read of rows.
  const double shared = depth * warps * operands / kVector * 1.5;
  const double copied = depth * static_cast<double>(t.rows + t.columns) * 4 / 32;
  const double results = static_cast<double>(t.rows * t.columns) * 4 / 32;
  const Rounds rounds(t, s, multiprocessors);
  const double tiles = rounds.tiles, busy = rounds.busy, waiting = rounds.waiting;
  const double l2 = tiles *
                    (depth * static_cast<double>(t.rows + t.columns) + static_cast<double>(t.rows * t.columns)) * 4 /
                    kL2Bytes;
  return std::max({busy * (std::max(issue, shared) + copied + results), waiting, l2}) + 0.1 * waiting;
}

std::vector<ProductTile> ranked_tiles(const ProductShape& shape, int multiprocessors) {
  return ranked(product_tiles(), shape, multiprocessors, product_cycles);
}

int64_t tail_depth(const TensorTile&) { return kSquare; }

ir::Status check_tile(const TensorTile& t) {
  for (const int64_t part : {t.rows, t.columns, t.depth, t.warp_rows, t.warp_columns}) {
    if (part < 1) return ir::invalid("a tile without elements");
    if (part % kSquare != 0) return ir::invalid("{} elements, expected a multiple of {}", part, kSquare);
  }
  if (t.depth % (2 * kSquare) != 0)
    return ir::invalid("a depth of {}, expected a multiple of {}", t.depth, 2 * kSquare);
  if (t.rows % t.warp_rows != 0 || t.columns % t.warp_columns != 0)
    return ir::invalid("a tile of {}x{}, which {}x{} does not divide", t.rows, t.columns, t.warp_rows, t.warp_columns);
  if (t.threads() > kMostThreads) return ir::invalid("{} threads, expected at most {}", t.threads(), kMostThreads);
  if (sums(t) > kMostSums) return ir::invalid("{} sums of a thread, expected at most {}", sums(t), kMostSums);
  if (registers(t) > kMostThreadRegisters || registers(t) * t.threads() > kRegisters)
    return ir::invalid("{} registers of a thread, expected at most {}", registers(t),
                       std::min(kMostThreadRegisters, kRegisters / t.threads()));
  if (shared_bytes(t) > kSharedBytes)
    return ir::invalid("{} bytes of shared memory, expected at most {}", shared_bytes(t), kSharedBytes);
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
                                        {32, 32}}) {
      for (const auto& [down, across] :
           {std::pair<int64_t, int64_t>{64, 32}, {32, 64}, {64, 64}, {32, 32}, {16, 32}, {32, 16}, {16, 16}}) {
        for (const int64_t depth : {32, 64}) {
          const TensorTile tile{rows, columns, depth, down, across};
          if (!check_tile(tile).ok()) continue;
          if (tile.threads() >= 64 && tile.threads() <= 256) out.push_back(tile);
        }
      }
    }
    return out;
  }();
  return tiles;
}

double tensor_cycles(const TensorTile& t, const ProductShape& s, int multiprocessors) {
  const double depth = depth_of(s);
  const auto warps = static_cast<double>(t.threads()) / kWarp;
  const auto area = static_cast<double>(t.rows * t.columns), lines = static_cast<double>(t.rows + t.columns),
             warp_lines = static_cast<double>(t.warp_rows + t.warp_columns);
  // What a multiprocessor does for a tile: products, reads of squares from shared memory, stores of what is staged.
  const double products = depth * area / kProducts;
  const double shared = depth * (warps * warp_lines + lines) * 2 / kSharedCycle;
  const double issue =
      depth / kSquare * (area / (kSquare * 8) + warps * (warp_lines / kSquare + 4) + lines / 8) / kIssue;
  const double results = area * 2 / 32;
  const Rounds rounds(t, s, multiprocessors);
  const double tiles = rounds.tiles, busy = rounds.busy, waiting = rounds.waiting;
  const double l2 = tiles * (depth * lines + area) * 2 / kL2Bytes;
  return std::max(busy * (std::max({products, shared, issue}) + results) + waiting, l2);
}

std::vector<TensorTile> ranked_tensor_tiles(const ProductShape& shape, int multiprocessors) {
  return ranked(tensor_tiles(), shape, multiprocessors, tensor_cycles);
}

}  // namespace lathe::search
