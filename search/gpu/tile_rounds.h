// How a GPU goes through the tiles of a result: for the ranking of tiles.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "ir/base/gpu_target.h"
#include "search/gpu/product_tiles.h"
#include "search/moves/schedule.h"

namespace lathe::search {

inline constexpr int64_t kRegisters = 65536;  // of a multiprocessor
inline constexpr double kL2Bytes = 5500;      // in a cycle of the GPU

inline constexpr double kWorth = 0.05;       // of cycles that are hidden behind memory
inline constexpr double kStagedRest = 0.75;  // of cycles that results take, where 16 bytes of them are stored at a time
inline constexpr double kHalfSectors = 2;    // times as many bytes of the L2 cache, where halves of sectors are stored

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// So many tiles below each other come before those beside them, so that blocks that run at once read the same rows and
// columns: a weight comes from memory once. 0: those of a row of tiles do.
inline constexpr int64_t kMostRaster = 16;
inline int64_t raster_of(int64_t below, int64_t tiles, const ir::GpuTarget& gpu) {
  constexpr int64_t kRaster = 8;  // about
  return below < 2 || tiles <= gpu.multiprocessors ? 0 : ceil_div(below, ceil_div(below, kRaster));
}

// A block's work.
struct TileWork {
  int64_t tiles = 1;                               // blocks of the launch
  int64_t steps = 1;                               // of each
  int64_t threads = 1, registers = 1, shared = 0;  // of a block; of a thread; bytes of a block
  int64_t stages = 1;                              // of steps, of which one is used and the others are on their way
  double step = 0, rest = 0;  // cycles that a multiprocessor is busy with a step, and with all else
  double meeting = 40;        // of a barrier in each step
  double chain = 0;           // cycles of a step's instructions that wait for each other
};

// Blocks that a multiprocessor has room for at once.
inline int64_t resident_blocks(const TileWork& w, const ir::GpuTarget& gpu) {
  constexpr int64_t kResidentThreads = 2048,
                    kReserved = 1024;  // bytes of shared memory that a block takes beside its own
  return std::max<int64_t>(1, std::min({kResidentThreads / w.threads, kRegisters / (w.registers * w.threads),
                                        (most_shared(gpu) + kReserved) / (w.shared + kReserved)}));
}

// Cycles that its multiprocessors are busy, or wait for memory where no other block is there to run meanwhile.
inline double busy_cycles(const TileWork& w, const ir::GpuTarget& gpu) {
  constexpr double kLatency = 700;  // from a load of a tile to its first use
  const double waves = static_cast<double>(w.tiles) / std::max(gpu.multiprocessors, 1);
  const double busy = waves >= 1 ? static_cast<double>(ceil_div(w.tiles, std::max(gpu.multiprocessors, 1))) : 1;
  const auto resident = static_cast<double>(resident_blocks(w, gpu));
  const double together = std::max(1.0, std::min(resident, waves)), steps = static_cast<double>(w.steps);
  const double arrives = w.stages == 1 ? kLatency + w.step : kLatency / static_cast<double>(w.stages - 1);
  const double waiting = busy / together * steps * std::max({arrives, w.step + w.meeting, w.chain + w.meeting});
  return std::max(busy * (steps * w.step + w.rest), waiting) + 0.1 * waiting + kLatency;
}

// Parts of sums that blocks share, and what it costs to add them up.
struct SumParts {
  int64_t count = 1, depth = 1;
  double cycles = 0;

  template <class Tile>
  SumParts(const Tile& t, const ProductShape& s) : depth(std::max<int64_t>(s.depth, 1)) {
    constexpr double kLaunch = 2500;  // from the end of one launch to the work of the next
    constexpr double kBytes = 1100;   // of parts that are stored and loaded again, in a cycle
    if (t.terms == 0) return;
    count = ceil_div(depth, t.terms);
    depth = std::min(depth, t.terms);
    cycles = kLaunch + static_cast<double>(2 * count * s.batch * s.rows * s.columns) * 4 / kBytes;
  }
};
// Terms of a part that are worth a try, by the number of blocks that there are without parts. depth: of a step.
inline std::vector<int64_t> shared_terms(int64_t blocks, const ProductShape& s, int64_t depth,
                                         const ir::GpuTarget& gpu) {
  constexpr int64_t kLeastSteps = 4;
  std::vector<int64_t> out;
  for (const int64_t parts : {2, 4, 8, 16}) {
    const int64_t part = ceil_div(ceil_div(s.depth, parts), depth) * depth;
    if (blocks >= gpu.multiprocessors || part < kLeastSteps * depth || part >= s.depth) break;
    if (!s.has_room_for(part)) break;
    out.push_back(part);
  }
  return out;
}
// INVALID: parts of sums that are no whole steps; or of so few that a loop of the stages runs once at most, whose
// accesses are not proven to stay inside of operands where a part is short.
template <class Tile>
ir::Status check_terms(const Tile& t, int64_t stages) {
  if (t.terms < 0 || t.terms % t.depth != 0)
    return ir::invalid("parts of {} terms, expected a multiple of {}", t.terms, t.depth);
  if (t.terms > 0 && (stages == 2 || t.terms / t.depth <= stages))
    return ir::invalid("parts of {} steps in {} stages, expected more steps than stages, and not 2 stages",
                       t.terms / t.depth, stages);
  return {};
}

// To read operands once, of elements of so many bytes.
inline double memory_cycles(const ProductShape& s, int bytes) {
  constexpr double kMemoryBytes = 2000;  // in a cycle
  return static_cast<double>(s.batch) * static_cast<double>(s.rows + s.columns) * static_cast<double>(s.depth) * bytes /
         kMemoryBytes;
}

template <class Tile>
std::vector<Tile> ranked(std::vector<Tile> tiles, const std::vector<double>& cycles) {
  std::vector<size_t> order(tiles.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return cycles[a] < cycles[b]; });
  std::vector<Tile> out;
  for (const size_t i : order) out.push_back(tiles[i]);
  return out;
}

// The same, where each tile stands for the best of itself and what others() makes of it; those that no GPU runs are
// left out.
template <class Tile, class Others, class Cycles>
std::vector<Tile> ranked_at_best(std::vector<Tile> tiles, const Others& others, const Cycles& cycles) {
  std::vector<double> all;
  for (Tile& best : tiles) {
    double least = cycles(best);
    for (const Tile& other : others(Tile(best))) {
      if (!check_tile(other).ok()) continue;
      const double of_other = cycles(other);
      if (of_other >= least) continue;
      least = of_other;
      best = other;
    }
    all.push_back(least);
  }
  return ranked(std::move(tiles), all);
}

// By the first of them that a Schedule can be made of; there is none: why the best has none.
template <class Tile, class Make>
ir::Result<Scheduled> first_made(const std::vector<Tile>& tiles, const Make& make) {
  ir::Result<Scheduled> out = make(tiles.front());
  for (size_t i = 1; i < tiles.size() && !out.ok(); ++i) {
    ir::Result<Scheduled> next = make(tiles[i]);
    if (next.ok()) return next;
  }
  return out;
}

}  // namespace lathe::search
