// Rows and models in the store: published once, read with their trust, damaged ones set aside; models rebuilt when they
// must be.
#include "runtime/tune/tuning_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "ir/core/text_form.h"
#include "search/model/starter_pack.h"
#include "search/strategy/space.h"
#include "tests/runtime/store/store_util.h"

namespace lathe::runtime {
namespace {

using search::TaskRecord;

ir::Target target() {
  ir::Target t;
  t.level = ir::IsaLevel::avx512;
  t.lanes = 16;
  t.vector_registers = 32;
  t.mask_registers = 7;
  return t;
}

// `rows` configurations of a matmul with m rows; more multiply-adds a tile are faster.
TaskRecord record(int m, int rows, const std::string& environment = "envown") {
  TaskRecord r;
  r.problem.kernel = *ir::parse_kernel(
      fmt::format(R"(kernel matmul(a: f32[{0}, 256] in, b: f32[256, 512] const, y: f32[{0}, 512] out) family matmul
  c: f32[{0}, 512] heap
  for m < {0} [m]:
    for n < 512 [n]:
      c[m, n] = 0.0
      for k < 256 [k]:
        c[m, n] += a[m, k] * b[k, n]
      y[m, n] = c[m, n]
)",
                  m));
  r.environment = environment;
  r.epoch = kCodegenEpoch;
  r.isa = "avx512";
  r.policy = "hot";
  const search::Recipe* recipe = search::find_recipe(r.problem);
  const search::RecipeSpace space(r.problem, target(), search::MachineRates::assumed(target()));
  for (int i = 0; i < rows; ++i) {
    const search::Knobs& k = space.at(i * 5 % space.size()).knobs;
    r.rows.push_back({fmt::format("{}.{}", recipe->name, recipe->version),
                      k,
                      {},
                      search::Outcome::timed,
                      {10.0 * m / static_cast<double>(k.at("mr")) + i % 7},
                      0});
  }
  return r;
}

struct Opened {
  TempDir dir;
  Stats stats;
  std::unique_ptr<Store> store = open();
  std::unique_ptr<Store> open() { return std::move(Store::open(at(dir.path()), &stats)).value(); }
};

// The pack's records come after all others; these tests are about the store's.
std::vector<TaskRecord> stored(Store& store) {
  std::vector<TaskRecord> all = load_history(store, "matmul", "envown");
  size_t pack = 0;
  for (const TaskRecord& r : search::starter_pack()) pack += r.problem.kernel.family == "matmul";
  all.resize(all.size() - pack);
  return all;
}

TEST(TuningHistory, RowsComeBackFromAnotherProcessWithTheirTrust) {
  Opened a;
  TaskRecord stale = record(6, 4);
  stale.epoch = kCodegenEpoch - 1;
  for (const TaskRecord& r : {record(8, 3), record(8, 5), record(4, 2, "envother"), stale}) {
    const auto written = publish_rows(*a.store, r);
    ASSERT_TRUE(written.ok() && *written);
  }
  ASSERT_TRUE(*publish_rows(*a.store, record(8, 3))) << "again: the same file";
  const std::unique_ptr<Store> later = a.open();
  const std::vector<TaskRecord> history = stored(*later);
  ASSERT_EQ(history.size(), 4u);
  std::multiset<double> trust;
  for (const TaskRecord& r : history) trust.insert(r.trust);
  EXPECT_EQ(trust, (std::multiset<double>{kForeignTrust, kStaleTrust, 1, 1}));
  EXPECT_EQ(history.back().environment, "envother") << "own rows first";
  EXPECT_TRUE(load_history(*later, "no_such_family", "envown").empty());
  TaskRecord nameless = record(8, 1);
  nameless.environment.clear();
  EXPECT_FALSE(publish_rows(*later, nameless).ok());
}

TEST(TuningHistory, DamagedRowsAreSetAsideAndCounted) {
  Opened a;
  ASSERT_TRUE(*publish_rows(*a.store, record(8, 3)));
  // Sound frames around wrong contents: not a record, another environment's record.
  ASSERT_TRUE(*a.store->put({ObjectKind::k_rows, "envown", "matmul-0000-11"}, "record 1\nnonsense\n"));
  ASSERT_TRUE(
      *a.store->put({ObjectKind::k_rows, "envown", "matmul-0000-22"}, search::print_record(record(8, 2, "envother"))));
  const std::unique_ptr<Store> later = a.open();
  EXPECT_EQ(stored(*later).size(), 1u);
  EXPECT_EQ(files_in(a.dir.path() + "/v1/bad"), 2);
}

TEST(TuningHistory, AModelIsStoredReadAndTrainedAgainWhenHistoryGrows) {
  Opened a;
  std::vector<TaskRecord> history;
  for (int m = 4; m < 10; ++m) history.push_back(record(m, 60));
  const search::MachineRates rates = search::MachineRates::assumed(target());
  const auto get = [&](Store& store) { return family_model(store, "matmul", "envown", history, target(), rates); };
  const FamilyModel first = get(*a.store);
  ASSERT_TRUE(first.model.trusted());
  EXPECT_TRUE(first.trained);
  const std::unique_ptr<Store> later = a.open();
  const FamilyModel read = get(*later);
  EXPECT_FALSE(read.trained);
  EXPECT_TRUE(read.model.may_lead());
  EXPECT_EQ(read.rates.flops, first.rates.flops);
  const search::Featurizer f(history[0].problem, target(), read.rates, search::find_recipe(history[0].problem));
  for (const search::MeasuredRow& row : history[0].rows) {
    const search::Features x = f.of(row.knobs).x;
    ASSERT_EQ(read.model.score(x), first.model.score(x));
  }
  history.push_back(record(10, 60));
  EXPECT_FALSE(get(*later).trained) << "17 % more";
  history.push_back(record(11, 60));
  EXPECT_TRUE(get(*later).trained) << "33 % more";
  EXPECT_FALSE(get(*later).trained);
  history.resize(2);
  EXPECT_FALSE(get(*later).model.trusted()) << "rows that are gone do not speak through a model";
}

TEST(TuningHistory, ABadModelIsRebuilt) {
  Opened a;
  std::vector<TaskRecord> history;
  for (int m = 4; m < 10; ++m) history.push_back(record(m, 60));
  const search::MachineRates rates = search::MachineRates::assumed(target());
  const ObjectKey key{ObjectKind::k_model, "envown", "matmul-trees"};
  const FamilyModel good = family_model(*a.store, "matmul", "envown", history, target(), rates);
  std::string text = print_family_model(good, "matmul");
  EXPECT_FALSE(parse_family_model(text, "row").ok());
  EXPECT_TRUE(parse_family_model(text, "matmul").ok());
  for (size_t at = 0; at < text.size(); at += 1 + text.size() / 97) {
    std::string bad = text;
    bad[at] = bad[at] == '7' ? '8' : '7';
    // A digit of a rate or a count may still be a sound model; the trees are under a checksum.
    if (at > text.find("trees 1")) {
      EXPECT_FALSE(parse_family_model(bad, "matmul").ok()) << at;
    }
  }
  text.resize(text.size() / 2);
  ASSERT_TRUE(*a.store->put(key, text));
  const FamilyModel again = family_model(*a.store, "matmul", "envown", history, target(), rates);
  EXPECT_TRUE(again.trained);
  EXPECT_EQ(print_family_model(again, "matmul"), print_family_model(good, "matmul"));
}

TEST(TuningHistory, RatesComeFromTheProfileAndElseFromTheTarget) {
  MachineProfile p;
  const search::MachineRates assumed = rates_of(p, target());
  EXPECT_EQ(assumed.flops, search::MachineRates::assumed(target()).flops);
  p.values = {{"fma_avx512", 240}, {"fma_avx2", 120}, {"read_memory", 31}, {"call_ns", 20}, {"task_ns", 500}};
  const search::MachineRates r = rates_of(p, target());
  EXPECT_EQ(r.flops, 240);
  EXPECT_EQ(r.dram, 31);
  EXPECT_DOUBLE_EQ(r.call_us, 0.02);
  EXPECT_DOUBLE_EQ(r.task_us, 0.5);
  EXPECT_EQ(r.barrier_us, assumed.barrier_us);
  EXPECT_GT(leaf_call_ns(), 0);
  const TeamCost team = team_cost(2);
  EXPECT_GT(team.barrier_ns, 0);
  EXPECT_GT(team.task_ns, 0);
  EXPECT_EQ(team_cost(1).barrier_ns, 0);
}

}  // namespace
}  // namespace lathe::runtime
