// Memory with an unmapped page at either end: a tensor placed against one of them, so that a single byte read or
// written outside faults. Inputs can be made read-only. Canaries fill the rest of the mapped pages. Linux only.
#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <cstring>

namespace lathe::test {

class GuardBuffer {
 public:
  enum class Side { ends_at_guard, starts_after_guard };
  static constexpr size_t kPage = 4096;
  static constexpr uint8_t kCanary = 0xa5;

  GuardBuffer(size_t bytes, Side side) : bytes_(bytes), mapped_((bytes + kPage - 1) / kPage * kPage) {
    if (mapped_ == 0) mapped_ = kPage;
    base_ = static_cast<uint8_t*>(mmap(nullptr, mapped_ + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + kPage, mapped_, PROT_READ | PROT_WRITE);
    std::memset(base_ + kPage, kCanary, mapped_);
    data_ = base_ + kPage + (side == Side::ends_at_guard ? mapped_ - bytes : 0);
  }
  ~GuardBuffer() { munmap(base_, mapped_ + 2 * kPage); }
  GuardBuffer(const GuardBuffer&) = delete;
  GuardBuffer& operator=(const GuardBuffer&) = delete;

  template <class T = uint8_t>
  T* data() const {
    return reinterpret_cast<T*>(data_);
  }
  size_t size() const { return bytes_; }
  void make_read_only() { mprotect(base_ + kPage, mapped_, PROT_READ); }
  // Whether every mapped byte outside the tensor still holds the canary.
  bool canaries_intact() const {
    for (const uint8_t* p = base_ + kPage; p < base_ + kPage + mapped_; ++p) {
      if ((p < data_ || p >= data_ + bytes_) && *p != kCanary) return false;
    }
    return true;
  }

 private:
  size_t bytes_, mapped_;
  uint8_t* base_ = nullptr;
  uint8_t* data_ = nullptr;
};

}  // namespace lathe::test
