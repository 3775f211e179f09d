// The strategies on measured tables: a few tasks of bench/tables replayed as bench/search_replay does, with floors a
// little below what is reached on these tables: guards against losing it, not targets.
#include "bench/search/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "bench/search/pack.h"

namespace lathe::bench {
namespace {

using ::testing::Ge;
using ::testing::Le;
using ::testing::Lt;

const std::vector<MeasuredTask>& tables() {
  static const std::vector<MeasuredTask> kAll = read_tables(LATHE_SOURCE_DIR "/bench/tables").value();
  return kAll;
}

class ReplayTest : public ::testing::Test {
 protected:
  ReplayTest() : replay_(some(), target_of(ir::IsaLevel::avx512), {.seeds = 4, .threads = 2}) {
    for (int t = 0; t < replay_.tasks(); ++t) {
      if (replay_.task(t).median_share() <= 0.90) counted_.push_back(t);
    }
  }
  // Matmuls of one thread with at most 1000 columns: small, and related enough to learn from each other.
  static const std::vector<MeasuredTask>& some() {
    static const std::vector<MeasuredTask> kSome = [] {
      std::vector<MeasuredTask> out;
      for (const MeasuredTask& t : tables()) {
        if (t.name.rfind("mm_896x896_R", 0) == 0 || t.name.rfind("mm_333", 0) == 0 ||
            t.name.rfind("mm_2048x2048", 0) == 0)
          out.push_back(t);
      }
      return out;
    }();
    return kSome;
  }
  Replay replay_;
  std::vector<int> counted_;
};

TEST(Tables, cover_the_families) {
  std::map<std::string, int> families;
  int two_threads = 0;
  for (const MeasuredTask& t : tables()) {
    ++families[t.problem.kernel.family];
    two_threads += t.problem.threads == 2;
    EXPECT_FALSE(t.rows.empty()) << t.name;
    EXPECT_EQ(t.isa, "avx512") << t.name;
  }
  EXPECT_THAT(tables().size(), Ge(41u));
  EXPECT_THAT(two_threads, Ge(5));
  EXPECT_THAT(families["matmul"], Ge(27));
  EXPECT_THAT(families["row"], Ge(10));
}

TEST(Tables, lines_read_back) {
  const MeasuredTask& t = tables()[0];
  const std::string path = ::testing::TempDir() + "/table_" + std::to_string(getpid()) + ".jsonl";
  {
    FILE* out = std::fopen(path.c_str(), "w");
    std::string text = task_line(t) + "\n";
    for (const TableRow& r : t.rows) text += row_line(t, r) + "\n";
    std::fputs(text.c_str(), out);
    std::fclose(out);
  }
  const auto back = read_tables(path);
  std::remove(path.c_str());
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  ASSERT_EQ(back->size(), 1u);
  EXPECT_EQ(task_line(back->at(0)), task_line(t));
  ASSERT_EQ(back->at(0).rows.size(), t.rows.size());
  for (size_t i = 0; i < t.rows.size(); ++i)
    EXPECT_EQ(row_line(back->at(0), back->at(0).rows[i]), row_line(t, t.rows[i]));
  EXPECT_FALSE(read_tables(path + ".none").ok());
}

TEST(Tables, a_thinned_record_keeps_the_default_first_and_the_best) {
  for (const MeasuredTask& t : tables()) {
    const search::TaskRecord r = thinned(t, 4, 12);
    EXPECT_THAT(r.rows.size(), Le(12u));
    EXPECT_EQ(r.rows[0].knobs, t.rows[static_cast<size_t>(t.default_row)].knobs);
    const RowTimes times = row_times(t);
    const double best = times.us[static_cast<size_t>(times.best)];
    double kept = 1e30;
    for (const search::MeasuredRow& row : r.rows)
      kept = std::min(kept, row.outcome == search::Outcome::timed ? row.us(t.problem.cold) : 1e30);
    EXPECT_NEAR(kept, best, 1e-3 * best) << t.name;
  }
}

TEST_F(ReplayTest, the_default_strategy_is_near_the_best_soon_and_ahead_of_random) {
  ASSERT_THAT(counted_.size(), Ge(6u));
  const Curve lathe = replay_.noise_free("lathe", Fold::group), random = replay_.noise_free("random", Fold::group);
  EXPECT_THAT(lathe.geomean(2, counted_), Ge(0.955));
  EXPECT_THAT(lathe.geomean(4, counted_), Ge(0.985));
  for (int b = 1; b < kBudgetCount; ++b)
    EXPECT_THAT(random.geomean(b, counted_), Lt(lathe.geomean(b, counted_) + 0.002)) << kBudgets[b];
}

TEST_F(ReplayTest, picks_on_real_samples_are_near_the_best_and_never_lose_to_the_default) {
  Decisions d;
  const Curve real = replay_.noisy("lathe", Fold::group, &d);
  EXPECT_THAT(real.geomean(4, counted_), Ge(0.94));
  EXPECT_THAT(d.regressed, Le(replay_.tasks() * 4 / 25));
  EXPECT_THAT(d.samples_per_task, Le(16 * 3 + 64));
}

TEST_F(ReplayTest, without_history_it_is_behind_but_gets_there) {
  const Curve bare = replay_.noise_free("lathe", Fold::none);
  EXPECT_THAT(bare.geomean(2, counted_), Ge(0.90));
  EXPECT_THAT(bare.geomean(5, counted_), Ge(0.97));
}

TEST_F(ReplayTest, a_new_length_is_served_well_by_its_default_and_soon_nearly_as_well_as_can_be) {
  const std::vector<std::vector<double>> after = replay_.new_length("lathe");
  double shares[3] = {0, 0, 0};
  int n = 0;
  for (int t : counted_) {
    const auto at = static_cast<size_t>(t);
    if (std::isnan(after[0][at])) continue;
    for (size_t i = 0; i < 3; ++i) shares[i] += after[i][at];
    ++n;
  }
  ASSERT_THAT(n, Ge(8));
  EXPECT_THAT(std::exp2(shares[0] / n), Ge(0.90));
  EXPECT_THAT(std::exp2(shares[1] / n), Ge(0.94));
  EXPECT_THAT(std::exp2(shares[2] / n), Ge(0.96));
}

TEST_F(ReplayTest, same_seed_same_figures) {
  const Curve a = replay_.noise_free("lathe", Fold::group), b = replay_.noise_free("lathe", Fold::group);
  EXPECT_EQ(a.by_task, b.by_task);
  EXPECT_EQ(a.to_95, b.to_95);
}

TEST_F(ReplayTest, identical_kernels_claim_hardly_any_wins) { EXPECT_THAT(replay_.claimed_of_identical(20), Le(0.03)); }

}  // namespace
}  // namespace lathe::bench
