// What tests ask of the compiler that stands in the place of NVRTC, beside NVRTC's own functions.
#pragma once
#include <atomic>
#include <cstddef>

namespace lathe::test {

struct FakeNvrtc {
  int major = 12, minor = 9;
  std::atomic<int> compiles{0}, running{0}, most_at_once{0};
  std::atomic<int> wait_for{0};     // a compilation waits, for some seconds at most, until so many run
  std::atomic<int> delay_ms{0};     // of each compilation, which asks its callback meanwhile
  char log[256] = {};               // added to the log of each compilation
  std::atomic<bool> spills{false};  // the log says that registers are spilled, but where they are spared
  std::atomic<int> faults{0};       // of so many compilations from now on it says so in any case
};

}  // namespace lathe::test

extern "C" lathe::test::FakeNvrtc* fake_nvrtc();
