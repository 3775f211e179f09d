// The main job in small: a warm-up, then processes that serve from its store; and what may go wrong on the way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "jit/host/host_cpu.h"
#include "tests/common/generators.h"
#include "tests/tools/process.h"

namespace lathe::tools {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const std::string kSmall = std::string(LATHE_SOURCE_DIR) + "/tests/tools/data/small.jsonl";

bool native() { return test::generates(); }

Finished warmup(const std::string& store, std::vector<std::string> more = {}) {
  std::vector<std::string> args = {"warmup", "--json",       "--store", store, "--budget",
                                   "200",    "--candidates", "4",       kSmall};
  args.insert(args.end(), more.begin(), more.end());
  return lathe(args);
}

Finished bench(const std::string& store, std::vector<std::string> more = {},
               std::map<std::string, std::string> env = {{"LATHE_SEAL", "error"}}) {
  std::vector<std::string> args = {"bench", "--json", "--row-ms", "1", "--store", store, kSmall};
  args.insert(args.end(), more.begin(), more.end());
  return lathe(args, env);
}

TEST(Serve, TheSecondProcessCompilesAndSearchesNothing) {
  if (!native()) GTEST_SKIP() << "no native level on this machine";
  TempDir dir;
  const Finished first = warmup(dir.path);
  ASSERT_EQ(first.code, 0) << first.err << first.out;
  const json report = first.summary();
  EXPECT_GT(report["compiled_xbyak"].get<int>(), 0);
  EXPECT_EQ(report["searches"], 4);
  EXPECT_EQ(report["unmeasured"], 0);
  EXPECT_GT(report["measurements"].get<int>(), 0);
  EXPECT_EQ(report["failed"], 0);
  EXPECT_GE(report["between"].get<int>(), 2) << "below and above the hints of gate";
  for (const json& row : first.rows()) {
    EXPECT_EQ(row["tier"], "T2") << row.dump();
    EXPECT_EQ(row["origin"], "compiled");
    EXPECT_GT(row["us"].get<double>(), 0);
    EXPECT_GT(row["of_roofline"].get<double>(), 0);
  }
  const Finished second = bench(dir.path);
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(second.summary()["rows"], 4);
  EXPECT_EQ(second.summary()["from_store"], 4);
  EXPECT_EQ(second.summary()["compiled_xbyak"], 0);
  EXPECT_EQ(second.summary()["compiled_llvm"], 0);
  EXPECT_EQ(second.summary()["searches"], 0);
  EXPECT_EQ(second.summary()["llvm_mapped"], false);
  for (const json& row : second.rows()) EXPECT_EQ(row["tier"], "T2");
  // And any other number of rows in the range.
  for (const char* m : {"3", "7", "30", "197"}) {
    const Finished f = bench(dir.path, {"--shape", std::string("M=") + m + ",m=" + m});
    ASSERT_EQ(f.code, 0) << f.err;
    EXPECT_EQ(f.rows()[0]["dims"], json({{"M", std::stoi(m)}}));
    EXPECT_EQ(f.rows()[0]["tier"], m == std::string("7") ? "T2" : "T1") << m << ": only 7 is in the range of a hint";
    EXPECT_EQ(f.summary()["compiled_xbyak"].get<int>() + f.summary()["compiled_llvm"].get<int>(), 0);
    EXPECT_EQ(f.summary()["from_store"], f.summary()["rows"]);
  }
  // A second warm-up has nothing to do and serves the same.
  const Finished again = warmup(dir.path);
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.summary()["searches"], 0);
  EXPECT_EQ(again.summary()["compiled_xbyak"], 0);
  EXPECT_EQ(again.summary()["from_store"], 3);
  EXPECT_EQ(again.summary()["digest"], report["digest"]);
}

// Not the process's own word: its map, read from outside while it runs.
TEST(Serve, LlvmIsNotMappedIntoTheSecondProcess) {
  if (!native()) GTEST_SKIP() << "no native level on this machine";
  TempDir dir;
  ASSERT_EQ(warmup(dir.path, {"--tier", "1"}).code, 0);
  std::string maps;
  const auto look = [&](const std::string&, int pid) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/maps");
    std::string text((std::istreambuf_iterator<char>(in)), {});
    if (!text.empty()) maps = text;
  };
  const Finished f = lathe({"bench", "--json", "--row-ms", "50", "--store", dir.path, kSmall}, {}, look);
  ASSERT_EQ(f.code, 0) << f.err;
  ASSERT_NE(maps.find("/lathe"), std::string::npos);
  EXPECT_EQ(maps.find("libLLVM"), std::string::npos);
  EXPECT_EQ(maps.find("lathe_llvm"), std::string::npos);
}

TEST(Serve, SealedOverAnEmptyStoreFails) {
  TempDir dir;
  const Finished f = bench(dir.path);
  EXPECT_EQ(f.code, 1);
  EXPECT_EQ(f.summary()["failed"], 3);
  EXPECT_THAT(f.err, testing::HasSubstr("never_seen"));
}

TEST(Serve, AStoreThatCannotBeWrittenIsAFailure) {
  if (!native()) GTEST_SKIP() << "nothing to write: no code without a search";
  const Finished f = lathe({"warmup", "--json", "--tier", "1", "--store", "/proc/nowhere", kSmall});
  EXPECT_EQ(f.code, 1);
  EXPECT_EQ(f.summary()["failed"], 0) << "the operators themselves are well";
  EXPECT_THAT(f.err, testing::AllOf(testing::HasSubstr("/proc/nowhere"), testing::HasSubstr("could not be written")));
}

TEST(Serve, WithoutAWorkerWarmUpFailsAndTheDefaultServesProvisionally) {
  if (!native()) GTEST_SKIP() << "no native level on this machine";
  TempDir dir;
  const Finished f =
      lathe({"warmup", "--json", "--store", dir.path, kSmall}, {{"LATHE_WORKER", "/nonexistent/worker"}});
  ASSERT_EQ(f.code, 1) << f.err;
  EXPECT_THAT(f.err, testing::HasSubstr("/nonexistent/worker"));
  for (const auto& row : f.rows()) EXPECT_EQ(row["tier"], "T1") << row;
  EXPECT_EQ(f.summary()["failed"], 4);
  EXPECT_EQ(f.summary()["unmeasured"], 4);
  EXPECT_EQ(f.summary()["measurements"], 0);
  EXPECT_EQ(bench(dir.path).code, 0);
  // With one, what was provisional is measured.
  EXPECT_EQ(warmup(dir.path).summary()["searches"], 4);
}

// Files below the store that end like this.
std::vector<fs::path> files(const std::string& store, const std::string& extension) {
  std::vector<fs::path> out;
  for (const auto& e : fs::recursive_directory_iterator(store)) {
    if (e.is_regular_file() && e.path().extension() == extension) out.push_back(e.path());
  }
  return out;
}

TEST(Serve, ATruncatedRecordIsACountedMiss) {
  if (!native()) GTEST_SKIP() << "no native level on this machine";
  TempDir dir;
  ASSERT_EQ(warmup(dir.path).code, 0);
  std::vector<fs::path> records = files(dir.path, ".rec");
  // Those between the hints are there for whoever asks for other shapes.
  std::erase_if(records, [](const fs::path& record) {
    std::ifstream in(record);
    return std::string((std::istreambuf_iterator<char>(in)), {}).find("\nstatus provisional\n") != std::string::npos;
  });
  ASSERT_EQ(records.size(), 4u);
  fs::resize_file(records[0], fs::file_size(records[0]) / 2);
  const Finished check = lathe({"store", "check", "--json", "--store", dir.path});
  EXPECT_EQ(check.code, 1);
  EXPECT_EQ(check.summary()["bad"], 1);
  const Finished f = bench(dir.path, {}, {});
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(f.summary()["rows"], 4);
  EXPECT_LT(f.summary()["from_store"].get<int>(), 4);
  EXPECT_EQ(warmup(dir.path).summary()["searches"], 1);
  EXPECT_EQ(bench(dir.path).code, 0);
}

TEST(Serve, AnUnreadableStoreCostsCompilationOnly) {
  if (!native()) GTEST_SKIP() << "no native level on this machine";
  TempDir dir;
  std::ofstream(dir.path + "/file") << "no directory";
  const Finished f = bench(dir.path + "/file", {}, {});
  EXPECT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(f.summary()["rows"], 4);
  EXPECT_EQ(f.summary()["from_store"], 0);
  EXPECT_GT(f.summary()["compiled_xbyak"].get<int>(), 0);
  EXPECT_EQ(bench(dir.path + "/file").code, 1);  // sealed
}

TEST(Serve, AnInterruptedWarmupKeepsWhatItFoundAndResumes) {
  if (!native()) GTEST_SKIP() << "no native level on this machine";
  TempDir dir;
  bool sent = false;
  const auto interrupt = [&](const std::string& out, int pid) {
    if (sent || out.find("\"progress\"") == std::string::npos) return;
    sent = true;
    kill(pid, SIGINT);
  };
  const Finished first = lathe({"warmup", "--json", "--store", dir.path, "--candidates", "8", kSmall}, {}, interrupt);
  ASSERT_TRUE(sent);
  ASSERT_EQ(first.code, 3) << first.err;
  EXPECT_THAT(first.err, testing::HasSubstr("again"));
  const int pending = first.summary()["pending"].get<int>();
  EXPECT_GT(pending, 0);
  EXPECT_EQ(files(dir.path, ".rec").size(), static_cast<size_t>(4 - pending));
  const Finished second = warmup(dir.path);
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(second.summary()["searches"], pending);
  EXPECT_EQ(bench(dir.path).summary()["from_store"], 4);
}

TEST(Serve, ASpentBudgetIsExit3) {
  if (!native()) GTEST_SKIP() << "no native level on this machine";
  TempDir dir;
  const Finished f = lathe({"warmup", "--json", "--store", dir.path, "--budget", "0.000001", kSmall});
  EXPECT_EQ(f.code, 3) << f.err;
  EXPECT_EQ(f.summary()["pending"], 4);
  const Finished served = bench(dir.path);
  EXPECT_EQ(served.code, 0) << served.err;
  EXPECT_EQ(served.summary()["from_store"], 4) << "by their defaults, which are stored for the time being";
  const Finished again = warmup(dir.path);
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(again.summary()["searches"], 4) << "what there was no time for is searched now";
}

TEST(Serve, TwoWarmupsOnOneDirectoryStayRight) {
  if (!native()) GTEST_SKIP() << "no native level on this machine";
  TempDir dir;
  Finished results[2];
  std::thread other([&] { results[1] = warmup(dir.path); });
  results[0] = warmup(dir.path);
  other.join();
  for (const Finished& f : results) EXPECT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(lathe({"store", "check", "--store", dir.path}).code, 0);
  EXPECT_EQ(bench(dir.path).summary()["from_store"], 4);
}

}  // namespace
}  // namespace lathe::tools
