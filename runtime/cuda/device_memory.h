// Memory of a device that ends at an unmapped page, or begins after one: what touches a byte outside is an illegal
// address, not a wrong result somewhere else. The counterpart of runtime/oracle/guard_memory.h. Moves; not thread-safe.
#pragma once
#include <cstddef>
#include <memory>
#include <utility>

#include "runtime/cuda/device.h"

namespace lathe::runtime {

enum class DeviceGuard : uint8_t { after, before };  // where the unmapped page lies

class DeviceMemory {
 public:
  DeviceMemory() = default;
  // At least so many bytes, the end rounded inwards to `alignment`, a power of two. DEVICE: the device refuses.
  static ir::Result<DeviceMemory> map(const std::shared_ptr<CudaDevice>& device, size_t bytes, size_t alignment,
                                      DeviceGuard side = DeviceGuard::after);
  DeviceMemory(DeviceMemory&& o) noexcept { *this = std::move(o); }
  DeviceMemory& operator=(DeviceMemory&& o) noexcept;
  ~DeviceMemory() { release(); }

  void* data() const { return data_; }

 private:
  void release();

  std::shared_ptr<CudaDevice> device_;
  unsigned long long base_ = 0, mapped_at_ = 0, handle_ = 0;
  size_t reserved_ = 0, mapped_ = 0;
  void* data_ = nullptr;
};

}  // namespace lathe::runtime
