// A scheduled Kernel after cut(): loops as data, leaves as Kernels of their own. All sizes are still symbolic; runtime
// binds them to one shape, then walks. Plain values. An integer of a nest may read an input that has a range of values:
// load(input, {offset of the element}), where the offset is such an integer itself.
//
//   kernel ── cut ──▶ Nest { phases of loops and calls }  +  leaves (Kernels in canonical form, see docs/ir.md)
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/core/kernel.h"

namespace lathe::ir {

// One leaf in canonical form: a Kernel whose parameters are its operand slots in order (p0, p1, ...), whose symbols are
// its extent slots in order (e0, e1, ...), whose iterators are i0, i1, ... in order of appearance. `text` is its
// printed form, the base of its key.
struct Leaf {
  Kernel kernel;
  std::string text;
};

// A scratch buffer the walker provides. bytes is an expression of symbols.
struct NestScratch {
  std::string name;
  Expr bytes;
  bool per_thread = false;  // stack: one per thread; heap: shared
};

// An operand of a call: buffer plus an element offset affine in nest iterators (any expression of symbols and nest
// iterators that is affine once symbols are known), and the strides of the dimensions the leaf indexes, in elements.
struct NestOperand {
  int buffer = -1;  // < num_params: argument; else scratch[buffer - num_params]
  DType type = DType::f32;
  Expr offset;
  std::vector<Expr> strides;
};

// Where a call's prefetch stream points: operand `operand`'s address + distance bytes; with spread_iter, share number i
// of the `block_bytes` ahead, for that iterator's value i of its trip count. Without an operand: its own place `share`,
// from which it moves by `share_step` bytes every four steps.
struct NestStream {
  int operand = -1;
  int64_t distance = 0;  // bytes, when spread_iter is empty
  std::string spread_iter;
  Expr block_bytes;  // bytes the enclosing tensor loop reads of the operand in one call
  int lines = 0;     // per four steps, baked in the leaf
  NestOperand share;
  Expr share_step;
};

// One piece of a call's tensor loop: `len` steps, with the two operands that the loop walks moved by so many bytes from
// where they lie (null: 0). Expressions of symbols and nest iterators.
struct NestSegment {
  Expr len;
  Expr a_bytes, b_bytes;
};

struct NestCall {
  // leaves[v] where v is chosen by the variant extents, first one slowest: v = ((e_0 - 1) * count_1 + (e_1 - 1)) ...
  // An empty variants list means leaves[0].
  struct Variant {
    Expr extent;  // value 1..count at run time; <= 0: the call is skipped
    int count = 1;
  };
  std::vector<Variant> variants;
  std::vector<int> leaves;  // indices into CutKernel::leaves
  std::vector<NestOperand> operands;
  std::vector<Expr> extents;          // e0, e1, ...: min/affine expressions of symbols and nest iterators
  std::vector<NestSegment> segments;  // of the tensor loop, run in order; empty: the leaf has none
  std::vector<NestStream> streams;
};

struct NestNode {
  enum class Kind : uint8_t { loop, call };
  Kind kind = Kind::call;
  std::string iter;  // loop
  Expr extent;
  bool parallel = false;
  std::vector<NestNode> body;
  NestCall call;
};

// Each top-level node is a phase: one parallel_for (over its leading parallel loops) or a serial run, no barrier
// inside.
struct Nest {
  int num_params = 0;
  std::vector<NestScratch> scratch;
  std::vector<NestNode> phases;
};

struct CutKernel {
  Kernel kernel;  // the scheduled Kernel it came from
  Nest nest;
  std::vector<Leaf> leaves;
};

}  // namespace lathe::ir
