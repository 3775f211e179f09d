// Keeps Lathe's own work aside from the host's calls: behind the host's threads wherever both want a processor, and off
// the processors where calls run as long as there are others. Linux only; what the kernel refuses is left as it is.
#pragma once
#include <sched.h>
#include <sys/types.h>

#include <cstdint>

namespace lathe::runtime {

// The calling thread, and the children it starts, from now on: they never push a running thread aside when they wake.
void work_aside();

class KeepOff {
 public:
  // Of the calling thread: where it and its children may run at all.
  KeepOff();
  // calls: processors where calls were seen since the last time; none: as before, until that is 5 s old. Moves the
  // calling thread and the child (-1: none) if that changes anything. parallel: calls use more processors than they are
  // seen on, so nothing is avoided.
  void update(const cpu_set_t& calls, bool parallel, pid_t child, int64_t now_ns);
  // Where own work may run.
  const cpu_set_t& allowed() const { return allowed_; }

 private:
  cpu_set_t own_, allowed_;
  int64_t seen_ns_ = 0;
  pid_t child_ = -1;
};

}  // namespace lathe::runtime
