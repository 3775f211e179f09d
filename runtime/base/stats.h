// Counters of one context: the rows of stats.def and one per miss reason. Relaxed atomics, sharded
// by thread, so that counting does not bounce a line between callers. Reading adds the shards up.
// Thread-safe.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace lathe::runtime {

enum class MissReason : uint8_t {
#define LATHE_MISS(id, meaning) k_##id,
#include "runtime/base/miss_reasons.def"
#undef LATHE_MISS
};
enum class Stat : uint8_t {
#define LATHE_STAT(id, help) k_##id,
#include "runtime/base/stats.def"
#undef LATHE_STAT
};
#define LATHE_STAT(id, help) +1
inline constexpr int kStats = 0
#include "runtime/base/stats.def"
    ;
#undef LATHE_STAT
#define LATHE_MISS(id, meaning) +1
inline constexpr int kMissReasons = 0
#include "runtime/base/miss_reasons.def"
    ;
#undef LATHE_MISS

const char* stat_name(Stat stat);
const char* miss_reason_name(MissReason reason);
const char* miss_reason_meaning(MissReason reason);

class Stats {
 public:
  void add(Stat stat, int64_t n = 1) { cell(static_cast<int>(stat)).fetch_add(n, std::memory_order_relaxed); }
  void miss(MissReason reason) { cell(kStats + static_cast<int>(reason)).fetch_add(1, std::memory_order_relaxed); }
  int64_t get(Stat stat) const { return sum(static_cast<int>(stat)); }
  int64_t misses(MissReason reason) const { return sum(kStats + static_cast<int>(reason)); }
  int64_t misses() const;
  // Prometheus text format: lathe_<id> per stat, lathe_misses{reason="..."}.
  std::string prometheus() const;

 private:
  static constexpr int kShards = 8;
  struct alignas(64) Shard {
    std::array<std::atomic<int64_t>, kStats + kMissReasons> cells{};
  };
  std::atomic<int64_t>& cell(int i) {
    const auto thread = reinterpret_cast<uintptr_t>(__builtin_thread_pointer());
    return shards_[(thread * 0x9e3779b97f4a7c15ull >> 61) % kShards].cells[static_cast<size_t>(i)];
  }
  int64_t sum(int i) const;

  std::array<Shard, kShards> shards_;
};

}  // namespace lathe::runtime
