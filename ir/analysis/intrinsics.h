// The intrinsic table: a tile instruction is a small Kernel with a name. search tensorizes with it, the interpreter
// runs its body, a generator emits it. Rows and what a match is: intrinsics.def.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ir/core/kernel.h"

namespace lathe::ir {

enum class IntrinsicLayout : uint8_t { kAnyLayout, kWithCopies, kAdjacent, kFragments, kBox };
inline constexpr int kWarpLanes = 32, kGroupLanes = 128;  // threads of a warp, and of four that compute together

struct Intrinsic {
  const char* name;     // "mma", "transpose"
  const char* meaning;  // text form of its Kernel; symbols are free sizes
  uint32_t numeric;     // NumericClass bits it adds
  uint64_t features;    // CpuFeature bits that its code needs
  IntrinsicLayout layout;
  int sm = 0;       // 0: of CPUs; else of GPUs from this compute capability on
  int threads = 1;  // that run it together: kWarpLanes, kGroupLanes
};
const std::vector<Intrinsic>& intrinsics();
const Intrinsic* find_intrinsic(std::string_view name);
// A copy, alone or in unrolled and vector scopes: what may stand before the sum of a step (kWithCopies).
inline bool is_copy(const Stmt& s) {
  if (s.kind == Stmt::Kind::assign) return s.op == AssignOp::set && s.value->op == Op::k_load;
  return (s.mark == Mark::unroll || s.mark == Mark::vector) && s.body.size() == 1 && is_copy(s.body[0]);
}
// Whether a marked scope is summed over: each of its steps adds to the same results.
bool is_summed(const Stmt& scope);
// Whether a marked scope is one step of a sum, its extent a part of the instruction, rather than a loop of steps.
bool is_one_step(const Stmt& scope);
// Steps of the marked scope's sum that one instruction takes: 1, or the extents of the meaning's own summed scopes.
int64_t k_step(const Intrinsic& intrinsic);
// Does the scope's subtree compute what the intrinsic means? *why on refusal.
bool matches_intrinsic(const Kernel& kernel, const Stmt& scope, const Intrinsic& intrinsic, std::string* why);

// Threads that run a scope together: those of a warp, or of four, for a scope that is marked with a GPU's instruction,
// else 1.
int warp_lanes(const Stmt& scope);
// Whether the scope is marked as the copy of a box, which goes on while threads do.
bool copies_box(const Stmt& scope);
// A dimension of an operand of a warp's instruction: element e belongs to the threads whose number // step % threads is
// e // chunk % threads.
struct Fragment {
  int64_t chunk = 1, threads = 1, step = 1;
};
// The dimension that an iterator of a marked scope steps along in one of its accesses, divided by all of these; none:
// the iterator is not in it, or the operand lies elsewhere than in registers. write: the access is the result's.
std::vector<Fragment> fragments_of(const Stmt& scope, bool write, const std::vector<Expr>& index,
                                   const std::string& iter);

}  // namespace lathe::ir
