// The Executable of a GPU: launches with their code loaded, bound by putting numbers for symbols, run by launching them
// in order on the caller's stream.
#pragma once
#include <memory>
#include <vector>

#include "ir/launch.h"
#include "runtime/compile/executable.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/device_code.h"

namespace lathe::runtime {

class CudaLaunch final : public Executable {
 public:
  // One code and one loaded kernel for each launch.
  struct Step {
    ir::Launch launch;
    std::shared_ptr<const DeviceCode> code;
    void* kernel = nullptr;
    std::vector<jit::DeviceMap> maps;  // that it wants of its operands
  };
  // What launches hand each other lies in the workspace: a buffer of the Kernel, and how many bytes it has.
  struct Scratch {
    int buffer = 0;
    ir::Expr bytes;
  };
  CudaLaunch(std::shared_ptr<CudaDevice> device, std::vector<Step> steps, std::vector<Scratch> scratch)
      : device_(std::move(device)), steps_(std::move(steps)), scratch_(std::move(scratch)) {}

  MemorySpace memory() const override { return MemorySpace::device; }
  // INVALID: a symbol without a value. UNSUPPORTED: layouts of the caller's own, or more than 2^31 - 1 blocks.
  ir::Result<std::unique_ptr<const BoundExecutable>> bind(const SymbolValues& symbols,
                                                          const std::vector<ArgLayout>& layouts,
                                                          int threads) const override;
  std::unique_ptr<Executable> copy() const override { return std::make_unique<CudaLaunch>(*this); }

 private:
  std::shared_ptr<CudaDevice> device_;
  std::vector<Step> steps_;
  std::vector<Scratch> scratch_;
};

}  // namespace lathe::runtime
