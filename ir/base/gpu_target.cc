// See gpu_target.h.
#include "ir/base/gpu_target.h"

namespace lathe::ir {

const std::vector<std::string_view>& gpu_target_names() {
  static const std::vector<std::string_view> names = {
#define LATHE_GPU(id, name, sm, architecture) #id,
#include "ir/base/gpu_targets.def"
#undef LATHE_GPU
  };
  return names;
}

std::optional<GpuTarget> find_gpu_target(std::string_view wanted) {
#define LATHE_GPU(id, name, sm, architecture) \
  if (wanted == #id) return GpuTarget{name, sm, architecture};
#include "ir/base/gpu_targets.def"
#undef LATHE_GPU
  return std::nullopt;
}

GpuTarget gpu_target(std::string name, int major, int minor) {
  const int sm = major * 10 + minor;
  // Instructions of one architecture alone come with 9.0; earlier ones have none.
  return {std::move(name), sm, "sm_" + std::to_string(sm) + (sm >= 90 ? "a" : "")};
}

}  // namespace lathe::ir
