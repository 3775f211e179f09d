// A leaf program made ready for the portable executor: tier T0. Flat operations with jumps instead
// of a tree, and few vector registers instead of many. Immutable after construction, so threads
// share one; run() allocates only when a program needs more than kStackRegisters registers at once.
#pragma once
#include <cstdint>
#include <vector>

#include "jit/program/leaf_program.h"

namespace lathe::jit {

// One operation of the executor. `code` is a LeafOp or one of the Control values above them.
struct FlatOp {
  enum Control : uint8_t {
    kSetVar = kLeafOpCount,  // var = 0
    kLoopTest,               // if (var + step > extent) jump
    kLoopNext,               // pointer steps; var += step; jump
    kIfLess,                 // if (var >= extent) jump
    kIfAny,                  // if (no lane of mask) jump
    kSegFirst,               // segment = 0
    kSegTest,                // if (segment == nseg) jump; else set the two pointers and seglen
    kSegNext,                // segment += 1; jump
    kSetPtr,                 // ptr[dst] = ptr[ptr] + step 0
    kAddStream,              // ptr[dst] += stream[index].step
    kEnd,
  };
  uint8_t code = kEnd;
  MemType type = MemType::b32;
  Mem::Index index_kind = Mem::Index::none;
  int8_t extent_arg = Extent::kConst;
  int32_t dst = -1, src[3] = {-1, -1, -1}, mask = -1;
  int32_t ptr = -1, index = 0, scale = 1, disp = 0;  // index: variable or stride
  uint32_t imm = 0;
  int32_t var = -1, jump = 0;
  int32_t first_step = 0, num_steps = 0;  // in PreparedProgram::steps
  int64_t step = 1;                       // loops; mask_tail: added to the variable
  int64_t extent_add = 0;
  int32_t seg[4] = {-1, -1, -1, -1};  // ptr a, base a, ptr b, base b
};
struct FlatStep {
  int32_t ptr = -1;
  int32_t stride[2] = {0, 0};
  int64_t bytes = 0, mult[2] = {0, 0};  // mult 0: no term
};
struct FlatPtr {
  int32_t slot = -1, stream = -1;
  FlatStep offset;
};

struct PreparedProgram {
  static constexpr int kStackRegisters = 128;

  explicit PreparedProgram(const LeafProgram& program);  // which verifies
  void run(const ir::LeafArgs& args) const;

  int lanes = 8;
  int num_vregs = 0, num_masks = 0, num_vars = 0;  // after compaction
  uint8_t tile_rows[kMaxTiles] = {};
  std::vector<FlatPtr> ptrs;
  std::vector<FlatOp> ops;
  std::vector<FlatStep> steps;
};

// Where a run keeps its state; vregs and masks are arrays of `lanes` 32-bit lanes each.
struct PortableState {
  float* vregs;
  int32_t* masks;  // 0 or -1 a lane
  int64_t* vars;
  char** ptrs;
  char* tiles;  // kTileRows * kTileBytes each, zeros at first; null: none is used
};
// The executor compiled for whatever the library is built for, and the fastest one on this CPU (jit/host): the same
// bits, other speed.
void portable_run_baseline(const PreparedProgram& program, const ir::LeafArgs& args, PortableState state);
void portable_run_host(const PreparedProgram& program, const ir::LeafArgs& args, PortableState state);

}  // namespace lathe::jit
