// A leaf program: loops around straight-line operations on virtual vector registers. lower_leaf() makes one from a leaf
// Kernel for a Target; three executors translate it: x64 (xbyak), the LLVM plug-in, and the portable C++ interpreter
// (T0). Polynomials, contraction and reduction trees are explicit here, so all three give equal bits.
//
//   ptr 0 = op[0] ...                    pointers: virtual 64-bit registers, set up before the body
//   loop x0 = 0; x0 + 16 <= e1; x0 += 16
//     v0 = load [ptr 0 + x0 * 4]
//     v1 = fma v0, v2, v3
//     store [ptr 1 + x0 * 4], v1
//   if x0 < e1
//     k0 = mask_tail x0, e1
//     ...
// A plain value; serialise() gives the bytes the plug-in gets, and to_text() the form people read.
#pragma once
#include <cstdint>
#include <memory_resource>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/base/target.h"
#include "ir/leaf_abi.h"

namespace lathe::jit {

enum class LeafOp : uint8_t {
#define LATHE_LEAF_OP(id, sources, kind) k_##id,
#include "jit/program/leaf_ops.def"
#undef LATHE_LEAF_OP
};
inline constexpr int kLeafOpCount = 0
#define LATHE_LEAF_OP(id, sources, kind) +1
#include "jit/program/leaf_ops.def"
#undef LATHE_LEAF_OP
    ;
enum class LeafOpKind : uint8_t { kArith, kLoad, kStore, kConst, kMask, kPtr, kHint, kTile };
const char* leaf_op_name(LeafOp op);
inline constexpr int8_t kLeafOpSources[] = {
#define LATHE_LEAF_OP(id, sources, kind) sources,
#include "jit/program/leaf_ops.def"
#undef LATHE_LEAF_OP
};
inline constexpr LeafOpKind kLeafOpKinds[] = {
#define LATHE_LEAF_OP(id, sources, kind) LeafOpKind::kind,
#include "jit/program/leaf_ops.def"
#undef LATHE_LEAF_OP
};
inline int leaf_op_sources(LeafOp op) { return kLeafOpSources[static_cast<int>(op)]; }
inline LeafOpKind leaf_op_kind(LeafOp op) { return kLeafOpKinds[static_cast<int>(op)]; }

inline constexpr int kMaxTiles = 8, kTileRows = 16, kTileBytes = 64;  // a row
inline int tile_of(uint32_t imm, int which) { return static_cast<int>(imm >> (4 * which) & 15); }

// A loop bound or mask bound in elements: extent[arg] (arg >= 0), the current segment's len (kSegLen) or 0 (kConst),
// plus `add`.
struct Extent {
  static constexpr int kConst = -1, kSegLen = -2;
  int arg = kConst;
  int64_t add = 0;
};

// Address = ptr + index * scale + disp. index_kind says what `index` is.
struct Mem {
  enum class Index : uint8_t { none, var, stride };
  int ptr = -1;  // pointer register
  Index index_kind = Index::none;
  int index = 0;     // var: index variable; stride: slot * kMaxLeafStrides + dim, that operand stride in bytes
  int scale = 1;     // 1, 2, 4 or 8
  int32_t disp = 0;  // bytes
};

// What an element is in memory: see mem_types.def.
enum class MemType : uint8_t {
#define LATHE_MEM_TYPE(id, bytes, feature) id,
#include "jit/program/mem_types.def"
#undef LATHE_MEM_TYPE
};
inline constexpr int8_t kMemTypeBytes[] = {
#define LATHE_MEM_TYPE(id, bytes, feature) bytes,
#include "jit/program/mem_types.def"
#undef LATHE_MEM_TYPE
};
inline constexpr int kMemTypeCount = static_cast<int>(sizeof kMemTypeBytes);
const char* mem_type_name(MemType type);

struct Inst {
  LeafOp op;
  int dst = -1;  // vector register, or mask register for kMask
  int src[3] = {-1, -1, -1};
  int mask = -1;                // mask register of a load, store or blend; -1: none
  Mem mem;                      // loads, stores, prefetch; mem.ptr < 0 on arithmetic
  uint32_t imm = 0;             // constant: the 32 bits; shifts, shuffles: the count or control; index_i32: lanes apart
  int var = -1;                 // mask_tail, index_i32: index variable (-1: constant 0)
  int64_t var_add = 0;          // mask_tail: added to the index variable; tile_load, tile_store: bytes between rows
  Extent extent;                // mask_tail, extent_f32, index_i32
  MemType type = MemType::b32;  // loads, stores
};

// A pointer register's change: ptr += bytes + sum of mult * op stride.
struct PtrTerm {
  int stride = -1;  // slot * kMaxLeafStrides + dim
  int64_t mult = 0;
};
struct PtrStep {
  int ptr = -1;
  int64_t bytes = 0;
  std::vector<PtrTerm> terms;  // at most two
};

struct NodeFields {
  enum class Kind : uint8_t {
    inst,
    loop,     // [var = 0 if init]; while (var + step <= extent) { body; steps; var += step }
    if_less,  // if (var < extent) body
    // for s < nseg: ptr[a] = base_a + seg.a_off, ptr[b] = base_b + seg.b_off, body (with Extent::kSegLen = seg.len)
    segments,
    set_ptr,     // ptr[steps[0].ptr] = ptr[from] + steps[0]
    set_var,     // var = 0
    add_stream,  // ptr[steps[0].ptr] += stream[from].step
    if_any,      // if (any lane of mask) body: for what is seldom needed
  };
  Kind kind = Kind::inst;
  Inst inst;
  int var = -1;
  bool init = true;
  int64_t step = 1;
  Extent extent;
  std::vector<PtrStep> steps;
  int from = -1;
  int seg_ptr_a = -1, seg_base_a = -1, seg_ptr_b = -1, seg_base_b = -1;
  int mask = -1;  // if_any: mask register
};
// Nodes and the bodies inside them lie where their list does: a list made with a memory resource hands it down.
struct Node;
using Nodes = std::pmr::vector<Node>;
struct Node : NodeFields {
  using allocator_type = std::pmr::polymorphic_allocator<>;
  Nodes body;

  Node() = default;
  explicit Node(allocator_type memory) : body(memory) {}
  Node(const Node&) = default;
  Node(Node&&) noexcept = default;
  Node(const Node& o, allocator_type memory) : NodeFields(o), body(o.body, memory) {}
  Node(Node&& o, allocator_type memory) : NodeFields(std::move(o)), body(std::move(o.body), memory) {}
  Node& operator=(const Node&) = default;
  Node& operator=(Node&&) = default;
};

// Initial value of a pointer register: op[slot].ptr or stream[stream].ptr, plus bytes and terms.
struct PtrInit {
  int slot = -1;
  int stream = -1;
  int64_t bytes = 0;
  std::vector<PtrTerm> terms;
};

struct LeafProgram {
  LeafProgram() = default;
  // Which must outlive it, and what is moved from it; a copy is on its own.
  explicit LeafProgram(std::pmr::memory_resource* memory) : body(memory) {}
  // Whether its code may use these features.
  bool has(uint64_t wanted) const { return (wanted & ~features()) == 0; }
  uint64_t features() const { return ir::isa_features(level) | extra; }
  // For what working on it takes.
  std::pmr::memory_resource* memory() const { return body.get_allocator().resource(); }

  std::string name;  // lathe_<family>_<dtype>_<tile>_<isa>_<hash8>
  ir::IsaLevel level = ir::IsaLevel::portable;
  int lanes = 8;              // of every vector register in this program
  int vector_registers = 16;  // that a generator may use
  int mask_registers = 0;
  uint8_t tile_rows[kMaxTiles] = {};               // of each tile register; 0: it is not used
  uint64_t extra = 0;                              // features that may be used, beside those of the level
  int num_vregs = 0, num_masks = 0, num_vars = 0;  // virtual registers are 0..n-1
  std::vector<PtrInit> ptrs;  // pointer register i starts as ptrs[i]; one with slot = stream = -1 starts undefined
  Nodes body;
};

// Programs of C++ have every instruction.
inline bool has_scalef(const LeafProgram& program) {
  return program.level == ir::IsaLevel::portable || program.has(ir::kCpu_avx512f);
}

inline bool has_dot2(const LeafProgram& program) {
  return program.level == ir::IsaLevel::portable || program.has(ir::kCpu_avx512bf16);
}

inline constexpr uint64_t kTileFeatures = ir::kCpu_amx_tile | ir::kCpu_amx_bf16;
inline bool multiplies_tiles(LeafOp op) {
  return op == LeafOp::k_tile_dot_bf16 || op == LeafOp::k_tile_dot_u8s8 || op == LeafOp::k_tile_dot_s8u8 ||
         op == LeafOp::k_tile_dot_s8s8;
}
inline bool has_tiles(const LeafProgram& program) { return program.tile_rows[0] != 0; }

// The one of these features that makes dot4_u8s8 one instruction; 0: a sequence of others computes it.
inline uint64_t dot4_feature(uint64_t features) {
  return features & ((features & ir::kCpu_avx512f) != 0 ? ir::kCpu_avx512vnni : ir::kCpu_avx_vnni);
}

std::string to_text(const LeafProgram& program);
std::vector<uint8_t> serialise(const LeafProgram& program);
ir::Result<LeafProgram> deserialise(const uint8_t* bytes, size_t size);

// Whether any instruction has this operation.
bool contains(const Nodes& body, LeafOp op);

// Checks what every generator relies on: registers defined before use on every path, ranges, loop structure.
ir::Status verify_program(const LeafProgram& program);

// Runs it in plain C++ (tier T0, and the oracle of the generators). Any level's program, on any machine. The program
// must verify. Flattens the program first: callers that run one often keep a PreparedProgram (portable_leaves.h).
void execute_portable(const LeafProgram& program, const ir::LeafArgs& args);

}  // namespace lathe::jit
