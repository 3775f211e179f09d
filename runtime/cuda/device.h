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
  const CudaDriver& driver() const { return *driver_; }
  // DEVICE, naming the error: it failed before, and does not recover.
  ir::Status working() const;

  // The kernel of that name in the code, ready to be launched: loaded once, and for as long as the process runs.
  // Streams that capture meanwhile go on. INVALID: the driver does not take the code.
  // shared: bytes of shared memory that launches will ask for.
  ir::Result<void*> load(const std::string& cubin, const std::string& kernel, int shared);
  // INVALID, saying what it is instead: an address that is not memory of this device. DEVICE as of launch().
  ir::Status check_memory(const void* address);
  struct LaunchShape {
    unsigned blocks = 1, threads = 1;  // threads: of a block
    unsigned shared = 0;               // bytes
    unsigned cluster = 1;              // blocks that run at once
  };
  // args: the one argument of the kernel. Allocates nothing and waits for nothing. DEVICE: the launch failed, or
  // something before it did.
  ir::Status launch(void* kernel, const LaunchShape& shape, void* args, void* stream);
  // What the driver says of a call for this device, remembered if it does not recover from it.
  ir::Status note(int error, const char* what);

 private:
  friend class CurrentDevice;
  CudaDevice(std::shared_ptr<const CudaDriver> driver, int number) : driver_(std::move(driver)), number_(number) {}

  const std::shared_ptr<const CudaDriver> driver_;
  const int number_;
  ir::GpuTarget target_;
  void* primary_ = nullptr;     // the primary context
  std::atomic<int> broken_{0};  // the error that it does not recover from
  std::mutex mutex_;
  std::map<std::string, void*> loaded_;  // by hash of the code
};

// Makes a device the calling thread's as long as it lives.
class CurrentDevice {
 public:
  explicit CurrentDevice(const CudaDevice& device) : driver_(*device.driver_) {
    pushed_ = driver_.cuCtxPushCurrent_v2(device.primary_) == 0;
  }
  ~CurrentDevice() {
    void* popped = nullptr;
    if (pushed_) (void)driver_.cuCtxPopCurrent_v2(&popped);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  const CudaDriver& driver_;
  bool pushed_ = false;
};

// Device n of the driver at `path`, the same object for everybody in this process. DEVICE as of CudaDriver::open(), or
// the driver has no such device; UNSUPPORTED: it is older than SM 8.0.
ir::Result<std::shared_ptr<CudaDevice>> cuda_device(const std::string& path, int number);

}  // namespace lathe::runtime
