// Zeroed memory for timing, on large pages if it is large and the system has them: the probes' come the same way.
#pragma once
#include <sys/mman.h>

#include <cstddef>

#include "runtime/base/large_pages.h"

namespace lathe::runtime {

class BenchMemory {
 public:
  static constexpr size_t kAlign = 64;
  static size_t round_up(size_t bytes) { return (bytes + kAlign - 1) & ~(kAlign - 1); }

  BenchMemory() = default;
  BenchMemory(const BenchMemory&) = delete;
  BenchMemory& operator=(const BenchMemory&) = delete;
  ~BenchMemory() { release(); }
  // At least so many and a line more, and one where none are asked for; false: there are not. What was there is lost
  // where it was less.
  bool reserve(size_t bytes) {
    bytes += kAlign;
    if (bytes <= bytes_) return true;
    release();
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return false;
    ask_for_large_pages(p, bytes);
    data_ = static_cast<char*>(p);
    bytes_ = bytes;
    return true;
  }
  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void release() {
    if (data_ != nullptr) munmap(data_, bytes_);
    data_ = nullptr;
    bytes_ = 0;
  }
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace lathe::runtime
