// The measuring worker as a child process: started, spoken to by lines over a socket, ended. Has a process group of its
// own (a Ctrl-C meant for the host does not reach it) and ends with this object. What the lines mean is
// worker_protocol.h's affair. Not thread-safe.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ir/base/status.h"

namespace lathe::runtime {

// "../libexec/lathe-worker" as seen from the library or the executable, beside it, or the build
// tree's "../tools"; empty: none.
std::string find_worker();

class WorkerProcess {
 public:
  static constexpr int kGraceMs = 300;  // for the last words of a child told to end
  static constexpr size_t kMaxLine = size_t{1} << 20;
  WorkerProcess() = default;
  ~WorkerProcess() { stop(); }
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // Nothing if it runs. path empty: find_worker(). UNSUPPORTED: it cannot be started.
  // environment: "NAME=value", all that it has beside LD_LIBRARY_PATH, where it may find its libraries.
  ir::Status start(const std::string& path, int memory_mb, int cpu_s, std::string plugin_dir,
                   std::vector<std::string> environment = {});
  void stop();
  // TIMEOUT: at the deadline it has not read all of it.
  ir::Status send(const std::string& text, int64_t deadline);
  // A line, an empty one at the deadline; UNSUPPORTED at the end of the stream, or of what a line may be.
  ir::Result<std::string> receive(int64_t deadline);
  void ask();            // what it is doing: it answers with its last words
  void end();            // at once
  void hold(bool held);  // stands still until it is let go
  // Reaps a child whose stream has ended; why it did. *killed: by a signal that no candidate sends itself.
  std::string end_of_child(bool* killed);

  pid_t pid() const { return pid_; }
  int spawned() const { return spawned_; }
  int64_t cpu_ms() const;  // of all its threads since it was started; 0: cannot be said
  static int64_t now_ms();

 private:
  bool wait_for(short event, int64_t deadline) const;  // false: at the deadline

  pid_t pid_ = -1;
  int fd_ = -1;
  int spawned_ = 0;
  std::string pending_;  // read, not yet a line
};

}  // namespace lathe::runtime
