// See fork_mark.h.
#include "runtime/base/fork_mark.h"

#include <sys/mman.h>

#include <new>

namespace lathe::runtime {
namespace {
constexpr size_t kPage = 4096;
}

ForkMark::ForkMark() {
  void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (madvise(page, kPage, MADV_WIPEONFORK) != 0) {
    munmap(page, kPage);
    return;
  }
  page_ = new (page) std::atomic<char>(1);
}

ForkMark::~ForkMark() {
  if (page_ != nullptr) munmap(page_, kPage);
}

}  // namespace lathe::runtime
