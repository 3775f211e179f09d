// Whether threads that run at once have a core each. A virtual machine's CPUs may be siblings of one core for a second
// at a time; two of them then multiply and add no faster than one, and a time of both says nothing about how they do
// else. Not thread-safe.
#pragma once
#include <cstdint>
#include <functional>

#include "runtime/walk/threads.h"

namespace lathe::runtime {

struct OwnCoresOptions {
  double first_ms = 300;  // waited in all before they have ever been seen apart: on some machines they never are
  double most_ms = 2000;  // waited in all
  std::function<double()>
      share;  // of a thread's speed alone, that of the slowest while all run; empty: measured, about 50 us
  std::function<int64_t()> now_ns;        // empty: the steady clock
  std::function<void(int64_t ns)> sleep;  // empty: sleeps
};

class OwnCores {
 public:
  // team outlives it; null or of one thread: there is nothing to wait for.
  explicit OwnCores(ThreadTeam* team, OwnCoresOptions options = {});
  OwnCores(const OwnCores&) = delete;
  OwnCores& operator=(const OwnCores&) = delete;
  // Returns when each thread has a core, or waiting is over.
  void await();
  double waited_ms() const { return waited_ms_; }

 private:
  double measure();
  ThreadTeam* team_;
  OwnCoresOptions options_;
  double alone_ = 0;  // steps a nanosecond, the best seen of one thread
  double waited_ms_ = 0;
  bool seen_apart_ = false;
};

}  // namespace lathe::runtime
