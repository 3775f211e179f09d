// Boxes that a device leaf copies to rings in shared memory (scopes @tensor(tma_2d)), and the maps of tensors that they
// are boxes of: made of the leaf alone, so that what is stored needs no device program to be launched.
#pragma once
#include <string>
#include <vector>

#include "ir/core/kernel.h"
#include "jit/cuda/device_program.h"

namespace lathe::jit {

// One scope's copy. Boxes have neighbours of one line of the target's swizzle, so there may be several.
struct BoxCopy {
  DeviceMap map;  // without a name
  std::string source, target;
  std::string near, far;   // iterators along neighbours, and from line to line
  size_t target_near = 0;  // dimensions of the target
  size_t target_far = 0;
  int64_t width = 0, lines = 0;  // elements of the target along each
  int64_t part = 0;              // lines that one block copies; fewer than all: to each block of its cluster
  std::vector<ir::Expr> at;      // of the first element, by dimensions of the map
};
// UNSUPPORTED: the copy is of another form than hardware has.
ir::Result<BoxCopy> box_copy(const ir::Kernel& leaf, const ir::Stmt& scope);

// Those of all scopes, in their order, each once: sizes are expressions of the leaf's symbols. None: no scope copies
// boxes.
ir::Result<std::vector<DeviceMap>> box_maps(const ir::Kernel& leaf);

}  // namespace lathe::jit
