// What a launch is generated for: a row of gpu_targets.def, or what the driver says of the GPU that is there. A plain
// value; nothing of it enters an identity of the CPU.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::ir {

// Of every GPU served: SM 8.0 and later.
inline constexpr int kLeastSm = 80, kMaxBlockThreads = 1024;

struct GpuTarget {
  std::string name;          // "NVIDIA H200"
  int sm = kLeastSm;         // 90: compute capability 9.0
  std::string architecture;  // "sm_90a"
  int multiprocessors = 0;
  int memory_gib =
      0;  // rounded up to a multiple of 8: drivers keep some of it for themselves, each as much as it likes
};

const std::vector<std::string_view>& gpu_target_names();  // "a100", ...
std::optional<GpuTarget> find_gpu_target(std::string_view name);
// Bytes of shared memory that a block of it may ask for.
int most_shared(const GpuTarget& target);
// Whether its blocks can be launched in clusters, which reach each other's shared memory.
bool has_clusters(const GpuTarget& target);
// A GPU that the driver describes.
GpuTarget gpu_target(std::string name, int major, int minor, int multiprocessors, uint64_t memory_bytes);

}  // namespace lathe::ir
