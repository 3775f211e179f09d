// See gpu_target.h.
#include "ir/base/gpu_target.h"

#include <algorithm>
#include <iterator>

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

// By compute capability, as NVIDIA's programming guide lists them.
int most_shared(const GpuTarget& target) {
  struct Row {
    int before;  // this capability
    int kib;
  };
  constexpr Row kRows[] = {{86, 163}, {87, 99}, {88, 163}, {90, 99}, {120, 227}};
  const auto* row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return target.sm < r.before; });
  return (row == std::end(kRows) ? 99 : row->kib) * 1024;
}

bool has_clusters(const GpuTarget& target) { return target.sm >= 90; }

GpuTarget gpu_target(std::string name, int major, int minor, int multiprocessors, uint64_t memory_bytes) {
  const int sm = major * 10 + minor;
  constexpr uint64_t kStep = uint64_t{8} << 30;
  const auto memory = static_cast<int>((memory_bytes + kStep - 1) / kStep * 8);
  // Instructions of one architecture alone come with 9.0; earlier ones have none.
  return {std::move(name), sm, "sm_" + std::to_string(sm) + (sm >= 90 ? "a" : ""), multiprocessors, memory};
}

}  // namespace lathe::ir
