// Memory that ends at an unmapped page, or starts after one: a kernel that touches a byte outside
// its operand faults. Stray writes inside the mapping are for the caller's canaries. Moves; not
// thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

#include "ir/base/status.h"

namespace lathe::runtime {

enum class GuardSide : uint8_t { after, before };  // where the unmapped page lies

class GuardMemory {
 public:
  GuardMemory() = default;
  // `bytes` (0 allowed) with the end (after) or the start (before) at the unmapped page, rounded
  // inwards to `alignment`, a power of two up to a page. Zeroed, writable. UNSUPPORTED: no memory.
  static ir::Result<GuardMemory> map(size_t bytes, size_t alignment, GuardSide side);
  GuardMemory(GuardMemory&& other) noexcept { *this = std::move(other); }
  GuardMemory& operator=(GuardMemory&& other) noexcept;
  ~GuardMemory();

  char* data() const { return data_; }
  size_t size() const { return size_; }
  bool writable() const { return writable_; }
  void set_writable(bool writable);          // writable again only for the one who fills it
  bool contains(const void* address) const;  // its pages and the guards around them

 private:
  char* base_ = nullptr;
  size_t mapped_ = 0;
  char* data_ = nullptr;
  size_t size_ = 0;
  bool writable_ = true;
};

}  // namespace lathe::runtime
