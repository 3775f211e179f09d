// The calling convention of a leaf: void leaf(const LeafArgs*), System V, no other argument, no result. A leaf has no
// undefined symbol, touches at most 1 KB of stack, leaves MXCSR alone, and may leave the upper halves of vector
// registers dirty (the walker does vzeroupper once per phase). It reads and writes nothing outside its tensors. This
// layout is part of the code environment: change it and kLeafAbi moves.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lathe::ir {

inline constexpr uint32_t kLeafAbi = 2;
inline constexpr int kMaxLeafOperands = 12;
inline constexpr int kMaxLeafStrides = 4;  // per operand
inline constexpr int kMaxLeafExtents = 8;
inline constexpr int kMaxLeafStreams = 2;

// Address of the element at leaf-local index 0, and bytes per step of each dimension the leaf indexes.
struct LeafOperand {
  char* ptr;
  int64_t stride[kMaxLeafStrides];
};

// One piece of a batch-reduce sum: the tensor loop runs `len` steps with A at a_off and B at b_off bytes from their
// operands. `entry` selects the body (0: the only one so far).
struct LeafSeg {
  int64_t a_off;
  int64_t b_off;
  int64_t len;
  uint32_t entry;
  uint32_t reserved;
};

// Where a tensor loop prefetches: every four steps it touches its baked number of cache lines from ptr on (lines past
// `end` are harmless: prefetch never faults), then ptr moves by `step` bytes.
struct LeafStream {
  const char* ptr;
  int64_t step;
  int64_t lines_per_4k;  // as baked; informative
  const char* end;
};

struct LeafArgs {
  LeafOperand op[kMaxLeafOperands];
  int64_t extent[kMaxLeafExtents];
  int64_t nseg;
  const LeafSeg* seg;
  LeafStream stream[kMaxLeafStreams];
};

using LeafFn = void (*)(const LeafArgs*);

static_assert(sizeof(LeafOperand) == 40 && sizeof(LeafSeg) == 32 && sizeof(LeafStream) == 32);
static_assert(offsetof(LeafArgs, extent) == 480 && sizeof(LeafArgs) == 480 + 64 + 16 + 64);

}  // namespace lathe::ir
