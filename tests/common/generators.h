// Whether a first call of this build gets code on this machine: xbyak was not left out, and there is a level for it.
#pragma once
#include "jit/host/host_cpu.h"
#include "jit/program/backend.h"

namespace lathe::test {

inline bool generates() {
  return jit::backend_built(jit::Backend::xbyak) && jit::host_target().level != ir::IsaLevel::portable;
}

}  // namespace lathe::test
