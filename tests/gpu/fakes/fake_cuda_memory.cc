// Memory of the fake driver: the host's, mapped page by page, of which each part belongs to a device.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/gpu/fakes/fake_cuda.h"
#include "tests/gpu/fakes/fake_cuda_parts.h"

using namespace lathe::test;  // NOLINT: the fake's own names

namespace {

struct Memory {
  size_t bytes = 0;
  int device = 0;
  void* mapping = nullptr;  // of fake_cuda_alloc
  size_t mapped = 0;
};
struct Handle {
  size_t bytes = 0;
  int device = 0;
};

std::mutex& mutex() {
  static std::mutex m;
  return m;
}
std::map<uintptr_t, Memory>& memories() {
  static auto& m = *new std::map<uintptr_t, Memory>;
  return m;
}

size_t page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
void* pointer(unsigned long long address) { return reinterpret_cast<void*>(static_cast<uintptr_t>(address)); }

// Whether all of it is memory of one device.
bool is_device(unsigned long long address, size_t bytes) {
  const std::lock_guard lock(mutex());
  auto at = memories().upper_bound(address);
  if (at == memories().begin()) return false;
  --at;
  return address + bytes <= at->first + at->second.bytes;
}

int copy(void* to, const void* from, size_t bytes, void* stream) {
  if (current_device() < 0) return kCudaInvalidContext;
  if (captured(stream, [=] { return std::memcpy(to, from, bytes) == nullptr ? 1 : kCudaOk; })) return kCudaOk;
  std::memcpy(to, from, bytes);
  return kCudaOk;
}

}  // namespace

extern "C" {

#define FAKE __attribute__((visibility("default")))

FAKE void* fake_cuda_alloc(size_t bytes, int device) {
  const size_t room = (bytes + page() - 1) / page() * page();
  auto* base =
      static_cast<char*>(mmap(nullptr, room + page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(base + room, page(), PROT_NONE);
  char* at = base + room - bytes;
  const std::lock_guard lock(mutex());
  memories()[reinterpret_cast<uintptr_t>(at)] = {bytes, device, base, room + page()};
  return at;
}
FAKE void fake_cuda_free(void* address) {
  const std::lock_guard lock(mutex());
  const auto it = memories().find(reinterpret_cast<uintptr_t>(address));
  munmap(it->second.mapping, it->second.mapped);
  memories().erase(it);
}

FAKE int cuMemAlloc_v2(unsigned long long* address, size_t bytes) {
  if (current_device() < 0) return kCudaInvalidContext;
  *address = reinterpret_cast<uintptr_t>(fake_cuda_alloc((bytes + 255) / 256 * 256, current_device()));
  ++fake_cuda()->allocations;
  return kCudaOk;
}
FAKE int cuMemcpyHtoD_v2(unsigned long long to, const void* from, size_t bytes) {
  if (!is_device(to, bytes)) return kCudaInvalidValue;
  std::memcpy(pointer(to), from, bytes);
  return kCudaOk;
}
FAKE int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t bytes) {
  if (!is_device(from, bytes)) return kCudaInvalidValue;
  std::memcpy(to, pointer(from), bytes);
  return kCudaOk;
}

FAKE int cuPointerGetAttribute(void* data, int attribute, unsigned long long address) {
  const std::lock_guard lock(mutex());
  if (const int failure = std::exchange(fake_cuda()->fail_memory, 0); failure != 0) return failure;
  auto at = memories().upper_bound(address);
  if (at == memories().begin()) return kCudaInvalidValue;
  --at;
  if (address - at->first >= at->second.bytes) return kCudaInvalidValue;
  if (attribute == 2) {
    *static_cast<unsigned*>(data) = 2;
  } else if (attribute == 9) {
    *static_cast<int*>(data) = at->second.device;
  } else {
    return kCudaInvalidValue;
  }
  return kCudaOk;
}

FAKE int cuMemGetAllocationGranularity(size_t* bytes, const void*, int) {
  *bytes = page();
  return kCudaOk;
}
FAKE int cuMemAddressReserve(unsigned long long* address, size_t bytes, size_t, unsigned long long,
                             unsigned long long) {
  void* at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (bytes % page() != 0 || at == MAP_FAILED) return kCudaInvalidValue;
  *address = reinterpret_cast<uintptr_t>(at);
  return kCudaOk;
}
FAKE int cuMemAddressFree(unsigned long long address, size_t bytes) {
  munmap(pointer(address), bytes);
  return kCudaOk;
}
FAKE int cuMemCreate(unsigned long long* handle, size_t bytes, const void* kind, unsigned long long) {
  // CUmemAllocationProp: the device is its fourth integer.
  int fields[4];
  std::memcpy(fields, kind, sizeof fields);
  if (current_device() < 0) return kCudaInvalidContext;
  if (bytes % page() != 0 || fields[0] != 1 || fields[2] != 1) return kCudaInvalidValue;
  *handle = reinterpret_cast<uintptr_t>(new Handle{bytes, fields[3]});
  ++fake_cuda()->allocations;
  return kCudaOk;
}
FAKE int cuMemRelease(unsigned long long handle) {
  delete static_cast<Handle*>(pointer(handle));
  return kCudaOk;
}
FAKE int cuMemMap(unsigned long long address, size_t bytes, size_t, unsigned long long handle, unsigned long long) {
  const Handle& h = *static_cast<Handle*>(pointer(handle));
  if (bytes != h.bytes || address % page() != 0) return kCudaInvalidValue;
  const std::lock_guard lock(mutex());
  memories()[address] = {bytes, h.device, nullptr, 0};
  return kCudaOk;
}
FAKE int cuMemSetAccess(unsigned long long address, size_t bytes, const void*, size_t count) {
  if (count != 1 || !is_device(address, bytes)) return kCudaInvalidValue;
  return mprotect(pointer(address), bytes, PROT_READ | PROT_WRITE) == 0 ? kCudaOk : kCudaInvalidValue;
}
FAKE int cuMemUnmap(unsigned long long address, size_t bytes) {
  mprotect(pointer(address), bytes, PROT_NONE);
  madvise(pointer(address), bytes, MADV_DONTNEED);
  const std::lock_guard lock(mutex());
  return memories().erase(address) == 1 ? kCudaOk : kCudaInvalidValue;
}

FAKE int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t bytes, void* stream) {
  return is_device(to, bytes) ? copy(pointer(to), from, bytes, stream) : kCudaInvalidValue;
}
FAKE int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t bytes, void* stream) {
  return is_device(from, bytes) ? copy(to, pointer(from), bytes, stream) : kCudaInvalidValue;
}
FAKE int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes, void* stream) {
  return is_device(to, bytes) && is_device(from, bytes) ? copy(pointer(to), pointer(from), bytes, stream)
                                                        : kCudaInvalidValue;
}
}
