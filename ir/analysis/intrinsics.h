// The intrinsic table: a tile instruction is a small Kernel with a name. search tensorizes with it, the interpreter
// runs its body, a generator emits it. Rows in intrinsics.def.
//   mma        for k: for m: for n: c[m, n] += a[m, k] * b[k, n]        (m, n unrolled / vector; c in registers)
//   transpose  for i < I: for j < J: d[j, i] = s[i, j]                   (in squares of lanes x lanes)
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ir/core/kernel.h"

namespace lathe::ir {

struct Intrinsic {
  const char* name;     // "mma", "transpose"
  const char* meaning;  // text form of its Kernel; symbols are free sizes
  uint32_t numeric;     // NumericClass bits it adds
  const char* levels;   // lowest ISA level per dtype, informative
};
const std::vector<Intrinsic>& intrinsics();
const Intrinsic* find_intrinsic(std::string_view name);
// Does the scope's subtree compute what the intrinsic means (up to names, sizes, layout of loops inside)? *why on
// refusal.
bool matches_intrinsic(const Kernel& kernel, const Stmt& scope, const Intrinsic& intrinsic, std::string* why);

}  // namespace lathe::ir
