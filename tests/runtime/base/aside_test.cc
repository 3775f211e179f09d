// Own work goes where no calls are seen, and comes back when it may.
#include "runtime/base/aside.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <initializer_list>
#include <thread>

namespace lathe::runtime {
namespace {

constexpr int64_t kS = 1'000'000'000;

cpu_set_t set_of(std::initializer_list<int> cpus) {
  cpu_set_t out;
  CPU_ZERO(&out);
  for (const int c : cpus) CPU_SET(c, &out);
  return out;
}
cpu_set_t of_thread() {
  cpu_set_t out;
  CPU_ZERO(&out);
  EXPECT_EQ(sched_getaffinity(0, sizeof out, &out), 0);
  return out;
}

TEST(Aside, KeepsOffTheProcessorsOfCallsAsLongAsThereAreOthers) {
  std::thread([] {
    const cpu_set_t own = of_thread();
    if (CPU_COUNT(&own) < 2) GTEST_SKIP() << "one processor";
    int first = 0;
    while (!CPU_ISSET(first, &own)) ++first;
    KeepOff keep;
    EXPECT_TRUE(CPU_EQUAL(&keep.allowed(), &own));
    const cpu_set_t calls = set_of({first}), none = set_of({});
    keep.update(calls, false, -1, 10 * kS);
    EXPECT_FALSE(CPU_ISSET(first, &keep.allowed()));
    EXPECT_EQ(CPU_COUNT(&keep.allowed()), CPU_COUNT(&own) - 1);
    cpu_set_t now = of_thread();
    EXPECT_TRUE(CPU_EQUAL(&now, &keep.allowed())) << "the thread moved";
    keep.update(none, false, -1, 12 * kS);
    EXPECT_FALSE(CPU_ISSET(first, &keep.allowed())) << "nothing was seen for a moment";
    keep.update(none, false, -1, 16 * kS);
    EXPECT_TRUE(CPU_EQUAL(&keep.allowed(), &own)) << "no calls any more";
    keep.update(own, false, -1, 17 * kS);
    EXPECT_TRUE(CPU_EQUAL(&keep.allowed(), &own)) << "calls everywhere";
    keep.update(calls, true, -1, 18 * kS);
    EXPECT_TRUE(CPU_EQUAL(&keep.allowed(), &own)) << "calls that use several";
    now = of_thread();
    EXPECT_TRUE(CPU_EQUAL(&now, &own));
  }).join();
}

TEST(Aside, TheThreadStepsBack) {
  std::thread([] {
    const int before = 15;  // of a host that stands back itself
    ASSERT_EQ(setpriority(PRIO_PROCESS, 0, before), 0);
    work_aside();
    EXPECT_EQ(sched_getscheduler(0), SCHED_BATCH);
    EXPECT_GE(getpriority(PRIO_PROCESS, 0), before);
  }).join();
  EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER) << "this one did not";
}

}  // namespace
}  // namespace lathe::runtime
