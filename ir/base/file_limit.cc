// See file_limit.h. The system sends these signals to the thread that writes, so nobody else's is taken.
#include "ir/base/file_limit.h"

#include <time.h>

#include <cerrno>

namespace lathe::ir {
namespace {
constexpr int kSignals[] = {SIGXFSZ, SIGPIPE};
}  // namespace

FileLimitGuard::FileLimitGuard() {
  const int error = errno;
  sigset_t all, pending;
  sigemptyset(&all);
  sigemptyset(&ours_);
  const bool known = sigpending(&pending) == 0;
  for (const int signal : kSignals) {
    sigaddset(&all, signal);
    if (known && sigismember(&pending, signal) == 0) sigaddset(&ours_, signal);
  }
  pthread_sigmask(SIG_BLOCK, &all, &before_);
  errno = error;
}

FileLimitGuard::~FileLimitGuard() {
  const int error = errno;
  const timespec at_once = {};
  while (sigtimedwait(&ours_, nullptr, &at_once) >= 0 || errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

}  // namespace lathe::ir
