// See store_file.h.
#include "runtime/store/store_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "ir/base/file_limit.h"

namespace lathe::runtime {

int FileOps::open(int dir, const char* path, int flags, mode_t mode) const {
  if (dir != AT_FDCWD) {
    open_how how = {};
    how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
    how.mode = (flags & O_CREAT) != 0 ? mode : 0;
    how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH;
    const long fd = syscall(SYS_openat2, dir, path, &how, sizeof how);
    if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return static_cast<int>(fd);
    flags |= O_NOFOLLOW;
  }
  return ::openat(dir, path, flags | O_CLOEXEC, mode);
}
ssize_t FileOps::read(int fd, void* data, size_t size) const { return ::read(fd, data, size); }
ssize_t FileOps::write(int fd, const void* data, size_t size) const {
  const ir::FileLimitGuard guard;
  return ::write(fd, data, size);
}
int FileOps::close(int fd) const { return ::close(fd); }
int FileOps::fstat(int fd, struct stat* out) const { return ::fstat(fd, out); }
int FileOps::link(int dir, const char* from, const char* to) const { return ::linkat(dir, from, dir, to, 0); }
int FileOps::rename(int dir, const char* from, const char* to) const { return ::renameat(dir, from, dir, to); }
int FileOps::unlink(int dir, const char* path) const { return ::unlinkat(dir, path, 0); }
int FileOps::mkdir(int dir, const char* path, mode_t mode) const { return ::mkdirat(dir, path, mode); }

const FileOps& FileOps::real() {
  static const FileOps ops;
  return ops;
}

namespace {

// Closes through the table.
struct Fd {
  const FileOps& ops;
  int fd;
  ~Fd() {
    if (fd >= 0) ops.close(fd);
  }
};

bool foreign_or_writable(const struct stat& s) {
  return (s.st_uid != geteuid() && s.st_uid != 0) || (s.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

std::string unique_name() {
  static std::atomic<uint64_t> counter{0};
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return fmt::format("new/{}-{:x}{:08x}-{}", getpid(), t.tv_sec, t.tv_nsec, counter.fetch_add(1));
}

MissReason reason_of(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ESTALE:
      return MissReason::k_never_seen;
    case ELOOP:
    case EXDEV:
      return MissReason::k_untrusted;  // a symbolic link, or out of the layer
    default:
      return MissReason::k_io;
  }
}

FileRead failed(MissReason reason, int error) {
  FileRead r;
  r.reason = reason;
  r.os_errno = error;
  return r;
}

}  // namespace

int LayerDir::open_root() const { return ops_->open(AT_FDCWD, root_.c_str(), O_RDONLY | O_DIRECTORY, 0); }

FileRead LayerDir::read(const std::string& path, size_t max_bytes, bool trusted) const {
  const Fd root{*ops_, open_root()};
  if (root.fd < 0) return failed(reason_of(errno), errno);
  struct stat s;
  if (trusted) {
    if (ops_->fstat(root.fd, &s) != 0) return failed(MissReason::k_io, errno);
    if (foreign_or_writable(s)) return failed(MissReason::k_untrusted, 0);
  }
  // Without O_NONBLOCK a FIFO would wait for its writer.
  const Fd file{*ops_, ops_->open(root.fd, path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY, 0)};
  if (file.fd < 0) return failed(reason_of(errno), errno);
  if (ops_->fstat(file.fd, &s) != 0) return failed(MissReason::k_io, errno);
  if (!S_ISREG(s.st_mode) || (trusted && foreign_or_writable(s))) return failed(MissReason::k_untrusted, 0);
  if (s.st_size < 0 || static_cast<uint64_t>(s.st_size) > max_bytes) return failed(MissReason::k_corrupt, EFBIG);
  FileRead out;
  out.bytes.resize(static_cast<size_t>(s.st_size));
  size_t done = 0;
  while (done < out.bytes.size()) {
    const ssize_t n = ops_->read(file.fd, out.bytes.data() + done, out.bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(reason_of(errno), errno);
    if (n == 0) return failed(MissReason::k_corrupt, 0);  // it shrank
    done += static_cast<size_t>(n);
  }
  out.ok = true;
  return out;
}

int LayerDir::make_root() const {
  int fd = open_root();
  if (fd >= 0 || errno != ENOENT) return fd;
  for (size_t slash = root_.find('/', 1);; slash = root_.find('/', slash + 1)) {
    const std::string part = root_.substr(0, slash);
    if (ops_->mkdir(AT_FDCWD, part.c_str(), 0700) != 0 && errno != EEXIST) {
      // An existing parent on a read-only or foreign file system says so instead of EEXIST.
      const int error = errno;
      if (slash == std::string::npos || (error != EROFS && error != EACCES && error != EPERM)) {
        errno = error;
        return -1;
      }
    }
    if (slash == std::string::npos) break;
  }
  return open_root();
}

int LayerDir::make_parents(int root, const std::string& path) const {
  for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    if (ops_->mkdir(root, path.substr(0, slash).c_str(), 0700) != 0 && errno != EEXIST) return errno;
  }
  return 0;
}

int LayerDir::write_new(int root, const std::string& name, std::string_view bytes) const {
  constexpr mode_t kOwner = 0600;
  int fd = ops_->open(root, name.c_str(), O_WRONLY | O_CREAT | O_EXCL, kOwner);
  if (fd < 0 && errno == ENOENT) {
    if (const int error = make_parents(root, name)) return error;
    fd = ops_->open(root, name.c_str(), O_WRONLY | O_CREAT | O_EXCL, kOwner);
  }
  if (fd < 0) return errno;
  int error = 0;
  while (!bytes.empty() && error == 0) {
    const ssize_t n = ops_->write(fd, bytes.data(), bytes.size());
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (n == 0) {
      error = ENOSPC;
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (ops_->close(fd) != 0 && error == 0) error = errno;  // NFS reports ENOSPC here
  if (error != 0) ops_->unlink(root, name.c_str());
  return error;
}

int LayerDir::publish(const std::string& path, std::string_view bytes, bool first_wins) const {
  const Fd root{*ops_, make_root()};
  if (root.fd < 0) return errno;
  const std::string name = unique_name();
  if (const int error = write_new(root.fd, name, bytes)) return error;
  int error = 0;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const int rc = first_wins ? ops_->link(root.fd, name.c_str(), path.c_str())
                              : ops_->rename(root.fd, name.c_str(), path.c_str());
    error = rc == 0 ? 0 : errno;
    if (error == EEXIST && first_wins) error = 0;
    if (error == EPERM || error == ENOTSUP || error == EMLINK)
      first_wins = false;  // no hard links here
    else if (error != ENOENT || make_parents(root.fd, path) != 0)
      break;
  }
  if (first_wins || error != 0) ops_->unlink(root.fd, name.c_str());
  return error;
}

bool LayerDir::set_aside(const std::string& path) const {
  const Fd root{*ops_, open_root()};
  if (root.fd < 0) return false;
  struct stat s;
  if (ops_->fstat(root.fd, &s) != 0 || s.st_uid != geteuid()) return false;
  ops_->mkdir(root.fd, "bad", 0700);
  const std::string to = "bad/" + path.substr(path.rfind('/') + 1);
  return ops_->rename(root.fd, path.c_str(), to.c_str()) == 0;
}

int LayerDir::remove(const std::string& path) const {
  const Fd root{*ops_, open_root()};
  if (root.fd < 0) return errno;
  return ops_->unlink(root.fd, path.c_str()) == 0 ? 0 : errno;
}

bool LayerDir::list(const std::string& directory, const std::function<void(const char* name)>& f) const {
  const Fd root{*ops_, open_root()};
  if (root.fd < 0) return false;
  const int fd = ops_->open(root.fd, directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY, 0);
  if (fd < 0) return false;
  DIR* dir = fdopendir(fd);
  if (dir == nullptr) {
    ops_->close(fd);
    return false;
  }
  while (const dirent* e = readdir(dir)) {
    const std::string_view name = e->d_name;
    if (name != "." && name != "..") f(e->d_name);
  }
  closedir(dir);
  return true;
}

}  // namespace lathe::runtime
