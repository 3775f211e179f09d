// From the dims of a call to its body: an insert-only hash table that readers use without a lock
// and without writing anything shared. Writers take a mutex; growing publishes a new table and
// keeps the old ones until the end, so a reader never looks into freed memory. Bodies belong to the
// caller, who keeps replaced ones as long as a reader may hold them.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace lathe::runtime {

inline constexpr int kMaxDispatchDims = 6;

struct alignas(64) DispatchKey {
  uint64_t graph = 0;
  int64_t dims[kMaxDispatchDims] = {};  // unused ones 0
  uint16_t threads = 1;
  uint8_t packed = 0;

  uint64_t rest() const { return uint64_t{threads} | uint64_t{packed} << 16; }
  uint64_t dim(int i) const { return static_cast<uint64_t>(dims[i]); }
  // Two fields folded with a multiplication each time: a few nanoseconds, and every bit counts.
  // Field by field, not as an array: vector loads of fields just written would stall.
  uint64_t hash() const {
    uint64_t h = fold(0x9e3779b97f4a7c15ull, graph, dim(0));
    h = fold(h, dim(1), dim(2));
    h = fold(h, dim(3), dim(4));
    h = fold(h, dim(5), rest());
    return h ^ h >> 32;
  }
  bool operator==(const DispatchKey& o) const {
    return ((graph ^ o.graph) | (dim(0) ^ o.dim(0)) | (dim(1) ^ o.dim(1)) | (dim(2) ^ o.dim(2)) | (dim(3) ^ o.dim(3)) |
            (dim(4) ^ o.dim(4)) | (dim(5) ^ o.dim(5)) | (rest() ^ o.rest())) == 0;
  }

 private:
  static uint64_t fold(uint64_t h, uint64_t a, uint64_t b) {
    const __uint128_t p = static_cast<__uint128_t>(a ^ h) * (b ^ 0xd6e8feb86659fd93ull);
    return static_cast<uint64_t>(p) ^ static_cast<uint64_t>(p >> 64) ^ (b + (h << 7 | h >> 57)) * 0xff51afd7ed558ccdull;
  }
};
static_assert(sizeof(DispatchKey) == 64);

class DispatchTable {
 public:
  explicit DispatchTable(size_t max_entries = SIZE_MAX);
  ~DispatchTable();
  DispatchTable(const DispatchTable&) = delete;
  DispatchTable& operator=(const DispatchTable&) = delete;

  // The body, or null. Wait-free.
  const void* find(const DispatchKey& key) const {
    const Table* t = table_.load(std::memory_order_acquire);
    for (uint64_t i = key.hash();; ++i) {
      const Entry* e = t->slots[i & t->mask].load(std::memory_order_acquire);
      if (e == nullptr) return nullptr;
      if (e->key == key) return e->body.load(std::memory_order_acquire);
    }
  }
  // The body that now answers to the key: `body`, or the one that was first. Null if the table is
  // full.
  const void* insert(const DispatchKey& key, const void* body);
  // Replaces the body (one release store), or inserts; returns the old one or null. *full (if not
  // null) tells a refusal.
  const void* replace(const DispatchKey& key, const void* body, bool* full = nullptr);
  size_t size() const { return size_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    DispatchKey key;
    std::atomic<const void*> body;
  };
  struct Table {
    explicit Table(size_t capacity) : mask(capacity - 1), slots(new std::atomic<Entry*>[capacity]()) {}
    uint64_t mask;
    std::unique_ptr<std::atomic<Entry*>[]> slots;
  };
  Entry* locate(const DispatchKey& key, bool* added, const void* body);  // with mutex_ held
  static void place(const Table& table, Entry* entry);

  const size_t max_entries_;
  std::atomic<Table*> table_;
  std::atomic<size_t> size_{0};
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Table>> tables_;  // the last one is current
  std::vector<std::unique_ptr<Entry>> entries_;
};

// The same with a type.
template <class Body>
class Dispatch {
 public:
  explicit Dispatch(size_t max_entries = SIZE_MAX) : table_(max_entries) {}
  const Body* find(const DispatchKey& key) const { return static_cast<const Body*>(table_.find(key)); }
  const Body* insert(const DispatchKey& key, const Body* body) {
    return static_cast<const Body*>(table_.insert(key, body));
  }
  const Body* replace(const DispatchKey& key, const Body* body, bool* full = nullptr) {
    return static_cast<const Body*>(table_.replace(key, body, full));
  }
  size_t size() const { return table_.size(); }

 private:
  DispatchTable table_;
};

}  // namespace lathe::runtime
