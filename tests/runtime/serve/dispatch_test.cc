// The dispatch table: growth, replacement, limits, hash quality, and readers beside writers.
#include "runtime/serve/dispatch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

namespace lathe::runtime {
namespace {

DispatchKey key_of(int64_t i) {
  DispatchKey k;
  k.graph = static_cast<uint64_t>(i % 7);
  k.dims[0] = i;
  k.dims[5] = i * 64;
  return k;
}
const void* body(int64_t i) { return reinterpret_cast<const void*>(i + 1); }

TEST(Dispatch, FindsWhatWasInsertedThroughGrowth) {
  DispatchTable t;
  EXPECT_EQ(t.find(key_of(0)), nullptr);
  for (int64_t i = 0; i < 5000; ++i) EXPECT_EQ(t.insert(key_of(i), body(i)), body(i));
  for (int64_t i = 0; i < 5000; ++i) ASSERT_EQ(t.find(key_of(i)), body(i));
  EXPECT_EQ(t.find(key_of(5000)), nullptr);
  EXPECT_EQ(t.size(), 5000u);
}

TEST(Dispatch, FirstInsertWinsAndReplaceReturnsTheOld) {
  DispatchTable t;
  EXPECT_EQ(t.insert(key_of(1), body(1)), body(1));
  EXPECT_EQ(t.insert(key_of(1), body(2)), body(1));
  EXPECT_EQ(t.replace(key_of(1), body(3)), body(1));
  EXPECT_EQ(t.find(key_of(1)), body(3));
}

TEST(Dispatch, RefusesAboveItsLimit) {
  DispatchTable t(3);
  for (int64_t i = 0; i < 3; ++i) EXPECT_NE(t.insert(key_of(i), body(i)), nullptr);
  EXPECT_EQ(t.insert(key_of(3), body(3)), nullptr);
  bool full = false;
  EXPECT_EQ(t.replace(key_of(4), body(4), &full), nullptr);
  EXPECT_TRUE(full);
  EXPECT_EQ(t.insert(key_of(2), body(9)), body(2));
}

TEST(Dispatch, EveryFieldIsPartOfTheKeyAndOfTheHash) {
  std::vector<DispatchKey> keys(10);
  keys[1].graph = 1;
  for (size_t d = 0; d < 6; ++d) keys[2 + d].dims[d] = 1;
  keys[8].threads = 2;
  keys[9].packed = 1;
  std::set<uint64_t> hashes;
  for (size_t i = 0; i < keys.size(); ++i) {
    hashes.insert(keys[i].hash());
    for (size_t j = 0; j < keys.size(); ++j) EXPECT_EQ(keys[i] == keys[j], i == j);
  }
  EXPECT_EQ(hashes.size(), keys.size());
}

TEST(Dispatch, HashesOfShapesSpreadOverTheLowBits) {
  std::vector<int> buckets(1024);
  for (int64_t m = 1; m <= 64; ++m) {
    for (int64_t n = 1; n <= 64; ++n) {
      DispatchKey k;
      k.dims[0] = m;
      k.dims[1] = n * 64;
      ++buckets[k.hash() & 1023];
    }
  }
  EXPECT_LT(*std::max_element(buckets.begin(), buckets.end()), 20);  // 4 on average
}

TEST(Dispatch, ReadersNeverMissAPublishedEntry) {
  DispatchTable t;
  std::atomic<int64_t> published{0};
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  constexpr int64_t kCount = 20000;
  std::vector<std::thread> readers;
  for (int r = 0; r < 3; ++r) {
    readers.emplace_back([&, r] {
      uint64_t x = static_cast<uint64_t>(r) + 1;
      while (!stop.load(std::memory_order_relaxed)) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        const int64_t n = published.load(std::memory_order_acquire);
        if (n == 0) continue;
        const auto i = static_cast<int64_t>((x >> 33) % static_cast<uint64_t>(n));
        const void* b = t.find(key_of(i));
        if (b != body(i) && b != body(i + kCount)) wrong.fetch_add(1);
      }
    });
  }
  std::thread replacer([&] {
    while (!stop.load()) {
      const int64_t n = published.load(std::memory_order_acquire);
      for (int64_t i = 0; i < n; i += 97) t.replace(key_of(i), body(i + kCount));
    }
  });
  for (int64_t i = 0; i < kCount; ++i) {
    t.insert(key_of(i), body(i));
    published.store(i + 1, std::memory_order_release);
  }
  stop.store(true);
  for (std::thread& r : readers) r.join();
  replacer.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace lathe::runtime
