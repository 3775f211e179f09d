// The store: what it finds, where it writes, and every kind of damaged, foreign or odd file as a
// counted miss.
#include "runtime/store/store.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <thread>

#include "tests/runtime/store/store_util.h"

namespace lathe::runtime {
namespace {

std::unique_ptr<Store> open_store(const StoreOptions& options, Stats* stats) {
  auto s = Store::open(options, stats);
  EXPECT_TRUE(s.ok()) << s.status().to_string();
  return std::move(s).value();
}
const std::string kBinary("\x7f\0code\n\xff", 8);

// What a fresh process would find.
Lookup fresh_find(const std::string& path, const ObjectKey& key, Stats* stats = nullptr,
                  LayerMode mode = LayerMode::private_rw) {
  Stats own;
  return open_store(at(path, mode), stats != nullptr ? stats : &own)->find(key);
}

TEST(Store, ASecondProcessFindsWhatTheFirstPublished) {
  TempDir dir;
  Stats stats;
  auto a = open_store(at(dir.path()), &stats);
  EXPECT_FALSE(a->find(decision_key()).found);
  EXPECT_EQ(stats.misses(MissReason::k_never_seen), 1);
  EXPECT_TRUE(a->put(decision_key(), "text\n").value());
  EXPECT_TRUE(a->put(image_key(), kBinary).value());
  EXPECT_TRUE(a->put({ObjectKind::k_profile, "", "machine"}, "").value());
  EXPECT_EQ(a->find(decision_key()).layer, -1);

  Stats second;
  auto b = open_store(at(dir.path()), &second);
  EXPECT_EQ(b->find(decision_key()).bytes, "text\n");
  EXPECT_EQ(b->find(image_key()).bytes, kBinary);
  EXPECT_TRUE(b->find({ObjectKind::k_profile, "", "machine"}).found);
  EXPECT_EQ(second.get(Stat::k_from_store), 3);
  EXPECT_EQ(second.misses(), 0);
  EXPECT_EQ(files_in(dir.path() + "/v1/new"), 0);
  struct stat s;
  ASSERT_EQ(stat((dir.path() + "/v1/" + image_key().path()).c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0600u);
}

TEST(Store, ImagesAreImmutableAndDecisionsAreReplaced) {
  TempDir dir;
  Stats stats;
  for (const char* text : {"one", "two"}) {
    auto s = open_store(at(dir.path()), &stats);
    EXPECT_TRUE(s->put(decision_key(), text).value());
    EXPECT_TRUE(s->put(image_key(), text).value());
  }
  EXPECT_EQ(fresh_find(dir.path(), decision_key()).bytes, "two");
  EXPECT_EQ(fresh_find(dir.path(), image_key()).bytes, "one");
}

TEST(Store, EveryFlippedByteIsAMissThatIsSetAside) {
  TempDir dir;
  Stats stats;
  open_store(at(dir.path()), &stats)->put(decision_key(), "schedule\nof two lines\n").value();
  const std::string path = dir.path() + "/v1/" + decision_key().path();
  const std::string good = read_whole(path);
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit : {0, 5, 7}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 1 << bit);
      write_whole(path, bad);
      Stats counted;
      const Lookup l = fresh_find(dir.path(), decision_key(), &counted);
      ASSERT_FALSE(l.found) << "byte " << i;
      ASSERT_EQ(counted.misses(l.reason), 1);
      if (l.reason == MissReason::k_newer_schema) continue;
      ASSERT_EQ(l.reason, MissReason::k_corrupt) << "byte " << i;
      ASSERT_EQ(counted.get(Stat::k_bad_files), 1);
      ASSERT_FALSE(std::filesystem::exists(path));
    }
  }
  for (size_t size = 0; size < good.size(); ++size) {
    write_whole(path, good.substr(0, size));
    ASSERT_EQ(fresh_find(dir.path(), decision_key()).reason, MissReason::k_corrupt) << size << " bytes";
  }
  write_whole(path, good + "\n");
  EXPECT_FALSE(fresh_find(dir.path(), decision_key()).found);
  write_whole(path, good);
  EXPECT_TRUE(fresh_find(dir.path(), decision_key()).found);
}

TEST(Store, AFileUnderAnotherKeyIsCorrupt) {
  TempDir dir;
  Stats stats;
  open_store(at(dir.path()), &stats)->put(image_key("ccdd"), kBinary).value();
  const std::string bytes = read_whole(dir.path() + "/v1/" + image_key("ccdd").path());
  write_whole(dir.path() + "/v1/" + image_key("ccde").path(), bytes);
  const Lookup l = fresh_find(dir.path(), image_key("ccde"));
  EXPECT_EQ(l.reason, MissReason::k_corrupt);
  EXPECT_EQ(l.detail, "key in layer 0");
}

TEST(Store, ANewerSchemaIsLeftAlone) {
  TempDir dir;
  const std::string path = dir.path() + "/v1/" + decision_key().path();
  write_whole(path, "lathe-decision 2\nwhatever comes\n");
  EXPECT_EQ(fresh_find(dir.path(), decision_key()).reason, MissReason::k_newer_schema);
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(Store, OddFilesAreUntrusted) {
  TempDir dir;
  Stats stats;
  open_store(at(dir.path()), &stats)->put(image_key("good"), kBinary).value();
  const std::string img = dir.path() + "/v1/img/code1/";
  const std::string good = read_whole(img + "go/good.img");
  const auto reason = [&](const char* name) { return fresh_find(dir.path(), image_key(name)).reason; };

  std::filesystem::create_directories(img + "li");
  ASSERT_EQ(symlink("../go/good.img", (img + "li/link.img").c_str()), 0);
  EXPECT_EQ(reason("link"), MissReason::k_untrusted);
  ASSERT_EQ(symlink("go", (img + "di").c_str()), 0);
  EXPECT_EQ(reason("diff"), MissReason::k_untrusted);
  std::filesystem::create_directories(img + "fi");
  ASSERT_EQ(mkfifo((img + "fi/fifo.img").c_str(), 0600), 0);
  EXPECT_EQ(reason("fifo"), MissReason::k_untrusted);
  std::filesystem::create_directories(img + "dd/ddir.img");
  EXPECT_EQ(reason("ddir"), MissReason::k_untrusted);

  chmod((img + "go/good.img").c_str(), 0660);
  EXPECT_EQ(reason("good"), MissReason::k_untrusted);
  chmod((img + "go/good.img").c_str(), 0602);
  EXPECT_EQ(reason("good"), MissReason::k_untrusted);
  chmod((img + "go/good.img").c_str(), 0600);
  EXPECT_TRUE(fresh_find(dir.path(), image_key("good")).found);
  chmod((dir.path() + "/v1").c_str(), 0777);
  EXPECT_EQ(reason("good"), MissReason::k_untrusted);
  chmod((dir.path() + "/v1").c_str(), 0700);
  std::filesystem::resize_file(img + "go/good.img", 3 << 20);
  EXPECT_EQ(reason("good"), MissReason::k_corrupt);
  // A Schedule may cross users: the same mode is fine for a decision.
  open_store(at(dir.path()), &stats)->put(decision_key(), "x").value();
  chmod((dir.path() + "/v1/" + decision_key().path()).c_str(), 0666);
  EXPECT_TRUE(fresh_find(dir.path(), decision_key()).found);
}

// Runs f as an unprivileged user in a child; false if that is impossible here.
template <class F>
bool as_nobody(const std::string& directory, F&& f, int* status) {
  if (geteuid() != 0) return false;
  if (chown(directory.c_str(), 65534, 65534) != 0) return false;
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(77);
    _exit(f() ? 0 : 1);
  }
  waitpid(child, status, 0);
  return !(WIFEXITED(*status) && WEXITSTATUS(*status) == 77);
}

TEST(Store, UnreadableDirectoriesAndForeignImages) {
  TempDir dir;
  Stats stats;
  open_store(at(dir.path() + "/mine"), &stats)->put(image_key(), kBinary).value();
  open_store(at(dir.path() + "/mine"), &stats)->put(decision_key(), "x").value();
  std::filesystem::create_directories(dir.path() + "/closed/v1");
  chmod((dir.path() + "/closed").c_str(), 0);
  int status = -1;
  const bool dropped = as_nobody(
      dir.path(),
      [&] {
        // Another user's 0700 directory, and one nobody may enter.
        bool ok = fresh_find(dir.path() + "/mine", decision_key()).reason == MissReason::k_io;
        Stats counted;
        auto s = open_store(at(dir.path() + "/closed"), &counted);
        ok = ok && s->find(image_key()).reason == MissReason::k_io && counted.misses(MissReason::k_io) == 1;
        std::string detail;
        ok = ok && !s->put(image_key(), kBinary, &detail).value() && detail == "EACCES";
        ok = ok && s->find(image_key()).bytes == kBinary && counted.get(Stat::k_publish_failed) == 1;  // from memory
        return ok;
      },
      &status);
  if (!dropped) GTEST_SKIP() << "cannot become an unprivileged user here";
  EXPECT_EQ(status, 0);

  // Root's images serve everybody; another user's do not.
  for (const auto& e : std::filesystem::recursive_directory_iterator(dir.path() + "/mine")) {
    chmod(e.path().c_str(), e.is_directory() ? 0755 : 0644);
  }
  chmod((dir.path() + "/mine").c_str(), 0755);
  as_nobody(dir.path(), [&] { return fresh_find(dir.path() + "/mine", image_key()).found; }, &status);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(chown((dir.path() + "/mine/v1/" + image_key().path()).c_str(), 12345, 12345), 0);
  as_nobody(
      dir.path(), [&] { return fresh_find(dir.path() + "/mine", image_key()).reason == MissReason::k_untrusted; },
      &status);
  EXPECT_EQ(status, 0);
}

TEST(Store, ReadOnlyAndOffWriteNothing) {
  TempDir dir;
  Stats stats;
  open_store(at(dir.path() + "/a"), &stats)->put(decision_key(), "old").value();
  write_whole(dir.path() + "/a/v1/" + decision_key("bbbb").path(), "rubbish");
  StoreOptions o = at(dir.path() + "/a");
  o.mode = StoreMode::read_only;
  auto ro = open_store(o, &stats);
  EXPECT_EQ(ro->find(decision_key()).bytes, "old");
  EXPECT_EQ(ro->find(decision_key("bbbb")).reason, MissReason::k_corrupt);
  EXPECT_TRUE(std::filesystem::exists(dir.path() + "/a/v1/" + decision_key("bbbb").path()));
  std::string detail;
  EXPECT_FALSE(ro->put(decision_key(), "new", &detail).value());
  EXPECT_EQ(detail, "no writable layer");
  EXPECT_EQ(ro->find(decision_key()).bytes, "new");
  EXPECT_EQ(fresh_find(dir.path() + "/a", decision_key()).bytes, "old");
  o = at(dir.path() + "/none");
  o.mode = StoreMode::off;
  auto off = open_store(o, &stats);
  EXPECT_EQ(off->find(decision_key()).reason, MissReason::k_off);
  EXPECT_FALSE(off->put(decision_key(), "x").value());
  EXPECT_TRUE(off->find(decision_key()).found);
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/none"));
}

TEST(Store, LayersInOrderAndTheFirstWritableIsWritten) {
  TempDir dir;
  Stats stats;
  open_store(at(dir.path() + "/pack"), &stats)->put(decision_key(), "pack").value();
  StoreOptions o;
  o.layers = {{dir.path() + "/pack", LayerMode::read_only}, {dir.path() + "/own", LayerMode::private_rw}};
  auto s = open_store(o, &stats);
  EXPECT_EQ(s->find(decision_key()).layer, 0);
  EXPECT_TRUE(s->put(decision_key("eeee"), "mine").value());
  EXPECT_TRUE(fresh_find(dir.path() + "/own", decision_key("eeee")).found);
  EXPECT_FALSE(fresh_find(dir.path() + "/pack", decision_key("eeee")).found);
  EXPECT_EQ(s->names(ObjectKind::k_decision, "env1", "aa"), (std::vector<std::string>{"aabb"}));
}

TEST(Store, OneProbePerKeyAndProcess) {
  TempDir dir;
  Stats stats;
  auto a = open_store(at(dir.path()), &stats);
  EXPECT_FALSE(a->find(decision_key()).found);
  Stats other;
  open_store(at(dir.path()), &other)->put(decision_key(), "late").value();
  EXPECT_FALSE(a->find(decision_key()).found);
  EXPECT_TRUE(fresh_find(dir.path(), decision_key()).found);
}

TEST(Store, RejectedPayloadsAreSetAside) {
  TempDir dir;
  Stats stats;
  open_store(at(dir.path()), &stats)->put(decision_key(), "does not parse").value();
  auto s = open_store(at(dir.path()), &stats);
  const Lookup l = s->find(decision_key());
  s->reject(decision_key(), l, MissReason::k_corrupt);
  EXPECT_FALSE(s->find(decision_key()).found);
  EXPECT_EQ(files_in(dir.path() + "/v1/bad"), 1);
  EXPECT_FALSE(fresh_find(dir.path(), decision_key()).found);
}

TEST(Store, PlacementRules) {
  TempDir dir;
  Stats stats;
  StoreOptions o;
  EXPECT_EQ(open_store(o, &stats)->placement(), "memory");
  o.home = "/";
  EXPECT_EQ(open_store(o, &stats)->placement(), "memory");
  o.home = dir.path() + "/absent";
  EXPECT_EQ(open_store(o, &stats)->placement(), "memory");
  o.home = dir.path();
  EXPECT_EQ(open_store(o, &stats)->layers()[0].path, dir.path() + "/.cache/lathe");
  o.xdg_cache_home = "relative";
  EXPECT_EQ(open_store(o, &stats)->placement(), "HOME");
  o.xdg_cache_home = dir.path() + "/xdg";
  EXPECT_EQ(open_store(o, &stats)->layers()[0].path, dir.path() + "/xdg/lathe");
  o.cache_dir = dir.path() + "/c";
  EXPECT_EQ(open_store(o, &stats)->layers()[0].path, dir.path() + "/c");
  o.cache_dir = "relative";
  EXPECT_EQ(Store::open(o, &stats).status().code(), ir::Code::kINVALID);
  EXPECT_FALSE(Store::open(at("/" + std::string(4000, 'x')), &stats).ok());
  EXPECT_EQ(files_in(dir.path()), 0);  // opening touches nothing
}

TEST(Store, ListAndCheck) {
  TempDir dir;
  Stats stats;
  auto s = open_store(at(dir.path()), &stats);
  s->put(decision_key(), "a").value();
  s->put(image_key(), kBinary).value();
  s->put({ObjectKind::k_env, "", "env1"}, "cpu: x").value();
  write_whole(dir.path() + "/v1/" + decision_key("aacc").path(), "rubbish");
  write_whole(dir.path() + "/v1/dec/env1/zz/aabb.rec", "moved");
  const auto all = s->list(true);
  ASSERT_EQ(all.size(), 5u);
  int good = 0;
  for (const StoredObject& o : all) good += o.ok;
  EXPECT_EQ(good, 3);
  EXPECT_EQ(all[1].path, decision_key("aacc").path());
  EXPECT_FALSE(all[1].ok);
  EXPECT_EQ(all[1].reason, MissReason::k_corrupt);
  EXPECT_EQ(all[2].detail, "name");
  EXPECT_EQ(s->list(false).size(), 5u);
}

TEST(Store, RefusesOddNames) {
  TempDir dir;
  Stats stats;
  auto s = open_store(at(dir.path()), &stats);
  for (const char* name : {"", "a", "../../etc/passwd", "AB", "a b", ".hidden", "a/b"}) {
    EXPECT_FALSE(s->put(decision_key(name), "x").ok()) << name;
    EXPECT_FALSE(s->find(decision_key(name)).found);
  }
  EXPECT_FALSE(s->put({ObjectKind::k_env, "sub", "aabb"}, "x").ok());
  EXPECT_FALSE(s->put(image_key(), std::string(2 << 20, 'x')).ok());
  EXPECT_EQ(files_in(dir.path()), 0);
}

TEST(Store, ThreadsOfOneProcess) {
  TempDir dir;
  Stats stats;
  auto s = open_store(at(dir.path()), &stats);
  std::vector<std::thread> users;
  for (int u = 0; u < 4; ++u) {
    users.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const auto key = decision_key("key" + std::to_string(i));
        s->put(key, "value" + std::to_string(i)).value();
        EXPECT_EQ(s->find(key).bytes, "value" + std::to_string(i));
      }
    });
  }
  for (std::thread& u : users) u.join();
}

}  // namespace
}  // namespace lathe::runtime
