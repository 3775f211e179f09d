// The GPUs of a process, as contexts see them: what each is, code loaded on it, launches. A device that reported an
// error which it does not recover from refuses everything from then on. Thread-safe.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "ir/base/gpu_target.h"
#include "runtime/cuda/driver.h"

namespace lathe::runtime {

inline constexpr int kCudaDevice = 2;  // lathe_device.type

class CudaDevice {
 public:
  static ir::Result<std::shared_ptr<CudaDevice>> open(std::shared_ptr<const CudaDriver> driver, int number);

  int number() const { return number_; }
  const ir::GpuTarget& target() const { return target_; }

  // The kernel of that name in the code, ready to be launched: loaded once, and for as long as the process runs.
  ir::Result<void*> load(const std::string& cubin, const std::string& kernel);
  // INVALID, saying what it is instead: an address that is not memory of this device.
  ir::Status check_memory(const void* address) const;
  // args: the one argument of the kernel. Allocates nothing and waits for nothing. DEVICE: the launch failed, or
  // something before it did.
  ir::Status launch(void* kernel, unsigned blocks, unsigned threads, void* args, void* stream);

 private:
  CudaDevice(std::shared_ptr<const CudaDriver> driver, int number) : driver_(std::move(driver)), number_(number) {}
  ir::Status working() const;
  ir::Status note(int error, const char* what);

  const std::shared_ptr<const CudaDriver> driver_;
  const int number_;
  ir::GpuTarget target_;
  void* primary_ = nullptr;     // the primary context
  std::atomic<int> broken_{0};  // the error that it does not recover from
  std::mutex mutex_;
  std::map<std::string, void*> loaded_;  // by hash of the code
};

// Device n of the driver at `path`, the same object for everybody in this process. DEVICE as of CudaDriver::open(), or
// the driver has no such device; UNSUPPORTED: it is older than SM 8.0.
ir::Result<std::shared_ptr<CudaDevice>> cuda_device(const std::string& path, int number);

}  // namespace lathe::runtime
