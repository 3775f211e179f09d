// Whether this build makes code of a leaf at once: xbyak was not left out, and there is a level for it. Otherwise the
// portable executor runs leaves, and LLVM makes code where it is allowed to.
#pragma once
#include "jit/host/host_cpu.h"
#include "jit/program/backend.h"

namespace lathe::test {

inline bool generates(const ir::Target& target) {
  return jit::backend_built(jit::Backend::xbyak) && target.level != ir::IsaLevel::portable;
}
inline bool generates() { return generates(jit::host_target()); }

}  // namespace lathe::test
