// The instructions of tiles that a program needs, which nothing else stands for: a compiler that made fewer has left
// some out.
#pragma once
#include <string>

#include "jit/cuda/compile/cubin.h"
#include "jit/cuda/device_program.h"

namespace lathe::jit {

struct TileCounts {
  int64_t mma = 0, matrix_loads = 0;      // of a warp
  int64_t group_mma = 0, box_copies = 0;  // of four warps; of a tensor
};
// Each statement once, whatever is around it, and once for each copy of an unrolled loop.
TileCounts tile_counts(const DeviceProgram& program);

// "3 of 4 HGMMA" of the first kind of which there are too few; empty: there are enough, or the file does not show its
// instructions.
std::string missed_tiles(const TileCounts& wanted, const CubinInfo& made);

}  // namespace lathe::jit
