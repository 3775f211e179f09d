// See large_pages.h.
#include "runtime/base/large_pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

namespace lathe::runtime {
namespace {

constexpr uintptr_t kLargePage = uintptr_t{2} << 20;

}  // namespace

void ask_for_large_pages(void* data, size_t bytes) {
  const uintptr_t first = (reinterpret_cast<uintptr_t>(data) + kLargePage - 1) & ~(kLargePage - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) & ~(kLargePage - 1);
  if (first >= end) return;
  const int before = errno;  // a host's
  (void)madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
  errno = before;
}

}  // namespace lathe::runtime
