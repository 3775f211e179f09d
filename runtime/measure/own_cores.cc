// See own_cores.h.
#include "runtime/measure/own_cores.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/base/clock.h"

namespace lathe::runtime {
namespace {

constexpr double kOwn = 0.75;  // of the speed alone
constexpr int64_t kNapNs = 10'000'000, kMeetNs = 1'000'000;
constexpr int kChains = 12,
              kSteps = 4000;  // independent multiplications and additions: enough to fill the units of any core

// Steps a nanosecond, by units that siblings share.
double speed() {
  double x[kChains];
  for (int c = 0; c < kChains; ++c) x[c] = 1 + c;
  const int64_t start = now_ns();
  for (int n = 0; n < kSteps; ++n) {
    for (double& v : x) v = v * 0.999 + 0.001;
  }
  const int64_t ns = now_ns() - start;
  for (double& v : x) asm volatile("" : : "m"(v));
  return kSteps / static_cast<double>(std::max<int64_t>(ns, 1));
}

}  // namespace

OwnCores::OwnCores(ThreadTeam* team, OwnCoresOptions options) : team_(team), options_(std::move(options)) {
  if (!options_.share) options_.share = [this] { return measure(); };
  if (!options_.now_ns) options_.now_ns = now_ns;
  if (!options_.sleep) options_.sleep = [](int64_t ns) { std::this_thread::sleep_for(std::chrono::nanoseconds(ns)); };
}

// All at once: who waits for the others in vain has no core of its own.
double OwnCores::measure() {
  if (alone_ == 0) alone_ = std::max(speed(), speed());
  const int count = team_->num_threads();
  std::vector<double> each(static_cast<size_t>(count), 0);
  std::atomic<int> here{0};
  team_->parallel_for(count, [&](int i) {
    here.fetch_add(1);
    for (const int64_t from = now_ns(); here.load() < count;) {
      if (now_ns() - from > kMeetNs) return;
    }
    each[static_cast<size_t>(i)] = speed();
  });
  alone_ = std::max(alone_, *std::max_element(each.begin(), each.end()));
  return *std::min_element(each.begin(), each.end()) / alone_;
}

void OwnCores::await() {
  if (team_ == nullptr || team_->num_threads() < 2) return;
  while (waited_ms_ < (seen_apart_ ? options_.most_ms : options_.first_ms)) {
    if (options_.share() >= kOwn) {
      seen_apart_ = true;
      return;
    }
    const int64_t from = options_.now_ns();
    options_.sleep(kNapNs);
    waited_ms_ += static_cast<double>(std::max(options_.now_ns() - from, kNapNs)) * 1e-6;
  }
}

}  // namespace lathe::runtime
