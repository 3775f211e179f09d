// A Nest bound to one shape: every symbol is a number, every expression a constant, a minimum of affine forms of loop
// iterators and locals, or (rare) a small postfix program, which may read integers of the arguments. A local is a value
// that is no such form, such as an integer that is read: computed once in each iteration of the innermost loop that it
// follows. bind_nest() makes it, walk() runs it. Immutable once made; shared by threads; holds no reference to the
// CutKernel. Do not move it while somebody walks it.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "ir/leaf_abi.h"
#include "runtime/walk/direct_call.h"

namespace lathe::runtime {

inline constexpr int kMaxNestDepth = 16;        // loops above a call
inline constexpr int kMaxNestBuffers = 64;      // arguments and scratch
inline constexpr int kMaxInnerCalls = 16;       // calls of one innermost loop that are advanced by increments
inline constexpr int kMaxChangingSegments = 8;  // of a call whose segments are not the same each time
inline constexpr int kMaxNestStack = 24;        // values on the stack of a postfix program
inline constexpr int kMaxNestLocals = 40;       // those beyond are computed where they are used
inline constexpr int kMaxParallelLoops = 6;     // that are one space

struct Term {
  int64_t coeff;
  int32_t level;
};
// base + Σ coeff * iterator[level]; levels from kMaxNestDepth on are locals.
struct Affine {
  int64_t base = 0;
  uint32_t first_term = 0, num_terms = 0;
};

struct ProgramStep {
  enum class Kind : uint8_t {
    constant,
    iterator,
    load_i8,
    load_u8,
    load_i32,
    load_i64,
    add,
    sub,
    mul,
    floordiv,
    mod,
    ceildiv,
    min,
    max,
    neg,
    abs,
    lt,
    le,
    eq,
    ne,
    land,
    lor,
    lnot,
    select
  };
  Kind kind;
  int64_t value =
      0;  // constant: itself; iterator: its level, or a local's; load: the argument, whose element is on the stack
};

struct Form {
  enum class Kind : uint8_t { constant, minimum, program };
  Kind kind = Kind::constant;
  uint64_t levels = 0;            // bit l: the value depends on iterator l, perhaps through locals
  int64_t value = 0;              // constant
  uint32_t first = 0, count = 0;  // minimum: affines; program: steps
};

// iterator[level] = form, or the element of that number of an argument.
struct BoundLocal {
  int32_t level = 0;
  bool loads = false;
  ProgramStep load = {};  // its kind and argument
  Form form;
};
// Of BoundNest::locals, in the order in which they are computed.
struct LocalRange {
  uint32_t first = 0, count = 0;
};

// Address = bases[buffer] + bytes.
struct BoundPointer {
  uint32_t buffer = 0;
  uint8_t slot = 0;  // operand slot, or stream number
  bool stream = false;
  bool general = false;  // bytes is not affine: `form` gives it
  bool follows = false;  // a local of the innermost enclosing loop, or its iterator in `form`: no constant step
  Form form;             // general: bytes to add to those of `bytes`
  Affine bytes;
  int64_t inner_step = 0;  // bytes per step of the innermost enclosing loop; not in `bytes`
};

// An extent, a number of a segment or a variant digit that is not the same in every call.
struct DynamicValue {
  enum class Use : uint8_t { extent, segment_len, segment_a, segment_b, variant };
  Use use = Use::extent;
  uint8_t slot = 0;    // extent or segment: its number
  int32_t count = 1;   // variant: number of values
  bool inner = false;  // depends on the innermost enclosing loop
  Form form;
};

struct BoundCall {
  ir::LeafArgs args;           // strides, constant extents, nseg, streams' steps and lengths (in `end`)
  uint32_t first_segment = 0;  // args.nseg of them
  uint8_t num_operands = 0, num_extents = 0, num_streams = 0;
  bool variants = false;         // some digit is dynamic
  int8_t inner_level = -1;       // innermost enclosing loop
  bool inner_values = false;     // some value depends on the innermost loop
  bool pointers_follow = false;  // some pointer's steps along the innermost loop are not constant
  bool segments_change = false;  // some number of a segment is dynamic
  uint32_t leaf = 0;             // constant variant: the leaf; else the first of leaf_table
  uint32_t first_pointer = 0, num_pointers = 0;
  uint32_t first_value = 0, num_values = 0;  // variant digits in order, first one slowest
};

struct BoundNode {
  bool loop = false;
  bool inner = false;  // a loop of calls only
  uint8_t level = 0;
  uint32_t call = 0;
  bool even = false;  // a parallel loop around parallel ones, which run equally often in all its iterations
  uint32_t first_child = 0, num_children = 0;
  Form extent;
  int64_t most = 0;  // iterations
  // A loop of ceildiv(size, unit) iterations, of which the last has fewer elements, is shared out by its elements; unit
  // 1: by its iterations.
  int64_t unit = 1;
  Form size;
  LocalRange locals;  // of an iteration
};

// One parallel_for of `parts` contiguous shares of the iterations of the innermost of its parallel loops, or of their
// elements; the loops are around one another. parts == 1: a serial run.
struct BoundPhase {
  uint32_t first_node = 0, num_nodes = 0;
  int parallel_loops = 0;
  int parts = 1;
  LocalRange locals;  // that follow no loop
};

struct BoundScratch {
  int64_t offset = 0, bytes = 0;  // from the workspace; per thread: + part * bytes
  bool per_thread = false;
};

struct BoundNest {
  int num_params = 0;
  int threads = 1;                   // most parts of any phase
  int64_t workspace_bytes = 0;       // 64-byte aligned memory the caller provides
  bool vzeroupper = false;           // the CPU has AVX
  std::optional<DirectCall> direct;  // the nest is one call whose numbers are constant
  std::vector<BoundPhase> phases;
  std::vector<BoundNode> nodes;
  std::vector<BoundCall> calls;
  std::vector<BoundPointer> pointers;
  std::vector<DynamicValue> values;
  std::vector<ir::LeafSeg> segments;
  std::vector<BoundScratch> scratch;
  std::vector<uint32_t> leaf_table;
  std::vector<Affine> affines;
  std::vector<Term> terms;
  std::vector<ProgramStep> program;
  std::vector<BoundLocal> locals;
  uint32_t num_leaves = 0;     // walk() needs this many LeafRefs
  int64_t num_calls_hint = 0;  // calls of one walk, an upper bound (saturated): for partition and display
};

}  // namespace lathe::runtime
