// See worker_process.h.
#include "runtime/measure/worker_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <vector>

#include "ir/base/options.h"
#include "runtime/base/clock.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string(".") : path.substr(0, slash);
}

}  // namespace

int64_t WorkerProcess::now_ms() { return now_ns() / 1'000'000; }

std::string find_worker() {
  std::vector<std::string> places;
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&find_worker), &info) && info.dli_fname)
    places.push_back(directory_of(info.dli_fname));
  char self[4096];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self);
  if (n > 0 && n < static_cast<ssize_t>(sizeof self))
    places.push_back(directory_of(std::string(self, static_cast<size_t>(n))));
  for (const std::string& place : places) {
    for (const char* below : {"/../libexec/lathe-worker", "/lathe-worker", "/../tools/lathe-worker"}) {
      const std::string path = place + below;
      if (access(path.c_str(), X_OK) == 0) return path;
    }
  }
  return "";
}

Status WorkerProcess::start(const std::string& wanted, int memory_mb, int cpu_s, std::string plugin_dir,
                            std::vector<std::string> environment) {
  if (pid_ > 0) return {};
  const std::string path = wanted.empty() ? find_worker() : wanted;
  if (path.empty()) return ir::unsupported("no lathe-worker beside the library; LATHE_WORKER names one elsewhere");
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return ir::unsupported("no socket for the worker");
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&files, pair[1], 0);
  posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&files, 3);
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  std::string memory = std::to_string(memory_mb), cpu = std::to_string(cpu_s), file = path;
  char* argv[] = {file.data(), memory.data(), cpu.data(), plugin_dir.empty() ? nullptr : plugin_dir.data(), nullptr};
  if (const auto value = ir::process_environment("LD_LIBRARY_PATH")) environment.push_back("LD_LIBRARY_PATH=" + *value);
  std::vector<char*> envp;
  for (std::string& e : environment) envp.push_back(e.data());
  envp.push_back(nullptr);
  pid_t child = -1;
  const int error = posix_spawn(&child, path.c_str(), &files, &attributes, argv, envp.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  close(pair[1]);
  if (error != 0) {
    close(pair[0]);
    return ir::unsupported("{} cannot be started: {}", path, std::strerror(error));
  }
  pid_ = child;
  fd_ = pair[0];
  pending_.clear();
  ++spawned_;
  return {};
}

void WorkerProcess::stop() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  if (pid_ <= 0) return;
  kill(-pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

Status WorkerProcess::send(const std::string& text, int64_t deadline) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::send(fd_, text.data() + at, text.size() - at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!wait_for(POLLOUT, deadline)) return ir::make_error(ir::Code::kTIMEOUT, "the worker does not read");
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return ir::unsupported("the worker is gone");
    at += static_cast<size_t>(n);
  }
  return {};
}

bool WorkerProcess::wait_for(short event, int64_t deadline) const {
  for (int64_t left = deadline - now_ms(); left > 0; left = deadline - now_ms()) {
    pollfd p = {fd_, event, 0};
    if (poll(&p, 1, static_cast<int>(std::min<int64_t>(left, INT_MAX))) > 0) return true;
  }
  return false;
}

Result<std::string> WorkerProcess::receive(int64_t deadline) {
  while (true) {
    const size_t end = pending_.find('\n');
    if (end != std::string::npos) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      if (line.empty()) continue;
      return line;
    }
    if (pending_.size() > kMaxLine) return ir::unsupported("the worker's line has no end");
    if (!wait_for(POLLIN, deadline)) return std::string();
    char buffer[1 << 14];
    const ssize_t n = read(fd_, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return ir::unsupported("the worker is gone");
    pending_.append(buffer, static_cast<size_t>(n));
  }
}

// Reaps a child whose stream has ended.
std::string WorkerProcess::end_of_child(bool* killed) {
  int status = 0;
  close(fd_);
  fd_ = -1;
  const int64_t deadline = now_ms() + kGraceMs;
  pid_t reaped = 0;
  while ((reaped = waitpid(pid_, &status, WNOHANG)) == 0 && now_ms() < deadline) usleep(1000);
  if (reaped == 0) {
    kill(-pid_, SIGKILL);
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  kill(-pid_, SIGKILL);  // whatever it left in its group
  pid_ = -1;
  *killed =
      WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGHUP);
  if (WIFSIGNALED(status)) return strsignal(WTERMSIG(status));
  return fmt::format("exit with status {}", WEXITSTATUS(status));
}

int64_t WorkerProcess::cpu_ms() const {
  clockid_t clock{};
  return pid_ > 0 && clock_getcpuclockid(pid_, &clock) == 0 ? clock_ns(clock) / 1'000'000 : 0;
}

void WorkerProcess::ask() {
  if (pid_ > 0) kill(pid_, SIGTERM);
}
void WorkerProcess::hold(bool held) {
  if (pid_ > 0) kill(-pid_, held ? SIGSTOP : SIGCONT);
}
void WorkerProcess::end() {
  if (pid_ > 0) kill(-pid_, SIGKILL);
}

}  // namespace lathe::runtime
