// The store when the system fails: every system call failing in turn, killed at every system call,
// full disks, many processes.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <random>

#include "tests/runtime/store/store_util.h"

namespace lathe::runtime {
namespace {

const std::string kOld(300, 'o'), kNew(900, 'n');

// One process's work: looks for both, publishes both, looks again in another store.
void work(const std::string& path, const FileOps& ops, Stats* stats) {
  auto s = Store::open(at(path), stats, ops);
  ASSERT_TRUE(s.ok());
  (*s)->find(image_key());
  (*s)->put(image_key(), kNew).value();
  (*s)->put(decision_key(), kNew).value();
  auto again = Store::open(at(path), stats, ops);
  (*again)->find(decision_key());
  (*again)->find(image_key());
}

// Whatever happened: each object is absent, old or new; a retry repairs everything.
void expect_sound(const std::string& path, bool may_be_old) {
  Stats stats;
  auto s = Store::open(at(path), &stats);
  for (const ObjectKey& key : {decision_key(), image_key()}) {
    const Lookup l = (*s)->find(key);
    EXPECT_TRUE(!l.found || l.bytes == kNew || (may_be_old && l.bytes == kOld)) << key.path();
  }
  EXPECT_EQ(stats.misses(MissReason::k_corrupt), 0);
  for (const StoredObject& o : (*s)->list(true)) EXPECT_TRUE(o.ok) << o.path << " " << o.detail;
  EXPECT_TRUE((*s)->put(decision_key(), kNew).value());
  EXPECT_TRUE((*s)->put(image_key(), kNew).value());
  Stats fresh;
  auto t = Store::open(at(path), &fresh);
  EXPECT_EQ((*t)->find(decision_key()).bytes, kNew);
  EXPECT_TRUE((*t)->find(image_key()).found);
}

int calls_of_work(bool seeded) {
  TempDir dir;
  Stats stats;
  if (seeded) work(dir.path(), FileOps::real(), &stats);
  FaultyOps ops;
  work(dir.path(), ops, &stats);
  return ops.calls;
}

void seed(const std::string& path) {
  Stats stats;
  auto s = Store::open(at(path), &stats);
  (*s)->put(decision_key(), kOld).value();
}

TEST(StoreFaults, EverySystemCallMayFail) {
  for (bool seeded : {false, true}) {
    const int calls = calls_of_work(seeded);
    ASSERT_GT(calls, 20);
    for (int error : {ENOSPC, EIO, ESTALE, EPERM}) {
      for (bool sticky : {false, error == ENOSPC}) {
        for (int i = 0; i < calls; ++i) {
          TempDir dir;
          if (seeded) seed(dir.path());
          FaultyOps ops;
          ops.fail_at = i;
          ops.error = error;
          ops.sticky = sticky;
          Stats stats;
          work(dir.path(), ops, &stats);
          expect_sound(dir.path(), true);
          if (HasFailure()) FAIL() << "call " << i << " error " << error << " sticky " << sticky;
        }
      }
    }
  }
}

TEST(StoreFaults, ADeadDiskLeavesEverythingInMemory) {
  TempDir dir;
  FaultyOps ops;
  ops.fail_at = 0;
  ops.sticky = true;
  ops.error = ENOSPC;
  Stats stats;
  auto s = Store::open(at(dir.path()), &stats, ops);
  std::string detail;
  EXPECT_FALSE((*s)->put(image_key(), kNew, &detail).value());
  EXPECT_EQ(detail, "ENOSPC");
  EXPECT_EQ((*s)->find(image_key()).bytes, kNew);
  EXPECT_EQ(stats.get(Stat::k_publish_failed), 1);
  EXPECT_EQ((*s)->find(decision_key()).reason, MissReason::k_io);
  EXPECT_EQ((*s)->find(decision_key()).detail, "ENOSPC in layer 0");
}

TEST(StoreFaults, AFullDiskLeavesNothingBehind) {
  struct FullDisk : FileOps {
    ssize_t write(int, const void*, size_t) const override {
      errno = ENOSPC;
      return -1;
    }
  } full;
  TempDir dir;
  Stats stats;
  auto s = Store::open(at(dir.path()), &stats, full);
  EXPECT_FALSE((*s)->put(image_key(), kNew).value());
  EXPECT_FALSE((*s)->put(decision_key(), kNew).value());
  EXPECT_TRUE(std::filesystem::exists(dir.path() + "/v1/new"));
  EXPECT_EQ(files_in(dir.path() + "/v1/new"), 0);
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/v1/" + decision_key().path()));
}

TEST(StoreFaults, KilledAtEverySystemCall) {
  for (bool seeded : {false, true}) {
    for (int i = 0, calls = calls_of_work(seeded); i < calls; ++i) {
      TempDir dir;
      if (seeded) seed(dir.path());
      const pid_t child = fork();
      if (child == 0) {
        FaultyOps ops;
        ops.fail_at = i;
        ops.kill = true;
        Stats stats;
        work(dir.path(), ops, &stats);
        _exit(0);
      }
      int status = 0;
      waitpid(child, &status, 0);
      EXPECT_TRUE(WIFSIGNALED(status) || status == 0);
      expect_sound(dir.path(), true);
      if (HasFailure()) FAIL() << "call " << i;
    }
  }
}

TEST(StoreFaults, KilledAtRandomTimes) {
  TempDir dir;
  std::mt19937 rng(7);
  for (int round = 0; round < 60; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (;;) {
        Stats stats;
        work(dir.path(), FileOps::real(), &stats);
      }
    }
    usleep(rng() % 1500);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    expect_sound(dir.path(), false);
    if (HasFailure()) FAIL() << "round " << round;
    std::filesystem::remove_all(dir.path() + "/v1");
  }
}

TEST(StoreFaults, EightProcessesOnOneEmptyDirectory) {
  TempDir dir;
  constexpr int kObjects = 40;
  std::vector<pid_t> children;
  for (int p = 0; p < 8; ++p) {
    const pid_t child = fork();
    if (child == 0) {
      Stats stats;
      auto s = Store::open(at(dir.path()), &stats);
      bool ok = true;
      for (int i = 0; i < kObjects; ++i) {
        const int n = (i + p * 5) % kObjects;
        const std::string name = "object" + std::to_string(n), image(200, static_cast<char>('a' + n % 26));
        ok = (*s)->put(image_key(name), image).value() && ok;
        ok = (*s)->put(decision_key(name), "from " + std::to_string(p)).value() && ok;
        const Lookup l = (*Store::open(at(dir.path()), &stats))->find(image_key(name));
        ok = l.found && l.bytes == image && ok;
        ok = (*Store::open(at(dir.path()), &stats))->find(decision_key(name)).found && ok;
      }
      _exit(ok && stats.misses() == 0 && stats.get(Stat::k_bad_files) == 0 ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t c : children) {
    int status = -1;
    waitpid(c, &status, 0);
    EXPECT_EQ(status, 0);
  }
  Stats stats;
  auto s = Store::open(at(dir.path()), &stats);
  const auto all = (*s)->list(true);
  EXPECT_EQ(all.size(), 2u * kObjects);
  for (const StoredObject& o : all) EXPECT_TRUE(o.ok) << o.path;
  EXPECT_EQ(files_in(dir.path() + "/v1/new"), 0);
}

}  // namespace
}  // namespace lathe::runtime
