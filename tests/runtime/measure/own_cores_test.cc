// Timing of several threads waits until each has a core, and not for ever.
#include "runtime/measure/own_cores.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lathe::runtime {
namespace {

struct Machine {
  std::vector<double> shares;  // of the next probes; the last one stays
  size_t probes = 0;
  int64_t now = 0;
  OwnCoresOptions options() {
    OwnCoresOptions o;
    o.share = [this] { return shares[std::min(probes++, shares.size() - 1)]; };
    o.now_ns = [this] { return now; };
    o.sleep = [this](int64_t ns) { now += ns; };
    return o;
  }
};

ThreadTeam* two_threads() {
  static ThreadTeam team([] {
    TeamOptions o;
    o.threads = 2;
    return o;
  }());
  return &team;
}

TEST(OwnCores, OneThreadIsNeverWaitedFor) {
  Machine m{{0.1}};
  OwnCores alone(nullptr, m.options());
  alone.await();
  EXPECT_EQ(m.probes, 0u);
  EXPECT_EQ(alone.waited_ms(), 0);
}

TEST(OwnCores, WaitsUntilTheThreadsAreApart) {
  Machine m{{0.5, 0.5, 0.5, 0.98}};
  OwnCores cores(two_threads(), m.options());
  cores.await();
  EXPECT_EQ(m.probes, 4u);
  EXPECT_GT(cores.waited_ms(), 0);
  const double waited = cores.waited_ms();
  cores.await();
  EXPECT_EQ(cores.waited_ms(), waited) << "they still are";
}

TEST(OwnCores, WhereTheyNeverAreApartThatIsHowTheMachineIs) {
  Machine m{{0.5}};
  OwnCores cores(two_threads(), m.options());
  cores.await();
  EXPECT_NEAR(cores.waited_ms(), OwnCoresOptions{}.first_ms, 20);
  const size_t probes = m.probes;
  for (int n = 0; n < 100; ++n) cores.await();
  EXPECT_EQ(m.probes, probes) << "asked no more";
}

TEST(OwnCores, WhatIsWaitedInAllIsBounded) {
  Machine m{{0.9, 0.5}};
  OwnCores cores(two_threads(), m.options());
  cores.await();
  EXPECT_EQ(cores.waited_ms(), 0);
  for (int n = 0; n < 10; ++n) cores.await();
  EXPECT_NEAR(cores.waited_ms(), OwnCoresOptions{}.most_ms, 20);
}

TEST(OwnCores, AClockThatStandsStillEndsTheWaitAllTheSame) {
  Machine m{{0.5}};
  OwnCoresOptions options = m.options();
  options.sleep = [](int64_t) {};
  OwnCores cores(two_threads(), options);
  cores.await();
  EXPECT_GE(cores.waited_ms(), OwnCoresOptions{}.first_ms);
}

// A pool that says two and runs one after the other.
TEST(OwnCores, ThreadsThatNeverRunAtOnceAreNotApart) {
  HostPool pool;
  pool.num_threads = [](void*) { return 2; };
  pool.parallel_for = [](void*, int count, TaskFn task, void* context) {
    for (int i = 0; i < count; ++i) task(context, i);
  };
  ThreadTeam serial(pool);
  Machine m;
  OwnCoresOptions options = m.options();
  options.share = nullptr;
  OwnCores cores(&serial, options);
  cores.await();
  EXPECT_GE(cores.waited_ms(), OwnCoresOptions{}.first_ms);
}

}  // namespace
}  // namespace lathe::runtime
