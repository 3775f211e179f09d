// The clocks: the steady one, for budgets and what took how long, and CPU time, for what work cost. Who may be tested
// with another clock takes a function instead.
#pragma once
#include <time.h>

#include <cstdint>

namespace lathe::runtime {

// 0: there is no such clock.
inline int64_t clock_ns(clockid_t clock) {
  timespec t{};
  return clock_gettime(clock, &t) == 0 ? int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec : 0;
}
inline int64_t now_ns() { return clock_ns(CLOCK_MONOTONIC); }
inline double now_us() { return static_cast<double>(now_ns()) * 1e-3; }
inline double now_ms() { return static_cast<double>(now_ns()) * 1e-6; }

// Of the calling thread: what others do on a shared machine meanwhile does not count.
inline int64_t thread_cpu_ns() { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace lathe::runtime
