// Register allocation for one leaf program. The structured program becomes a list of items; every virtual register gets
// one live interval over it, stretched over the loops that carry it. Vector and mask registers are coloured by linear
// scan and never spilled: where they do not suffice, loads are read again at each use, long-lived ones first.
// Constants used from memory get what registers are left, the most used first. General registers go to pointers, index
// variables and strides by use count; what gets none lives on the stack or in LeafArgs. Knows nothing of encodings.
#pragma once
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "ir/base/status.h"
#include "jit/program/leaf_program.h"

namespace lathe::jit::x64 {

// One position of the linear program.
struct Item {
  enum class Kind : uint8_t { inst, begin, end, set_ptr, set_var, add_stream };
  Kind kind = Kind::inst;
  bool skip = false;       // a load folded into its only use, or a constant that lives in the pool
  int8_t memory_src = -1;  // inst: the source that may come from memory (a folded load, or a constant without register)
  int8_t num_temps = 0;
  int pair = -1;   // a store: the item of an earlier one that is stored with it (pair_stores.h)
  int region = 0;  // innermost region around it; begin and end: the one they delimit
  int temp = -1;   // first of its scratch vector registers, as an index into Allocation::vector
  const Node* node = nullptr;
};

// A loop, if or segments body; region 0 is the program.
struct Region {
  int parent = -1, depth = 0, begin = 0, end = 0;
};

// What to load before position `pos`: values that sit in registers for a while but are defined outside the program's
// body.
struct Preload {
  enum class Kind : uint8_t { pointer, stride, constant, spread };
  int pos = 0;
  Kind kind = Kind::pointer;
  int index = 0;  // pointer, stride number, or vector register
};

struct VectorInfo {
  int defs = 0, uses = 0;
  int def_pos = -1;       // of the last definition
  bool constant = false;  // its only definition is a constant instruction
  bool folded = false;    // its only definition is a load that moved into its only use
};

struct Allocation {
  explicit Allocation(std::pmr::memory_resource* memory)
      : items(memory),
        regions(memory),
        info(memory),
        vector(memory),
        mask(memory),
        general(memory),
        slot(memory),
        preloads(memory) {}

  std::pmr::vector<Item> items;
  std::pmr::vector<Region> regions;
  std::pmr::vector<VectorInfo> info;   // per virtual vector register (and AVX2 mask, after them)
  std::pmr::vector<int8_t> vector;     // physical register per virtual one, then AVX2 masks, then temps; -1: none
  std::pmr::vector<int8_t> mask;       // AVX-512: k register per mask
  std::pmr::vector<int8_t> general;    // per general value: register number or -1
  std::pmr::vector<int16_t> slot;      // per general value: stack slot or -1
  std::pmr::vector<Preload> preloads;  // by position
  int num_slots = 0;
  uint32_t callee_saved = 0;  // mask of general registers to save
  int8_t spread = -1;         // AVX-512: the register of the indices that make elements of bf16 lanes; -1: none
  int num_vectors_used = 0;

  // Numbering of the general values.
  int num_ptrs = 0, num_vars = 0;
  int var_id(int var) const { return num_ptrs + var; }
  int stride_id(int stride) const { return num_ptrs + num_vars + stride; }
  int segment_id() const { return stride_id(ir::kMaxLeafOperands * ir::kMaxLeafStrides); }
  int segments_left_id() const { return segment_id() + 1; }
  int num_general() const { return segment_id() + 2; }
};

// What differs between the levels, for the allocator and the emitters.
struct Shape {
  bool evex = false;  // AVX-512 encodings and mask registers
  int lanes = 8;
  int vectors = 16;   // physical registers to use
  bool dot4 = false;  // dot4_u8s8 is one instruction
};

// A dot product that is one instruction: it reads its factors when its destination already holds the sum.
inline bool is_dot(LeafOp op, const Shape& shape) {
  return op == LeafOp::k_dot2_bf16 || (op == LeafOp::k_dot4_u8s8 && shape.dot4);
}
// Whether such a one must sum in a temporary: its result lies where a factor does.
bool dot_overwrites(const Inst& inst);

// UNSUPPORTED: not enough vector or mask registers. INVALID: a register number out of range. The program must outlive
// it, and lends its memory.
ir::Result<Allocation> allocate(const LeafProgram& program, const Shape& shape);

// Reserved: rsp, rdi (LeafArgs), rax and rdx (scratch).
inline constexpr int8_t kAllocatable[] = {1, 6, 8, 9, 10, 11, 3, 5, 12, 13, 14, 15};
inline constexpr uint32_t kCalleeSaved = 1u << 3 | 1u << 5 | 1u << 12 | 1u << 13 | 1u << 14 | 1u << 15;

}  // namespace lathe::jit::x64
