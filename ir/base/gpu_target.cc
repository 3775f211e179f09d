// See gpu_target.h.
#include "ir/base/gpu_target.h"

namespace lathe::ir {

const std::vector<std::string_view>& gpu_target_names() {
  static const std::vector<std::string_view> names = {
#define LATHE_GPU(id, name, sm, architecture, multiprocessors, memory_gib) #id,
#include "ir/base/gpu_targets.def"
#undef LATHE_GPU
  };
  return names;
}

std::optional<GpuTarget> find_gpu_target(std::string_view wanted) {
#define LATHE_GPU(id, name, sm, architecture, multiprocessors, memory_gib) \
  if (wanted == #id) return GpuTarget{name, sm, architecture, multiprocessors, memory_gib};
#include "ir/base/gpu_targets.def"
#undef LATHE_GPU
  return std::nullopt;
}

GpuTarget gpu_target(std::string name, int major, int minor, int multiprocessors, uint64_t memory_bytes) {
  const int sm = major * 10 + minor;
  constexpr uint64_t kStep = uint64_t{8} << 30;
  const auto memory = static_cast<int>((memory_bytes + kStep - 1) / kStep * 8);
  // Instructions of one architecture alone come with 9.0; earlier ones have none.
  return {std::move(name), sm, "sm_" + std::to_string(sm) + (sm >= 90 ? "a" : ""), multiprocessors, memory};
}

}  // namespace lathe::ir
