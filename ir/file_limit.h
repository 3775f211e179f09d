// The limit on file sizes (RLIMIT_FSIZE): the system answers a write or a growth beyond it with EFBIG and a signal that ends a process
// without a handler. While one of these lives, the calling thread gets the error only: the signal is blocked for this thread, taken if it came,
// and the mask is put back. The process's handlers stay as they are. Keeps errno.
#pragma once
#include <signal.h>

namespace lathe::ir {

class FileLimitGuard {
 public:
  FileLimitGuard();
  ~FileLimitGuard();
  FileLimitGuard(const FileLimitGuard&) = delete;
  FileLimitGuard& operator=(const FileLimitGuard&) = delete;

 private:
  sigset_t before_;
  bool was_pending_;  // somebody else's, that is not taken
};

}  // namespace lathe::ir
