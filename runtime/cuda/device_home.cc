// See device_home.h.
#include "runtime/cuda/device_home.h"

#include "jit/cuda/text/cuda_text.h"

namespace lathe::runtime {

namespace {
constexpr char kDefaultClocks[] = "default";  // Lathe sets no clocks, and takes it that nobody did
}

std::shared_ptr<const DecisionHome> device_home(const ir::GpuTarget& target) {
  DeviceFields f;
  f.gpu = target.name;
  f.multiprocessors = target.multiprocessors;
  f.memory_gib = target.memory_gib;
  f.clock_policy = kDefaultClocks;
  return std::make_shared<const DecisionHome>(DecisionHome{device_environment(f), jit::kCudaTextEpoch});
}

}  // namespace lathe::runtime
