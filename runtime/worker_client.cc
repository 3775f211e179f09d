// See worker_client.h. A task is sent without the candidates already known to fail; answers are
// mapped back to the caller's numbers.
#include "runtime/worker_client.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>

#include "ir/analysis.h"
#include "jit/host_cpu.h"
#include "runtime/key.h"
#include "runtime/stats.h"
#include "runtime/store.h"
#include "runtime/worker_protocol.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;
using Outcome = CandidateResult::Outcome;

namespace {

constexpr int kGraceMs = 300;  // for the last words of a child told to end

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string(".") : path.substr(0, slash);
}

ObjectKey quarantine_key(const EvaluateTask& task, int candidate) {
  const std::string isa = task.isa.empty() ? ir::isa_name(jit::host_target().level) : task.isa;
  const std::string text = fmt::format("codegen {}\nisa {}\n{}\n{}", kCodegenEpoch, isa,
                                       task.kernel_text, task.schedules[candidate]);
  return {ObjectKind::k_quarantine, "", ir::content_hash(text.data(), text.size()).substr(0, 40)};
}

}  // namespace

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
    for (const char* below :
         {"/../libexec/lathe-worker", "/lathe-worker", "/../tools/lathe-worker"}) {
      const std::string path = place + below;
      if (access(path.c_str(), X_OK) == 0) return path;
    }
  }
  return "";
}

struct WorkerClient::Impl {
  WorkerOptions options;
  pid_t pid = -1;
  int fd = -1;
  int spawned = 0;
  std::string pending;  // read, not yet a line

  Status start();
  void stop();
  Status send(const std::string& text);
  // A line, an empty one at the deadline; UNSUPPORTED at the end of the stream.
  Result<std::string> receive(int64_t deadline);
  int timeout(EvaluatePhase phase) const {
    return phase == EvaluatePhase::build  ? options.build_ms
           : phase == EvaluatePhase::time ? options.time_ms
                                          : options.verify_ms;
  }

  struct Attempt {
    bool done = false;
    EvaluateResult result;  // done
    int candidate = -1;     // else: who ended it, in the numbers of the task sent; -1: unknown
    Outcome outcome = Outcome::crashed;
    std::string reason;
    bool killed = false;  // by a signal that no candidate sends itself
  };
  Result<Attempt> attempt(const EvaluateTask& task,
                          const std::function<bool(int, EvaluatePhase)>& progress);
  std::string end_of_child(bool* killed);
};

Status WorkerClient::Impl::start() {
  if (pid > 0) return {};
  const std::string path = options.path.empty() ? find_worker() : options.path;
  if (path.empty()) return ir::unsupported("no lathe-worker beside the library");
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return ir::unsupported("no socket for the worker");
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
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  std::string memory = std::to_string(options.memory_mb), cpu = std::to_string(options.cpu_s),
              file = path;
  char* argv[] = {file.data(), memory.data(), cpu.data(),
                  options.plugin_dir.empty() ? nullptr : options.plugin_dir.data(), nullptr};
  char* environment[] = {nullptr};
  pid_t child = -1;
  const int error = posix_spawn(&child, path.c_str(), &files, &attributes, argv, environment);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  close(pair[1]);
  if (error != 0) {
    close(pair[0]);
    return ir::unsupported("{} cannot be started: {}", path, std::strerror(error));
  }
  pid = child;
  fd = pair[0];
  pending.clear();
  ++spawned;
  return {};
}

void WorkerClient::Impl::stop() {
  if (fd >= 0) close(fd);
  fd = -1;
  if (pid <= 0) return;
  kill(-pid, SIGKILL);
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid = -1;
}

Status WorkerClient::Impl::send(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::send(fd, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return ir::unsupported("the worker is gone");
    at += static_cast<size_t>(n);
  }
  return {};
}

Result<std::string> WorkerClient::Impl::receive(int64_t deadline) {
  while (true) {
    const size_t end = pending.find('\n');
    if (end != std::string::npos) {
      std::string line = pending.substr(0, end);
      pending.erase(0, end + 1);
      if (line.empty()) continue;
      return line;
    }
    const int64_t left = deadline - now_ms();
    if (left <= 0) return std::string();
    pollfd p = {fd, POLLIN, 0};
    const int ready = poll(&p, 1, static_cast<int>(left));
    if (ready < 0 && errno != EINTR) return ir::unsupported("the worker is gone");
    if (ready <= 0) continue;
    char buffer[1 << 14];
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return ir::unsupported("the worker is gone");
    pending.append(buffer, static_cast<size_t>(n));
  }
}

// Reaps a child whose stream has ended.
std::string WorkerClient::Impl::end_of_child(bool* killed) {
  int status = 0;
  close(fd);
  fd = -1;
  const int64_t deadline = now_ms() + kGraceMs;
  pid_t reaped = 0;
  while ((reaped = waitpid(pid, &status, WNOHANG)) == 0 && now_ms() < deadline) usleep(1000);
  if (reaped == 0) {
    kill(-pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
  }
  kill(-pid, SIGKILL);  // whatever it left in its group
  pid = -1;
  *killed = WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGINT ||
                                    WTERMSIG(status) == SIGHUP);
  if (WIFSIGNALED(status)) return strsignal(WTERMSIG(status));
  return fmt::format("exit with status {}", WEXITSTATUS(status));
}

Result<WorkerClient::Impl::Attempt> WorkerClient::Impl::attempt(
    const EvaluateTask& task, const std::function<bool(int, EvaluatePhase)>& progress) {
  Attempt out;
  LATHE_RETURN_IF_ERROR(start());
  Status sent = send(encode_task(task));
  EvaluatePhase phase = EvaluatePhase::verify;  // generous until something is heard
  bool asked = false;
  WorkerMessage last_words;
  int64_t deadline = now_ms() + timeout(phase);
  while (true) {
    Result<std::string> line = sent.ok() ? receive(deadline) : Result<std::string>(sent);
    if (!line.ok()) {
      out.reason = end_of_child(&out.killed);
      if (last_words.kind == WorkerMessage::Kind::fault) {
        out.reason = strsignal(last_words.signal);
        if (!last_words.what.empty()) out.reason += " at " + last_words.what;
        if (last_words.candidate >= 0) out.candidate = last_words.candidate;
        out.killed = !asked && last_words.signal == SIGTERM;
      }
      if (asked) {
        out.outcome = Outcome::hung;
        out.reason =
            fmt::format("no sign of life for {} ms in phase {}", timeout(phase), phase_name(phase));
      }
      return out;
    }
    if (line->empty()) {
      // Silence: ask where it is, then end it.
      kill(asked ? -pid : pid, asked ? SIGKILL : SIGTERM);
      asked = true;
      deadline = now_ms() + kGraceMs;
      continue;
    }
    Result<WorkerMessage> message = decode_message(*line);
    if (!message.ok()) {
      stop();
      return message.status();
    }
    switch (message->kind) {
      case WorkerMessage::Kind::progress:
        out.candidate = message->candidate;
        phase = message->phase;
        if (!asked) deadline = now_ms() + timeout(phase);
        if (progress && !progress(message->candidate, phase)) {
          stop();
          return ir::unsupported("cancelled");
        }
        break;
      case WorkerMessage::Kind::fault:
        last_words = *message;
        break;
      case WorkerMessage::Kind::error:
        return ir::make_error_impl(message->code, message->what);
      case WorkerMessage::Kind::result:
        out.done = true;
        out.result = std::move(message->result);
        return out;
    }
  }
}

WorkerClient::WorkerClient(WorkerOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->options = std::move(options);
}
WorkerClient::~WorkerClient() { impl_->stop(); }
pid_t WorkerClient::pid() const { return impl_->pid; }
int WorkerClient::spawned() const { return impl_->spawned; }

Result<EvaluateResult> WorkerClient::evaluate(
    const EvaluateTask& task, const std::function<bool(int candidate, EvaluatePhase)>& progress) {
  EvaluateResult out;
  out.candidates.resize(task.schedules.size());
  std::vector<int> left;
  Store* store = impl_->options.store;
  for (int i = 0; i < static_cast<int>(task.schedules.size()); ++i) {
    const Lookup known = store ? store->find(quarantine_key(task, i)) : Lookup{};
    if (!known.found) {
      left.push_back(i);
      continue;
    }
    out.candidates[i].outcome =
        known.bytes.rfind("hung", 0) == 0 ? Outcome::hung : Outcome::crashed;
    out.candidates[i].reason = "quarantined: " + known.bytes;
  }
  std::map<int, int> kills;  // ended from outside while this one was at hand
  while (!left.empty()) {
    EvaluateTask part = task;
    part.schedules.clear();
    part.plants.clear();
    for (const int i : left) part.schedules.push_back(task.schedules[i]);
    for (const int i : left) {
      if (!task.plants.empty()) part.plants.push_back(task.plants[i]);
    }
    LATHE_ASSIGN(Impl::Attempt attempt, impl_->attempt(part, [&](int c, EvaluatePhase phase) {
      const bool known = c >= 0 && c < static_cast<int>(left.size());
      return !progress || !known || progress(left[c], phase);
    }));
    if (attempt.done) {
      if (attempt.result.candidates.size() != left.size())
        return ir::internal_error("the worker answered another task");
      for (size_t n = 0; n < left.size(); ++n)
        out.candidates[left[n]] = std::move(attempt.result.candidates[n]);
      out.winner = attempt.result.winner < 0 ? -1 : left[attempt.result.winner];
      out.tie = attempt.result.tie;
      out.measurements = attempt.result.measurements;
      out.default_us = attempt.result.default_us;
      out.best_us = attempt.result.best_us;
      break;
    }
    const bool known = attempt.candidate >= 0 && attempt.candidate < static_cast<int>(left.size());
    if ((attempt.killed || !known) && kills[known ? attempt.candidate : -1]++ == 0) continue;
    if (!known) return ir::unsupported("the worker ends before it starts: {}", attempt.reason);
    const int i = left[attempt.candidate];
    out.candidates[i].outcome = attempt.outcome;
    out.candidates[i].reason = attempt.reason;
    if (store) {
      // A store that cannot be written to keeps it in memory.
      (void)store
          ->put(quarantine_key(task, i),
                fmt::format("{}: {}", outcome_name(attempt.outcome), attempt.reason))
          .ok();
    }
    left.erase(left.begin() + attempt.candidate);
    kills.clear();
  }
  if (Stats* stats = impl_->options.stats) {
    for (const CandidateResult& c : out.candidates) {
      const bool failed = c.outcome == Outcome::wrong || c.outcome == Outcome::crashed ||
                          c.outcome == Outcome::hung;
      stats->add(Stat::k_failures, failed);
      stats->add(Stat::k_verifications, c.outcome == Outcome::wrong || c.outcome == Outcome::timed);
      stats->add(Stat::k_measurements, c.outcome == Outcome::timed);
    }
  }
  return out;
}

}  // namespace lathe::runtime
