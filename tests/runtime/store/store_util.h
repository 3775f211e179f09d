// For the store's tests: a directory that goes away, small file helpers, and system calls that fail
// or kill at a chosen moment.
#pragma once
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "runtime/store/store.h"

namespace lathe::runtime {

class TempDir {
 public:
  TempDir() {
    char fast[] = "/dev/shm/lathe_store_XXXXXX";  // thousands of directories: in memory if possible
    char usual[] = "/tmp/lathe_store_XXXXXX";
    const char* made = mkdtemp(fast);
    path_ = made != nullptr ? made : mkdtemp(usual);
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string read_whole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void write_whole(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  chmod(path.c_str(), 0600);
}
inline int files_in(const std::string& path) {
  std::error_code ignored;
  int n = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator(path, ignored)) ++n;
  return n;
}

inline StoreOptions at(const std::string& path, LayerMode mode = LayerMode::private_rw) {
  StoreOptions o;
  o.layers = {{path, mode}};
  return o;
}
inline ObjectKey decision_key(std::string name = "aabb") { return {ObjectKind::k_decision, "env1", std::move(name)}; }
inline ObjectKey image_key(std::string name = "ccdd") { return {ObjectKind::k_image, "code1", std::move(name)}; }

// Counts the calls of all kinds. Number `fail_at` fails with `error` (a write: half of it is
// written first), or kills the process.
class FaultyOps : public FileOps {
 public:
  int fail_at = -1, error = EIO;
  bool kill = false, sticky = false;
  mutable int calls = 0;

  int open(int dir, const char* path, int flags, mode_t mode) const override {
    return fails() ? -1 : FileOps::open(dir, path, flags, mode);
  }
  ssize_t read(int fd, void* data, size_t size) const override { return fails() ? -1 : FileOps::read(fd, data, size); }
  ssize_t write(int fd, const void* data, size_t size) const override {
    const int now = calls;
    if (!hit(now)) return fails() ? -1 : FileOps::write(fd, data, size);
    if (size > 1 && !short_written_) {
      short_written_ = true;  // a short write, then the error
      return FileOps::write(fd, data, size / 2);
    }
    return fails() ? -1 : FileOps::write(fd, data, size);
  }
  int close(int fd) const override {
    const bool failing = fails();
    const int rc = FileOps::close(fd);
    if (failing) errno = error;
    return failing ? -1 : rc;
  }
  int fstat(int fd, struct stat* out) const override { return fails() ? -1 : FileOps::fstat(fd, out); }
  int link(int dir, const char* from, const char* to) const override {
    return fails() ? -1 : FileOps::link(dir, from, to);
  }
  int rename(int dir, const char* from, const char* to) const override {
    return fails() ? -1 : FileOps::rename(dir, from, to);
  }
  int unlink(int dir, const char* path) const override { return fails() ? -1 : FileOps::unlink(dir, path); }
  int mkdir(int dir, const char* path, mode_t mode) const override {
    return fails() ? -1 : FileOps::mkdir(dir, path, mode);
  }

 private:
  bool hit(int call) const { return fail_at >= 0 && (call == fail_at || (sticky && call > fail_at)); }
  bool fails() const {
    if (!hit(calls++)) return false;
    if (kill) ::kill(getpid(), SIGKILL);
    errno = error;
    return true;
  }
  mutable bool short_written_ = false;
};

}  // namespace lathe::runtime
