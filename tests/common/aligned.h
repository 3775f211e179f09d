// Memory as hosts hand it to kernels: whole lines of 64 bytes.
#pragma once
#include <cstdlib>
#include <utility>

namespace lathe::test {

struct Aligned {
  explicit Aligned(size_t bytes) : size((bytes + 127) / 64 * 64), memory(std::aligned_alloc(64, size)) {}
  Aligned(Aligned&& other) noexcept : size(other.size), memory(std::exchange(other.memory, nullptr)) {}
  ~Aligned() { std::free(memory); }
  size_t size;  // some bytes more than were asked for
  void* memory;
};

}  // namespace lathe::test
