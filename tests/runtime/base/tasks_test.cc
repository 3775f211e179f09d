// Coarse work on several threads: each item once, the first error by order, nested use, fork, floating-point control,
// affinity.
#include "runtime/base/tasks.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <thread>
#include <vector>

namespace lathe::runtime {
namespace {

using ir::Status;

TEST(Tasks, EachIndexOnceAndAllDoneAtReturn) {
  for (const int threads : {1, 2, 3}) {
    TaskArena arena(threads);
    EXPECT_GE(arena.threads(), 1);
    EXPECT_LE(arena.threads(), threads);
    for (size_t n = 0; n < 200; n = n * 2 + 1) {
      std::vector<int> seen(n);  // plain: what is handed over and back is ordered
      ASSERT_TRUE(for_each_index(&arena, n, [&](size_t i) {
                    ++seen[i];
                    return Status();
                  }).ok());
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<std::ptrdiff_t>(n));
    }
  }
}

TEST(Tasks, WithoutAnArenaTheCallerWorksInOrder) {
  std::vector<size_t> order;
  const Status status = for_each_index(nullptr, 9, [&](size_t i) {
    order.push_back(i);
    return i == 4 ? ir::invalid("item {}", i) : Status();
  });
  EXPECT_EQ(status.message(), "item 4");
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 3, 4}));
}

TEST(Tasks, TheErrorIsTheFirstByOrderNotByTime) {
  for (const int threads : {1, 2, 3}) {
    TaskArena arena(threads);
    for (int round = 0; round < 30; ++round) {
      std::atomic<int> before{0};
      const Status status = for_each_index(&arena, 40, [&](size_t i) {
        before += i < 7;
        if (i == 7) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // others fail first
        return i >= 7 ? ir::invalid("item {}", i) : Status();
      });
      ASSERT_EQ(status.message(), "item 7");
      ASSERT_EQ(before.load(), 7);
    }
  }
}

TEST(Tasks, AtMostAsManyThreadsAsAllowed) {
  TaskArena arena(2);
  std::atomic<int> now{0}, most{0};
  ASSERT_TRUE(for_each_index(&arena, 60, [&](size_t) {
                const int here = ++now;
                int seen = most;
                while (seen < here && !most.compare_exchange_weak(seen, here)) {
                }
                std::this_thread::sleep_for(std::chrono::microseconds(200));
                --now;
                return Status();
              }).ok());
  EXPECT_LE(most.load(), arena.threads());
}

TEST(Tasks, NestedUseTakesNothingOfTheOuterLoop) {
  TaskArena arena(3);
  std::atomic<int> total{0};
  static thread_local int depth = 0;
  ASSERT_TRUE(for_each_index(&arena, 12, [&](size_t) {
                if (depth++ != 0) return ir::internal_error("an outer item inside another");
                const Status status = for_each_index(&arena, 20, [&](size_t) {
                  ++total;
                  return Status();
                });
                --depth;
                return status;
              }).ok());
  EXPECT_EQ(total.load(), 12 * 20);
}

TEST(Tasks, AnExceptionReachesTheCaller) {
  TaskArena arena(2);
  EXPECT_THROW((void)for_each_index(&arena, 50,
                                    [](size_t i) {
                                      if (i == 20) throw std::bad_alloc();
                                      return Status();
                                    }),
               std::bad_alloc);
}

TEST(Tasks, ThreadsComputeAsTheCallerDoesAndRunWhereItMay) {
  TaskArena arena(2);
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  const unsigned control = _mm_getcsr();
  for (const unsigned wanted : {control | 0x8040u, control & ~0x8040u}) {  // denormals flushed, and not
    _mm_setcsr(wanted);
    std::atomic<int> others{0};
    (void)for_each_index(&arena, 64, [&](size_t) {
      cpu_set_t here;
      sched_getaffinity(0, sizeof here, &here);
      others += (_mm_getcsr() & 0xffc0u) != (wanted & 0xffc0u) || !CPU_EQUAL(&here, &allowed);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      return Status();
    });
    _mm_setcsr(control);
    EXPECT_EQ(others.load(), 0);
  }
}

TEST(Tasks, AForkedChildWorksAlone) {
  TaskArena arena(2);
  ASSERT_TRUE(for_each_index(&arena, 10, [](size_t) { return Status(); }).ok());
  const pid_t child = fork();
  if (child == 0) {
    const pid_t self = gettid();
    bool alone = arena.threads() == 1;
    auto fresh = std::make_unique<TaskArena>(2);
    for (TaskArena* a : {&arena, fresh.get()}) {
      (void)for_each_index(a, 100, [&](size_t) {
        alone &= gettid() == self;
        return Status();
      });
    }
    fresh.reset();
    _exit(alone ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(for_each_index(&arena, 10, [](size_t) { return Status(); }).ok());
}

}  // namespace
}  // namespace lathe::runtime
