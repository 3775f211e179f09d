// The intrinsic table: a tile instruction is a small Kernel with a name. search tensorizes with it, the interpreter
// runs its body, a generator emits it. Rows and what a match is: intrinsics.def.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ir/core/kernel.h"

namespace lathe::ir {

enum class IntrinsicLayout : uint8_t { kAnyLayout, kAdjacent };

struct Intrinsic {
  const char* name;     // "mma", "transpose"
  const char* meaning;  // text form of its Kernel; symbols are free sizes
  uint32_t numeric;     // NumericClass bits it adds
  uint64_t features;    // CpuFeature bits that its code needs
  IntrinsicLayout layout;
};
const std::vector<Intrinsic>& intrinsics();
const Intrinsic* find_intrinsic(std::string_view name);
// Whether a marked scope is summed over: each of its steps adds to the same results.
bool is_summed(const Stmt& scope);
// Whether a marked scope is one step of a sum, its extent a part of the instruction, rather than a loop of steps.
bool is_one_step(const Stmt& scope);
// Steps of the marked scope's sum that one instruction takes: 1, or the extents of the meaning's own summed scopes.
int64_t k_step(const Intrinsic& intrinsic);
// Does the scope's subtree compute what the intrinsic means? *why on refusal.
bool matches_intrinsic(const Kernel& kernel, const Stmt& scope, const Intrinsic& intrinsic, std::string* why);

}  // namespace lathe::ir
