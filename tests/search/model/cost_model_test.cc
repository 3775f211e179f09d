// The trees: they learn, they are deterministic, they come back from text bit for bit; the residual and the rules of
// trust.
#include "search/model/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ir/analysis/analysis.h"
#include "search/strategy/space.h"
#include "tests/search/model/problems.h"

namespace lathe::search {
namespace {

using testing::HasSubstr;

std::vector<TrainRow> synthetic_rows(int n, uint32_t seed) {
  std::mt19937 random(seed);
  const auto unit = [&] { return static_cast<float>(random() % 10000) / 10000.0f; };
  std::vector<TrainRow> rows(static_cast<size_t>(n));
  for (TrainRow& r : rows) {
    for (float& x : r.x) x = unit() * 4;
    r.label = -std::abs(r.x[3] - 2) - (r.x[7] > 2 ? 1.0f : 0.0f) * r.x[3];
    r.weight = 0.2f + unit();
  }
  return rows;
}

double error_of(const BoostedTrees& trees, const std::vector<TrainRow>& rows) {
  double sum = 0;
  for (const TrainRow& r : rows) sum += std::pow(trees.predict(r.x) - r.label, 2);
  return std::sqrt(sum / static_cast<double>(rows.size()));
}

TEST(Trees, learn_a_step_and_a_kink) {
  const std::vector<TrainRow> rows = synthetic_rows(1500, 1), fresh = synthetic_rows(300, 2);
  const BoostedTrees trees = BoostedTrees::train(rows, {});
  EXPECT_LT(error_of(trees, fresh), 0.4) << "the labels' own spread is about 1.2";
  TreeParams one;
  one.trees = 1;
  EXPECT_GT(error_of(BoostedTrees::train(rows, one), fresh), 0.6);
}

TEST(Trees, same_rows_and_seed_give_the_same_bits) {
  const std::vector<TrainRow> rows = synthetic_rows(400, 3);
  TreeParams p;
  const std::string first = BoostedTrees::train(rows, p).print();
  EXPECT_EQ(BoostedTrees::train(rows, p).print(), first);
  p.seed = 2;
  EXPECT_NE(BoostedTrees::train(rows, p).print(), first);
  EXPECT_TRUE(BoostedTrees::train({}, p).empty());
}

TEST(Trees, predict_bit_for_bit_after_print_and_parse) {
  const BoostedTrees trees = BoostedTrees::train(synthetic_rows(600, 4), {});
  const auto again = BoostedTrees::parse(trees.print());
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->digest(), trees.digest());
  for (const TrainRow& r : synthetic_rows(500, 5)) ASSERT_EQ(again->predict(r.x), trees.predict(r.x));
}

TEST(Trees, damaged_texts_are_refused_and_never_crash) {
  TreeParams p;
  p.trees = 5;
  const std::string text = BoostedTrees::train(synthetic_rows(200, 6), p).print();
  std::string other = text;
  other.replace(other.find("features ") + 9, 16, "0123456789abcdef");
  EXPECT_FALSE(BoostedTrees::parse(other).ok());
  std::mt19937 random(8);
  for (int i = 0; i < 400; ++i) {
    std::string bad = text;
    bad[random() % bad.size()] = static_cast<char>('0' + random() % 10);
    if (bad != text) {
      EXPECT_FALSE(BoostedTrees::parse(bad).ok());
    }
    // With a right checksum over wrong contents: whatever is accepted must predict.
    const size_t last = bad.rfind("sum ");
    if (last == std::string::npos) continue;
    bad = bad.substr(0, last) + fmt::format("sum {:016x}\n", ir::hash_text(bad.substr(0, last)));
    const auto parsed = BoostedTrees::parse(bad);
    if (parsed.ok()) parsed->predict(Features{});
  }
}

std::vector<TaskRecord> family_history(int tasks, int rows_each, double trust = 1) {
  std::vector<TaskRecord> out;
  const ir::Target target = run_target();
  for (int t = 0; t < tasks; ++t) {
    TaskRecord r;
    r.problem = matmul_problem(16 + 8 * t, 512, 512);
    r.environment = "here";
    r.trust = trust;
    RecipeSpace space(r.problem, target, run_rates());
    for (int i = 0; i < rows_each; ++i) {
      const Knobs& k = space.at(i * space.size() / rows_each).knobs;
      r.rows.push_back({"panel.1", k, {}, Outcome::timed, {100.0 / static_cast<double>(k.at("mr")) + 1}, 0});
    }
    out.push_back(std::move(r));
  }
  return out;
}

TEST(CostModel, trees_are_trusted_from_five_tasks_and_three_hundred_rows) {
  const ir::Target target = run_target();
  const MachineRates rates = run_rates();
  EXPECT_FALSE(train_model(family_history(4, 100), target, rates, 1).trusted());
  EXPECT_FALSE(train_model(family_history(5, 40), target, rates, 1).trusted());
  const CostModel own = train_model(family_history(5, 60), target, rates, 1);
  EXPECT_TRUE(own.trusted());
  EXPECT_TRUE(own.may_lead());
  const CostModel foreign = train_model(family_history(5, 60, 0.25), target, rates, 1);
  EXPECT_TRUE(foreign.trusted());
  EXPECT_FALSE(foreign.may_lead()) << "rows of other machines make shortlists only";
}

TEST(CostModel, ranks_what_history_ranks) {
  const ir::Target target = run_target();
  const MachineRates rates = run_rates();
  const CostModel model = train_model(family_history(6, 60), target, rates, 1);
  const Featurizer f(matmul_problem(40, 512, 512), target, rates, find_recipe(matmul_problem(40, 512, 512)));
  Knobs slow{{"mr", 1}, {"nr", 32}, {"kc", 0}, {"mc", 0}, {"pf", 0}}, fast = slow;
  fast["mr"] = 8;
  EXPECT_GT(model.score(f.of(fast).x), model.score(f.of(slow).x) + 1);
}

TEST(CostModel, labels_are_clipped_and_failures_are_slow) {
  EXPECT_EQ(label_of(1, 1), 0);
  EXPECT_EQ(label_of(1, 2), -1);
  EXPECT_EQ(label_of(1, 1e6), kLabelClip);
  std::vector<TaskRecord> history = family_history(1, 4);
  history[0].rows[1].outcome = Outcome::crashed;
  history[0].rows[2].outcome = Outcome::skipped;
  const ir::Target target = run_target();
  const std::vector<TrainRow> rows = training_rows(history, target, run_rates());
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].label, kLabelClip);
  EXPECT_FLOAT_EQ(rows[1].weight, 0.2f);
}

}  // namespace
}  // namespace lathe::search
