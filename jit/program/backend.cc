// Names of the back ends.
#include "jit/program/backend.h"

namespace lathe::jit {

const char* backend_name(Backend backend) {
  static constexpr const char* kNames[] = {
#define LATHE_BACKEND(id) #id,
#include "jit/program/backends.def"
#undef LATHE_BACKEND
  };
  return kNames[static_cast<int>(backend)];
}

// xbyak's encodings are settled by the codegen epoch; LLVM's by its major version, which the
// plug-in is built for.
const char* backend_versions() { return "xbyak 6; llvm 19"; }

}  // namespace lathe::jit
