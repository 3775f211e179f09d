// What takes no more: a file at the limit on file sizes (RLIMIT_FSIZE), a pipe that nobody reads. The system answers a
// write or a growth with EFBIG or EPIPE and a signal that ends a process without a handler. While one of these lives,
// the calling thread gets the error only: the signals are blocked for this thread, taken if they came, and the mask is
// put back. The process's handlers stay as they are. Keeps errno.
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
  sigset_t ours_;  // those that were not pending before: somebody else's are not taken
};

}  // namespace lathe::ir
