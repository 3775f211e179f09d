// Merging stores: a union, whatever the order.
#include "runtime/store/store_merge.h"

#include <gtest/gtest.h>

#include "runtime/store/decision.h"
#include "tests/runtime/store/store_util.h"

namespace lathe::runtime {
namespace {

std::string decision(DecisionStatus status, double us) {
  Decision d;
  d.key = "aabb";
  d.environment = "env1";
  d.op = "matmul M=1..1";
  d.status = status;
  d.default_us = 2 * us;
  d.best_us = us;
  d.oracle = {3, 0.25, "bound"};
  return print_decision(d);
}

struct Opened {
  TempDir dir;
  Stats stats;
  std::unique_ptr<Store> store = std::move(Store::open(at(dir.path()), &stats)).value();
  void put(const ObjectKey& key, const std::string& payload) {
    const auto ok = store->put(key, payload);
    ASSERT_TRUE(ok.ok() && *ok);
  }
  std::string get(const ObjectKey& key) {
    Stats other;  // a process of its own: this one remembers what it did not find
    return Store::open(at(dir.path()), &other).value()->find(key).bytes;
  }
};

TEST(StoreMerge, UnionOfWhatShardsFound) {
  Opened a, b;
  const ObjectKey image{ObjectKind::k_image, "code1", "cc01"}, rows{ObjectKind::k_rows, "env1", "r01"},
      profile{ObjectKind::k_profile, "", "p01"};
  a.put(decision_key("aa01"), decision(DecisionStatus::verified, 10));
  b.put(decision_key("aa02"), decision(DecisionStatus::tie, 20));
  b.put(image, "code");
  b.put(rows, "measured");
  b.put(profile, "fma_avx2 100\n");
  const MergeReport report = merge_store(*b.store, *a.store);
  EXPECT_EQ(report.copied, 3);
  EXPECT_TRUE(report.refused.empty());
  EXPECT_NE(a.get(decision_key("aa01")), "");
  EXPECT_NE(a.get(decision_key("aa02")), "");
  EXPECT_EQ(a.get(image), "code");
  EXPECT_EQ(a.get(rows), "measured");
  EXPECT_EQ(a.get(profile), "");
  EXPECT_EQ(merge_store(*b.store, *a.store).same, 3);
}

TEST(StoreMerge, TheBetterFoundedDecisionStaysInEitherOrder) {
  const std::string measured = decision(DecisionStatus::verified, 10),
                    guessed = decision(DecisionStatus::provisional, 1);
  const std::string other = decision(DecisionStatus::verified, 11);
  for (const auto& [first, second, wanted] : {std::tuple{measured, guessed, measured}, {guessed, measured, measured}}) {
    Opened into, from;
    into.put(decision_key(), first);
    from.put(decision_key(), second);
    const MergeReport report = merge_store(*from.store, *into.store);
    EXPECT_EQ(report.replaced + report.kept, 1);
    EXPECT_EQ(into.get(decision_key()), wanted);
  }
  std::string results[2];
  for (const int order : {0, 1}) {
    Opened into, from;
    into.put(decision_key(), order == 0 ? measured : other);
    from.put(decision_key(), order == 0 ? other : measured);
    merge_store(*from.store, *into.store);
    results[order] = into.get(decision_key());
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(StoreMerge, DamagedAndUnwritableAreCounted) {
  Opened from, into;
  from.put(decision_key("aa01"), decision(DecisionStatus::verified, 10));
  const std::string file = from.dir.path() + "/v1/" + decision_key("aa01").path();
  std::string bytes = read_whole(file);
  bytes[bytes.size() / 2] ^= 1;
  write_whole(file, bytes);
  MergeReport report = merge_store(*from.store, *into.store);
  EXPECT_EQ(report.copied, 0);
  EXPECT_EQ(report.refused["corrupt"], 1);

  Opened good;
  good.put(decision_key("aa02"), decision(DecisionStatus::verified, 10));
  Stats stats;
  const auto read_only = Store::open(at(into.dir.path(), LayerMode::read_only), &stats);
  ASSERT_TRUE(read_only.ok());
  report = merge_store(*good.store, **read_only);
  EXPECT_EQ(report.refused["no writable layer"], 1);
}

}  // namespace
}  // namespace lathe::runtime
