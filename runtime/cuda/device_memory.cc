// See device_memory.h. Pages of a device are large, 2 MiB as a rule: one unmapped before and one after what is mapped.
#include "runtime/cuda/device_memory.h"

#include <algorithm>

namespace lathe::runtime {

using ir::Result;
using ir::Status;

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& o) noexcept {
  release();
  device_ = std::move(o.device_);
  base_ = std::exchange(o.base_, 0);
  mapped_at_ = std::exchange(o.mapped_at_, 0);
  handle_ = std::exchange(o.handle_, 0);
  reserved_ = std::exchange(o.reserved_, 0);
  mapped_ = std::exchange(o.mapped_, 0);
  data_ = std::exchange(o.data_, nullptr);
  return *this;
}

void DeviceMemory::release() {
  if (device_ == nullptr) return;
  const CudaDriver& d = device_->driver();
  const CurrentDevice current(*device_);
  if (mapped_ != 0) (void)d.cuMemUnmap(mapped_at_, mapped_);
  if (handle_ != 0) (void)d.cuMemRelease(handle_);
  if (base_ != 0) (void)d.cuMemAddressFree(base_, reserved_);
  device_.reset();
}

Result<DeviceMemory> DeviceMemory::map(const std::shared_ptr<CudaDevice>& device, size_t bytes, size_t alignment,
                                       DeviceGuard side) {
  LATHE_RETURN_IF_ERROR(device->working());
  const CudaDriver& d = device->driver();
  const CurrentDevice current(*device);
  DeviceMemory out;
  out.device_ = device;
  cuda::MemoryKind kind;
  kind.device = device->number();
  size_t page = 0;
  LATHE_RETURN_IF_ERROR(
      device->note(d.cuMemGetAllocationGranularity(&page, &kind, cuda::kMemoryGranularity), "size of pages"));
  const size_t whole = (bytes + alignment - 1) / alignment * alignment;
  const size_t room = std::max<size_t>((whole + page - 1) / page, 1) * page;
  out.reserved_ = room + 2 * page;
  LATHE_RETURN_IF_ERROR(
      device->note(d.cuMemAddressReserve(&out.base_, out.reserved_, 0, 0, 0), "addresses for memory"));
  LATHE_RETURN_IF_ERROR(device->note(d.cuMemCreate(&out.handle_, room, &kind, 0), "memory"));
  const unsigned long long at = out.base_ + page;
  LATHE_RETURN_IF_ERROR(device->note(d.cuMemMap(at, room, 0, out.handle_, 0), "mapping memory"));
  out.mapped_at_ = at;
  out.mapped_ = room;
  cuda::MemoryAccess access;
  access.device = device->number();
  LATHE_RETURN_IF_ERROR(device->note(d.cuMemSetAccess(at, room, &access, 1), "access to memory"));
  const unsigned long long first = side == DeviceGuard::after ? at + room - whole : at;
  out.data_ = reinterpret_cast<void*>(static_cast<uintptr_t>(first));
  return out;
}

}  // namespace lathe::runtime
