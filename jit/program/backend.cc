// Names of the back ends, and what stands for one that was not built.
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

#ifdef LATHE_XBYAK
bool backend_built(Backend) { return true; }
#else
bool backend_built(Backend backend) { return backend != Backend::xbyak; }

ir::Result<CodeImage> compile_xbyak(const LeafProgram&, bool) {
  return ir::unsupported("xbyak: the library was built with LATHE_XBYAK=OFF");
}
#endif

}  // namespace lathe::jit
