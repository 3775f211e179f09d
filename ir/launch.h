// What a GPU runs of a scheduled Kernel: launches, in order, and their leaves. The counterpart of nest.h: search makes
// them, jit generates code for the leaves, runtime launches it.
//
//   scheduled Kernel ── cut_launches ──▶ LaunchKernel { a launch for each outermost @grid scope }  +  device leaves
#pragma once
#include <vector>

#include "ir/nest.h"

namespace lathe::ir {

// One launch: a grid of blocks of threads, each of which runs the leaf. Launches of a Kernel follow each other; nothing
// else orders their threads.
struct Launch {
  int leaf = 0;  // index into LaunchKernel::leaves
  std::vector<int>
      operands;             // p0, p1, ...: indices of the Kernel's parameters, each from its first element on, then of
                            // its heap buffers, which launches hand each other
  std::vector<Expr> sizes;  // e0, e1, ...: expressions of the Kernel's symbols
  bool persistent = false;  // of the blocks of the grid no more are launched than run at once, and go through all
  int cluster = 1;          // blocks that run at once: the innermost of `grid`
  std::vector<Expr> grid;   // extents of @grid and @cluster scopes, outermost first: expressions of symbols
};

// A device leaf is a Leaf whose outermost scope is @grid: its parameters are whole parameters of the Kernel, with their
// dims and strides as expressions of e0, e1, ...
struct LaunchKernel {
  Kernel kernel;  // the scheduled Kernel it came from
  std::vector<Launch> launches;
  std::vector<Leaf> leaves;
};

}  // namespace lathe::ir
