// Names of the back ends.
#include "jit/backend.h"

namespace lathe::jit {

const char* backend_name(Backend backend) {
  static constexpr const char* kNames[] = {
#define LATHE_BACKEND(id) #id,
#include "jit/backends.def"
#undef LATHE_BACKEND
  };
  return kNames[static_cast<int>(backend)];
}

}  // namespace lathe::jit
