// See guard_memory.h: one mapping of [guard][pages][guard], the guards without access.
#include "runtime/oracle/guard_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace lathe::runtime {
namespace {

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

ir::Result<GuardMemory> GuardMemory::map(size_t bytes, size_t alignment, GuardSide side) {
  const size_t page = page_bytes();
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > page)
    return ir::invalid("alignment {}", alignment);
  const size_t inner = std::max((bytes + page - 1) / page * page, page);
  void* p = mmap(nullptr, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return ir::unsupported("no memory for {} bytes between guard pages", bytes);
  GuardMemory out;
  out.base_ = static_cast<char*>(p);
  out.mapped_ = inner + 2 * page;
  out.size_ = bytes;
  if (mprotect(out.base_ + page, inner, PROT_READ | PROT_WRITE) != 0) {
    return ir::unsupported("no memory for {} bytes between guard pages", bytes);
  }
  const size_t start = side == GuardSide::before ? 0 : (inner - bytes) / alignment * alignment;
  out.data_ = out.base_ + page + start;
  return out;
}

GuardMemory& GuardMemory::operator=(GuardMemory&& other) noexcept {
  if (this == &other) return *this;
  if (base_) munmap(base_, mapped_);
  base_ = std::exchange(other.base_, nullptr);
  mapped_ = std::exchange(other.mapped_, 0);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  writable_ = std::exchange(other.writable_, true);
  return *this;
}

GuardMemory::~GuardMemory() {
  if (base_) munmap(base_, mapped_);
}

void GuardMemory::set_writable(bool writable) {
  if (!base_ || writable == writable_) return;
  const size_t page = page_bytes();
  if (mprotect(base_ + page, mapped_ - 2 * page, writable ? PROT_READ | PROT_WRITE : PROT_READ) == 0)
    writable_ = writable;
}

bool GuardMemory::contains(const void* address) const {
  const char* p = static_cast<const char*>(address);
  return base_ && p >= base_ && p < base_ + mapped_;
}

}  // namespace lathe::runtime
