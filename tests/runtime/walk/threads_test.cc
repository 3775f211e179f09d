// Thread teams: every index once, nested and concurrent use, sleep and wake, fork, the host's pool;
// and the counters.
#include "runtime/walk/threads.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "runtime/base/stats.h"

namespace lathe::runtime {
namespace {

int threads_of_process() {
  int n = 0;
  FILE* f = fopen("/proc/self/status", "r");
  char line[256];
  while (f != nullptr && fgets(line, sizeof line, f) != nullptr) sscanf(line, "Threads: %d", &n);
  if (f != nullptr) fclose(f);
  return n;
}

void expect_each_once(ThreadTeam& team, int count) {
  std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
  team.parallel_for(count, [&](int i) { seen[static_cast<size_t>(i)].fetch_add(1); });
  for (auto& s : seen) ASSERT_EQ(s.load(), 1);
}

TEST(Threads, EveryIndexRunsOnce) {
  for (int threads : {1, 2, 3, 4}) {
    ThreadTeam team(TeamOptions{threads});
    EXPECT_EQ(team.num_threads(), threads);
    for (int round = 0; round < 300; ++round) expect_each_once(team, round % 9);
  }
  ThreadTeam caller;
  EXPECT_EQ(caller.num_threads(), 1);
  expect_each_once(caller, 5);
}

TEST(Threads, NoneBeforeTheFirstUse) {
  std::thread([] {}).join();  // a sanitizer starts one of its own with the first
  const int before = threads_of_process();
  {
    ThreadTeam team(TeamOptions{3});
    EXPECT_EQ(threads_of_process(), before);
    expect_each_once(team, 3);
    EXPECT_EQ(threads_of_process(), before + 2);
  }
  EXPECT_EQ(threads_of_process(), before);
}

TEST(Threads, SleepersWakeUp) {
  TeamOptions options{3};
  options.spin_us = 1;
  ThreadTeam team(options);
  for (int round = 0; round < 20; ++round) {
    expect_each_once(team, 3);
    std::this_thread::sleep_for(std::chrono::microseconds(round % 3 * 500));
  }
}

TEST(Threads, NestedAndConcurrentUseIsSerialButComplete) {
  ThreadTeam team(TeamOptions{3});
  std::atomic<int> inner{0};
  team.parallel_for(3, [&](int) { team.parallel_for(4, [&](int) { inner.fetch_add(1); }); });
  EXPECT_EQ(inner.load(), 12);
  std::atomic<int> total{0};
  std::vector<std::thread> users;
  for (int u = 0; u < 3; ++u) {
    users.emplace_back([&] {
      for (int i = 0; i < 200; ++i) team.parallel_for(3, [&](int) { total.fetch_add(1); });
    });
  }
  for (std::thread& u : users) u.join();
  EXPECT_EQ(total.load(), 3 * 200 * 3);
}

TEST(Threads, AForkedChildMakesItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not follow threads made after a multi-threaded fork";
#endif
  ThreadTeam team(TeamOptions{3});
  expect_each_once(team, 3);
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<int> n{0};
    for (int i = 0; i < 50; ++i) team.parallel_for(3, [&](int) { n.fetch_add(1); });
    _exit(n.load() == 150 && threads_of_process() == 3 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  expect_each_once(team, 3);
}

TEST(Threads, TheHostsPoolRunsThePhases) {
  struct Host {
    int loops = 0;
    bool inside = false;
  } host;
  HostPool pool;
  pool.user = &host;
  pool.num_threads = [](void*) { return 5; };
  pool.parallel_for = [](void* user, int count, TaskFn task, void* context) {
    ++static_cast<Host*>(user)->loops;
    for (int i = count; i-- > 0;) task(context, i);
  };
  pool.in_parallel = [](void* user) { return static_cast<int>(static_cast<Host*>(user)->inside); };
  ThreadTeam team(pool);
  EXPECT_EQ(team.num_threads(), 5);
  expect_each_once(team, 5);
  EXPECT_EQ(host.loops, 1);
  host.inside = true;
  expect_each_once(team, 5);
  EXPECT_EQ(host.loops, 1);
}

TEST(Stats, CountsFromManyThreadsAddUp) {
  Stats stats;
  std::vector<std::thread> users;
  for (int u = 0; u < 4; ++u) {
    users.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        stats.add(Stat::k_hits_t1);
        stats.miss(MissReason::k_corrupt);
      }
      stats.add(Stat::k_code_bytes, 10);
    });
  }
  for (std::thread& u : users) u.join();
  stats.add(Stat::k_code_bytes, -15);
  EXPECT_EQ(stats.get(Stat::k_hits_t1), 4000);
  EXPECT_EQ(stats.get(Stat::k_code_bytes), 25);
  EXPECT_EQ(stats.misses(), 4000);
  const std::string text = stats.prometheus();
  EXPECT_NE(text.find("\nlathe_hits_t1 4000\n"), std::string::npos);
  EXPECT_NE(text.find("\nlathe_misses{reason=\"corrupt\"} 4000\n"), std::string::npos);
  EXPECT_NE(text.find("# TYPE lathe_code_bytes gauge"), std::string::npos);
}

}  // namespace
}  // namespace lathe::runtime
