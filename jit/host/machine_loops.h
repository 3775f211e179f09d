// Loops that measure what a core can do at most, one set for each width of vectors. They time nothing themselves.
#pragma once
#include <cstdint>
#include <span>

#include "ir/base/dtype.h"
#include "ir/base/target.h"

namespace lathe::jit {

inline constexpr int kFmaChains = 12;  // more than latency times issue width of any core so far

struct MachineLoops {
  ir::IsaLevel level;  // to be called only where host_target() has it
  int lanes;           // of f32
  // kFmaChains independent chains of `steps` multiply-adds of whole vectors; portable: of a multiplication, then an
  // addition.
  void (*fma)(int64_t steps);
  // Reads cache lines in `streams` equal parts side by side.
  void (*read)(const char* data, int64_t lines, int streams);
  void (*copy)(char* to, const char* from, int64_t lines);
};
// Narrowest first.
std::span<const MachineLoops> machine_loops();

// Independent chains of sums of products of factors shorter than f32, in registers.
struct DotLoop {
  const char* instruction;  // the one that multiplies
  ir::DType factors;        // bf16, or i8 for bytes
  uint64_t features;        // to be called only where host_target() has them
  int instructions;         // that a vector of products takes on the pipes of vectors, its sums included; 0: tiles do
  int64_t operations;       // of a step; a multiply-add is two
  void (*run)(int64_t steps);
};
std::span<const DotLoop> dot_loops();

}  // namespace lathe::jit
