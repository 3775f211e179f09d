// lathe tune and lathe store merge: searches, shards, specs, the page, and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "jit/host/host_cpu.h"
#include "tests/common/generators.h"
#include "tests/tools/process.h"

namespace lathe::tools {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kSmall = std::string(LATHE_SOURCE_DIR) + "/tests/tools/data/small.jsonl";

bool native() { return test::generates(); }

Finished tune(const std::string& store, std::vector<std::string> more = {}) {
  std::vector<std::string> args = {"tune", "--json",  "--store", store,       "--budget", "200", "--candidates",
                                   "6",    "--first", "2",       "--quantum", "2",        kSmall};
  args.insert(args.end(), more.begin(), more.end());
  return lathe(args);
}

std::string whole(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(Tune, SearchesChecksTheWholeAndDoesNothingTheSecondTime) {
  if (!native()) GTEST_SKIP() << "no native level on this machine";
  TempDir dir;
  const std::string page = dir.path + "/page.html";
  const Finished first = tune(dir.path, {"--report", page});
  ASSERT_EQ(first.code, 0) << first.err << first.out;
  const json s = first.summary();
  for (const char* field :
       {"ops", "measurements", "further_samples", "rejected", "promoted", "ties", "gain_geomean", "wall_ms"}) {
    EXPECT_TRUE(s.contains(field)) << field;
  }
  EXPECT_EQ(s["searches"].get<int>() >= 4, true);
  EXPECT_EQ(s["promoted"].get<int>() + s["ties"].get<int>() + s["dropped"].get<int>(), 4);
  EXPECT_GT(s["check"]["groups"].get<int>(), 0);
  for (const json& row : first.rows()) {
    EXPECT_LE(row["measured"].get<int>(), 6) << row.dump();
    EXPECT_GE(row["measured"].get<int>(), 1);
    EXPECT_GT(row["best_us"].get<double>(), 0);
    EXPECT_FALSE(row["curve"].empty());
    EXPECT_GT(row["search_ms"].get<double>(), 0);
    EXPECT_TRUE(row["expected"].is_array());
    EXPECT_THAT((std::set<std::string>{"won", "tie", "dropped"}), testing::Contains(row["verdict"].get<std::string>()));
  }
  const std::string html = whole(page);
  for (const char* part : {"<!doctype html>", "<svg", "gate", "Search curves", "</html>"})
    EXPECT_THAT(html, HasSubstr(part));
  const Finished second = tune(dir.path, {"--no-check"});
  EXPECT_EQ(second.summary()["searches"], 0);
  for (const json& row : second.rows()) EXPECT_EQ(row["verdict"], "stored");
}

TEST(Tune, ShardsAreDisjointAndTheirStoresMerge) {
  if (!native()) GTEST_SKIP() << "no native level on this machine";
  TempDir parts[2], all;
  int searched = 0;
  for (const int i : {0, 1}) {
    const Finished f = tune(parts[i].path, {"--no-check", "--shard", std::to_string(i) + "/2"});
    ASSERT_EQ(f.code, 0) << f.err;
    searched += f.summary()["promoted"].get<int>() + f.summary()["ties"].get<int>();
  }
  EXPECT_EQ(searched, 4);
  const Finished merged = lathe({"store", "merge", "--json", "--store", all.path, parts[0].path, parts[1].path});
  ASSERT_EQ(merged.code, 0) << merged.err;
  EXPECT_GT(merged.summary()["copied"].get<int>(), 0);
  const Finished after = tune(all.path, {"--dry-run"});
  for (const json& row : after.rows()) EXPECT_EQ(row["verdict"], "stored") << row.dump();
}

TEST(Tune, ADryRunDecidesNothing) {
  TempDir dir;
  const Finished dry = tune(dir.path, {"--dry-run"});
  ASSERT_EQ(dry.code, 0) << dry.err;
  for (const json& row : dry.rows()) EXPECT_EQ(row["verdict"], "pending") << row.dump();
  const Finished sealed =
      lathe({"bench", "--json", "--row-ms", "1", "--store", dir.path, kSmall}, {{"LATHE_SEAL", "error"}});
  EXPECT_NE(sealed.code, 0);
  EXPECT_THAT(sealed.err, HasSubstr("never_seen"));
}

TEST(Tune, ASpecPinsItsSchedule) {
  if (!native()) GTEST_SKIP() << "no native level on this machine";
  TempDir dir;
  const std::string spec = dir.path + "/user.spec";
  std::ofstream(spec) << "spec 1\nmatch matmul m=8\nuse panel mr=3\n";
  const Finished f = tune(dir.path, {"--no-check", "--spec", spec});
  ASSERT_EQ(f.code, 0) << f.err;
  bool seen = false;
  for (const json& row : f.rows()) {
    if (row["verdict"] != "pinned") continue;
    seen = true;
    EXPECT_THAT(row["schedule"].get<std::string>(), HasSubstr("mr=3"));
  }
  EXPECT_TRUE(seen);
  std::ofstream(spec, std::ios::trunc) << "spec 1\nmatch matmul m=8\nuse panel mr=400\n";
  const Finished refused = tune(dir.path, {"--no-check", "--force", "--spec", spec});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, testing::StartsWith(spec + ":2: "));
}

TEST(Tune, BadInputIsUsage) {
  TempDir dir;
  EXPECT_EQ(tune(dir.path, {"--shard", "2/2"}).code, 2);
  EXPECT_EQ(tune(dir.path, {"--shard", "one"}).code, 2);
  EXPECT_EQ(tune(dir.path, {"--spec", dir.path + "/none"}).code, 2);
  EXPECT_EQ(tune(dir.path, {"--dry-run", "--report", dir.path + "/no/such/page.html"}).code, 2);
  EXPECT_EQ(lathe({"store", "merge", "--store", dir.path, dir.path + "/none"}).code, 2);
}

}  // namespace
}  // namespace lathe::tools
