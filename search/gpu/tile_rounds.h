// How a GPU goes through the tiles of a result: for the ranking of tiles.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "ir/base/gpu_target.h"

namespace lathe::search {

inline constexpr int64_t kRegisters = 65536;  // of a multiprocessor
inline constexpr double kL2Bytes = 5500;      // in a cycle of the GPU

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A block's work.
struct TileWork {
  int64_t tiles = 1;                               // blocks of the launch
  int64_t steps = 1;                               // of each
  int64_t threads = 1, registers = 1, shared = 0;  // of a block; of a thread; bytes of a block
  int64_t stages = 1;                              // of steps, of which one is used and the others are on their way
  double step = 0, rest = 0;  // cycles that a multiprocessor is busy with a step, and with all else
  double chain = 0;           // cycles of a step's instructions that wait for each other
};

// Cycles that its multiprocessors are busy, or wait for memory where no other block is there to run meanwhile.
inline double busy_cycles(const TileWork& w, const ir::GpuTarget& gpu) {
  constexpr int64_t kResidentThreads = 2048,
                    kReserved = 1024;  // bytes of shared memory that a block takes beside its own
  constexpr double kLatency = 700;     // from a load of a tile to its first use
  constexpr double kMeeting = 40;      // of a barrier
  const double waves = static_cast<double>(w.tiles) / std::max(gpu.multiprocessors, 1);
  const double busy = waves >= 1 ? static_cast<double>(ceil_div(w.tiles, std::max(gpu.multiprocessors, 1))) : 1;
  const auto resident = static_cast<double>(
      std::max<int64_t>(1, std::min({kResidentThreads / w.threads, kRegisters / (w.registers * w.threads),
                                     (most_shared(gpu) + kReserved) / (w.shared + kReserved)})));
  const double together = std::max(1.0, std::min(resident, waves)), steps = static_cast<double>(w.steps);
  const double arrives = w.stages == 1 ? kLatency + w.step : kLatency / static_cast<double>(w.stages - 1);
  const double waiting = busy / together * steps * std::max({arrives, w.step + kMeeting, w.chain + kMeeting});
  return std::max(busy * (steps * w.step + w.rest), waiting) + 0.1 * waiting + kLatency;
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

}  // namespace lathe::search
