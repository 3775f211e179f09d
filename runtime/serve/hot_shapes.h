// How often and how long a bound shape runs, counted on the calls themselves: a plain load and store in the thread's
// own line per call, and out of every `period` calls eight in a row that are looked at closely (serve_sampled.h): their
// times, and, while a candidate is on trial, the few calls that it serves. Approximate by intent: threads that share a
// shard lose counts. Thread-safe; no call ever waits.
#pragma once
#include <sched.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace lathe::runtime {

struct BoundOp;
class RecordedCalls;

inline constexpr int kBurst = 4;            // calls in a row by one body; the first one warms up and is not timed
inline constexpr int kWindow = 2 * kBurst;  // the other body, if there is a trial; then the one that serves
inline constexpr uint32_t kSamplePeriod = 1024;

// What is asked of real calls while a candidate is on its way. Made by the tuner, kept as long as its shape.
struct Trial {
  const BoundOp* other = nullptr;     // serves the first burst of each window; null: none does
  RecordedCalls* recorder = nullptr;  // gets copies of calls; null: none
  size_t step = 0;                    // whose Kernel is recorded

  struct Pair {
    double other_ns, serving_ns;
  };
  // Drops the pair if another thread is at it, or nobody has fetched the last ones.
  void add(const Pair& pair);
  std::vector<Pair> take();

 private:
  static constexpr size_t kMost = 512;
  std::mutex mutex_;
  std::vector<Pair> pairs_;
};

class HotShape {
 public:
  // period: a power of two, at least 2 * kWindow.
  explicit HotShape(uint32_t period = kSamplePeriod) : mask_(period - 1), first_(period - kWindow) {}

  // Counts a call. Its place in the window; kWindow outside it, if the call may be recorded; else -1.
  int tick() {
    Shard& s = shard();
    const uint64_t n = s.calls.load(std::memory_order_relaxed);
    s.calls.store(n + 1, std::memory_order_relaxed);
    const uint32_t at = static_cast<uint32_t>(n) & mask_;
    if (at >= first_) return static_cast<int>(at - first_);
    return ((at + 1) & often_.load(std::memory_order_relaxed)) == 0 ? kWindow : -1;
  }
  // The time of the call at that place; trial: the one that was asked, or null.
  void note(int place, int64_t ns, Trial* trial);

  uint64_t calls() const;
  double mean_ns() const;           // of the calls timed so far by the body that serves; 0: none yet
  void forget_times();              // another body serves from now on
  void take_cpus(cpu_set_t* cpus);  // adds where its calls were seen since the last time

  Trial* trial() const { return trial_.load(std::memory_order_acquire); }
  void set_trial(Trial* trial);

 private:
  static constexpr size_t kShards = 8;
  struct alignas(64) Shard {
    std::atomic<uint64_t> calls{0};
    std::atomic<int64_t> best[2] = {0, 0};  // of the bursts of this window; 0: none
    std::atomic<Trial*> asked{nullptr};     // during the first burst
    std::atomic<int64_t> time_ns{0}, timed{0};
    std::atomic<int32_t> cpu{-1};  // that its latest window began on
  };
  Shard& shard() {
    const auto thread = reinterpret_cast<uintptr_t>(__builtin_thread_pointer());
    return shards_[(thread * 0x9e3779b97f4a7c15ull >> 61) % kShards];
  }

  uint32_t mask_, first_;
  std::atomic<uint32_t> often_{~0u};  // while calls are recorded: one in 16
  std::atomic<Trial*> trial_{nullptr};
  std::array<Shard, kShards> shards_;
};

}  // namespace lathe::runtime
