// See hot_shapes.h.
#include "runtime/serve/hot_shapes.h"

#include <algorithm>

namespace lathe::runtime {

namespace {
constexpr uint32_t kRecordMask = 15;
}

void Trial::add(const Pair& pair) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || pairs_.size() >= kMost) return;
  if (pairs_.capacity() < kMost) pairs_.reserve(kMost);
  pairs_.push_back(pair);
}

std::vector<Trial::Pair> Trial::take() {
  std::vector<Pair> out;
  out.reserve(kMost);
  const std::lock_guard lock(mutex_);
  out.swap(pairs_);
  return out;
}

void HotShape::set_trial(Trial* trial) {
  trial_.store(trial, std::memory_order_release);
  often_.store(trial != nullptr && trial->recorder != nullptr ? kRecordMask : ~0u, std::memory_order_relaxed);
}

void HotShape::note(int place, int64_t ns, Trial* trial) {
  if (place < 0 || place >= kWindow) return;
  constexpr auto kRelaxed = std::memory_order_relaxed;
  Shard& s = shard();
  const size_t half = place < kBurst ? 0 : 1;
  if (place % kBurst == 0) {
    s.best[half].store(0, kRelaxed);
    if (half == 0) s.asked.store(trial, kRelaxed);
    if (half == 0) s.cpu.store(sched_getcpu(), kRelaxed);
    return;
  }
  const int64_t best = s.best[half].load(kRelaxed);
  s.best[half].store(best == 0 ? ns : std::min(best, ns), kRelaxed);
  if (half == 0) return;
  s.time_ns.store(s.time_ns.load(kRelaxed) + ns, kRelaxed);
  s.timed.store(s.timed.load(kRelaxed) + 1, kRelaxed);
  if (place != kWindow - 1 || trial == nullptr || trial->other == nullptr || s.asked.load(kRelaxed) != trial) return;
  const Trial::Pair pair = {static_cast<double>(s.best[0].load(kRelaxed)),
                            static_cast<double>(s.best[1].load(kRelaxed))};
  if (pair.other_ns > 0 && pair.serving_ns > 0) trial->add(pair);
  s.best[0].store(0, kRelaxed);
}

uint64_t HotShape::calls() const {
  uint64_t n = 0;
  for (const Shard& s : shards_) n += s.calls.load(std::memory_order_relaxed);
  return n;
}

double HotShape::mean_ns() const {
  int64_t time = 0, timed = 0;
  for (const Shard& s : shards_) {
    time += s.time_ns.load(std::memory_order_relaxed);
    timed += s.timed.load(std::memory_order_relaxed);
  }
  return timed == 0 ? 0 : static_cast<double>(time) / static_cast<double>(timed);
}

void HotShape::take_cpus(cpu_set_t* cpus) {
  for (Shard& s : shards_) {
    const int cpu = s.cpu.exchange(-1, std::memory_order_relaxed);
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, cpus);
  }
}

void HotShape::forget_times() {
  for (Shard& s : shards_) {
    s.time_ns.store(0, std::memory_order_relaxed);
    s.timed.store(0, std::memory_order_relaxed);
  }
}

}  // namespace lathe::runtime
