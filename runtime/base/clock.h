// The clocks: milliseconds of the steady one, for budgets and what took how long, and the CPU time of a thread, for
// what work cost it.
#pragma once
#include <time.h>

#include <chrono>
#include <cstdint>

namespace lathe::runtime {

inline double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of the calling thread: what others do on a shared machine meanwhile does not count.
inline int64_t thread_cpu_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace lathe::runtime
