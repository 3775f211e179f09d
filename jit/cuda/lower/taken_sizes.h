// Integers of the caller's that say how often scopes of a device leaf run, such as the ends of groups of rows: a block
// takes each of them once, and they are sizes of it from then on.
#pragma once
#include <string>
#include <vector>

#include "ir/core/kernel.h"
#include "jit/cuda/device_program.h"

namespace lathe::jit {

struct TakenSizes {
  struct Take {
    std::string name, buffer;
    std::vector<ir::Expr> index;  // of @grid iterators
  };
  ir::Kernel kernel;  // the leaf, with symbols in their places
  std::vector<Take> takes;
};
TakenSizes take_sizes(const ir::Kernel& leaf);
// A program of that Kernel, in which they are taken.
void bring_in(const TakenSizes& sizes, DeviceProgram& program);

}  // namespace lathe::jit
