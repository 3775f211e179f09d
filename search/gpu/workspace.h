// How much of the caller's memory a Schedule may take for what its launches hand each other. A Schedule is chosen for
// the hinted sizes but serves all sizes of its Kernel, with as many parts for each result there; a host keeps workspace
// for the largest call.
#pragma once
#include <cstdint>

namespace lathe::search {

// At the largest sizes. About the L2 cache of an H100 (50 MB): parts beyond it are written to memory and read again,
// which takes longer than what sharing saves. What pays at the hints of models has at most 28 MiB.
inline constexpr int64_t kMostWorkspace = int64_t{64} << 20;

// Whether there is room for so many parts of results, each of so many numbers of f32. Of sizes without a bound the
// product fits no integer.
inline bool has_room(double results, int64_t parts, int64_t numbers = 1) {
  return results * static_cast<double>(parts * numbers) * 4 <= static_cast<double>(kMostWorkspace);
}

}  // namespace lathe::search
