// A share of one CPU, kept on average: work is charged after it was done, and whoever is in debt waits until the share
// has paid for it. What is not used is saved up to `saved_ns` of CPU time. Time is handed in. Not thread-safe.
#pragma once
#include <algorithm>
#include <cstdint>

namespace lathe::runtime {

class CpuBudget {
 public:
  // share: of one CPU, more than 0; starts with nothing saved.
  CpuBudget(double share, int64_t saved_ns, int64_t now_ns) : share_(share), saved_ns_(saved_ns), last_ns_(now_ns) {}

  void charge(int64_t now_ns, int64_t cpu_ns) {
    earn(now_ns);
    balance_ -= static_cast<double>(std::max<int64_t>(cpu_ns, 0));
    used_ns_ += std::max<int64_t>(cpu_ns, 0);
  }
  // Time until the debt is paid; 0: none.
  int64_t wait_ns(int64_t now_ns) {
    earn(now_ns);
    return balance_ >= 0 ? 0 : static_cast<int64_t>(-balance_ / share_) + 1;
  }
  // Until now nothing was to be earned.
  void pause(int64_t now_ns) { last_ns_ = now_ns; }
  int64_t used_ns() const { return used_ns_; }

 private:
  // A clock that goes back earns nothing.
  void earn(int64_t now_ns) {
    const double earned = static_cast<double>(std::max<int64_t>(now_ns - last_ns_, 0)) * share_;
    balance_ = std::min(balance_ + earned, std::max(balance_, static_cast<double>(saved_ns_)));
    last_ns_ = now_ns;
  }
  double share_;
  int64_t saved_ns_, last_ns_;
  double balance_ = 0;
  int64_t used_ns_ = 0;
};

}  // namespace lathe::runtime
