// Timing of several threads waits until each has a core, and not for ever.
#include "runtime/own_cores.h"

#include <gtest/gtest.h>

namespace lathe::runtime {
namespace {

struct Machine {
  std::vector<double> shares;   // of the next probes; the last one stays
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

TEST(OwnCores, MeasuresTheThreadsOfATeam) {
  OwnCores cores(two_threads());
  cores.await();
  EXPECT_LE(cores.waited_ms(), OwnCoresOptions{}.most_ms + 1000);
}

}  // namespace
}  // namespace lathe::runtime
