// See launch.h.
#include "runtime/cuda/launch.h"

#include <algorithm>
#include <cstring>

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"
#include "runtime/cuda/tensor_maps.h"
#include "runtime/walk/bound_nest.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

constexpr size_t kMostSizes = 64;
constexpr int64_t kMostBlocks = INT32_MAX;
constexpr int64_t kScratchAlign = 256, kMostScratch = int64_t{1} << 40;

struct BoundStep {
  void* kernel = nullptr;
  CudaDevice::LaunchShape shape;
  std::vector<int64_t> operands;  // the number of a parameter; below 0: -1 less the offset in the workspace
  std::vector<int64_t> sizes;
  std::vector<BoundMap> maps;
};

class BoundCudaLaunch final : public BoundExecutable {
 public:
  BoundCudaLaunch(CudaDevice& device, std::vector<BoundStep> steps, int64_t scratch)
      : BoundExecutable(scratch), device_(device), steps_(std::move(steps)) {}

  Status launch(void* const* params, void* workspace, void* stream) const override {
    const CurrentDevice current(device_);  // callers need not have made it theirs
    for (const BoundStep& s : steps_) {
      // As the struct of the kernel's text: addresses, then sizes, then maps.
      alignas(jit::kMapAligned) uint64_t args[kMaxNestBuffers + kMostSizes + (kMostMaps + 1) * kMapWords];
      size_t n = 0;
      for (const int64_t p : s.operands) {
        const void* at = p >= 0 ? params[p] : static_cast<char*>(workspace) + (-1 - p);
        args[n++] = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(at));
      }
      for (const int64_t e : s.sizes) args[n++] = static_cast<uint64_t>(e);
      put_maps(device_.driver().cuTensorMapEncodeTiled, s.maps, args, args, n);
      LATHE_RETURN_IF_ERROR(device_.launch(s.kernel, s.shape, args, stream));
    }
    return {};
  }

 private:
  CudaDevice& device_;
  const std::vector<BoundStep> steps_;
};

Result<int64_t> value_of(const ir::Expr& e, const SymbolValues& symbols) {
  const std::optional<int64_t> value = ir::evaluate(e, symbols);
  if (!value) return ir::invalid("{} has no value", print(e));
  return *value;
}

}  // namespace

Result<std::unique_ptr<const BoundExecutable>> CudaLaunch::bind(const SymbolValues& symbols,
                                                                const std::vector<ArgLayout>& layouts, int) const {
  if (std::any_of(layouts.begin(), layouts.end(), [](const ArgLayout& l) { return !l.strides.empty(); }))
    return ir::unsupported("operands of a layout of their own");
  std::vector<std::pair<int, int64_t>> offsets;
  int64_t scratch = 0;
  for (const Scratch& b : scratch_) {
    LATHE_ASSIGN(const int64_t bytes, value_of(b.bytes, symbols));
    offsets.emplace_back(b.buffer, scratch);
    if (bytes < 0 || bytes > kMostScratch - scratch)
      return ir::unsupported("launches that hand each other more than {} bytes", kMostScratch);
    scratch += (bytes + kScratchAlign - 1) / kScratchAlign * kScratchAlign;
  }
  std::vector<BoundStep> steps;
  for (const Step& step : steps_) {
    const auto threads = static_cast<unsigned>(step.code->threads), shared = static_cast<unsigned>(step.code->shared);
    const int cluster = step.launch.cluster;
    BoundStep bound{step.kernel, {1, threads, shared, static_cast<unsigned>(cluster)}, {}, {}, {}};
    if (step.code->cluster != cluster)
      return ir::invalid("code for clusters of {} blocks, expected {}", step.code->cluster, cluster);
    for (const int operand : step.launch.operands) {
      const auto in_workspace =
          std::find_if(offsets.begin(), offsets.end(), [&](const auto& o) { return o.first == operand; });
      bound.operands.push_back(in_workspace == offsets.end() ? operand : -1 - in_workspace->second);
    }
    if (bound.operands.size() > kMaxNestBuffers || step.launch.sizes.size() > kMostSizes)
      return ir::unsupported("a launch with {} operands and {} sizes", bound.operands.size(), step.launch.sizes.size());
    for (const ir::Expr& e : step.launch.sizes) {
      LATHE_ASSIGN(const int64_t value, value_of(e, symbols));
      bound.sizes.push_back(value);
    }
    LATHE_ASSIGN(bound.maps, bind_maps(step.maps, bound.sizes));
    int64_t blocks = 1;
    for (const ir::Expr& e : step.launch.grid) {
      LATHE_ASSIGN(const int64_t extent, value_of(e, symbols));
      if (__builtin_mul_overflow(blocks, std::max<int64_t>(extent, 0), &blocks) || blocks > kMostBlocks)
        return ir::unsupported("a launch of more than {} blocks", kMostBlocks);
    }
    if (blocks == 0) continue;
    if (blocks % cluster != 0) return ir::invalid("{} blocks in clusters of {}", blocks, cluster);
    const int64_t at_once = std::max(device_->target().multiprocessors / cluster, 1) * cluster;
    if (step.launch.persistent) blocks = std::min(blocks, at_once);
    bound.shape.blocks = static_cast<unsigned>(blocks);
    steps.push_back(std::move(bound));
  }
  return std::unique_ptr<const BoundExecutable>(std::make_unique<BoundCudaLaunch>(*device_, std::move(steps), scratch));
}

}  // namespace lathe::runtime
