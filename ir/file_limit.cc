// See file_limit.h. The system sends the signal to the thread that writes, so nobody else's is taken.
#include "ir/file_limit.h"

#include <time.h>

#include <cerrno>

namespace lathe::ir {
namespace {

sigset_t only_file_size() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  return set;
}

}  // namespace

FileLimitGuard::FileLimitGuard() {
  const int error = errno;
  const sigset_t ours = only_file_size();
  sigset_t pending;
  was_pending_ = sigpending(&pending) != 0 || sigismember(&pending, SIGXFSZ) == 1;
  pthread_sigmask(SIG_BLOCK, &ours, &before_);
  errno = error;
}

FileLimitGuard::~FileLimitGuard() {
  const int error = errno;
  const sigset_t ours = only_file_size();
  const timespec at_once = {};
  while (!was_pending_ && sigtimedwait(&ours, nullptr, &at_once) < 0 && errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

}  // namespace lathe::ir
