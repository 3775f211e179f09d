// Milliseconds of the steady clock, for budgets and what took how long.
#pragma once
#include <chrono>

namespace lathe::runtime {

inline double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace lathe::runtime
