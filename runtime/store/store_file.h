// Files of a store layer: read once with checks, publish atomically. All system calls go through
// FileOps, which tests replace to make them fail. Knows nothing of what the files mean.
// Thread-safe, as are the real operations.
#pragma once
#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "runtime/base/stats.h"

namespace lathe::runtime {

// The system calls, with their results and errno.
class FileOps {
 public:
  virtual ~FileOps() = default;
  // O_CLOEXEC is added. Below `dir` no symbolic link is followed, unless dir is AT_FDCWD.
  virtual int open(int dir, const char* path, int flags, mode_t mode) const;
  virtual ssize_t read(int fd, void* data, size_t size) const;
  virtual ssize_t write(int fd, const void* data, size_t size) const;
  virtual int close(int fd) const;
  virtual int fstat(int fd, struct stat* out) const;
  virtual int link(int dir, const char* from, const char* to) const;
  virtual int rename(int dir, const char* from, const char* to) const;
  virtual int unlink(int dir, const char* path) const;
  virtual int mkdir(int dir, const char* path, mode_t mode) const;
  static const FileOps& real();
};

// How a file was read, or why not.
struct FileRead {
  bool ok = false;
  MissReason reason = MissReason::k_never_seen;
  int os_errno = 0;
  std::string bytes;
};

// The directory of one layer (".../v1"). Each operation opens it anew: it may come, go and be
// replaced at any time.
class LayerDir {
 public:
  LayerDir(std::string root, const FileOps& ops) : root_(std::move(root)), ops_(&ops) {}
  const std::string& root() const { return root_; }

  // Reads a regular file of at most max_bytes into private memory. `trusted`: it and the root must
  // belong to this user or root and be writable by nobody else (machine code).
  FileRead read(const std::string& path, size_t max_bytes, bool trusted) const;
  // Writes a unique file in new/ and moves it to `path`: by link (the first one stays) or by rename
  // (the last one wins). Makes the directories. Returns 0 or the errno; nothing is left behind.
  int publish(const std::string& path, std::string_view bytes, bool first_wins) const;
  // To bad/, if it is ours.
  bool set_aside(const std::string& path) const;
  int remove(const std::string& path) const;
  // Calls f(name) for every entry of a directory; false if it cannot be read.
  bool list(const std::string& directory, const std::function<void(const char* name)>& f) const;

 private:
  int open_root() const;
  int make_root() const;
  int make_parents(int root, const std::string& path) const;
  int write_new(int root, const std::string& name, std::string_view bytes) const;

  std::string root_;
  const FileOps* ops_;
};

}  // namespace lathe::runtime
