// Records of measurements: round trip, refusal of everything that was not written so, times.
#include "search/model/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/search/model/problems.h"

namespace lathe::search {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TaskRecord sample_record() {
  TaskRecord r;
  r.problem = softmax_problem(128, 1000, 2);
  r.problem.cold = true;
  r.isa = "avx512";
  r.environment = "91ab";
  r.policy = "cold";
  r.epoch = 3;
  r.rows.push_back({"rows.1", {{"grain", 4}, {"unroll", 4}}, {}, Outcome::timed, {12.5, 13, 0.1}, 12});
  r.rows.push_back({"rows.1", {{"grain", 16}, {"unroll", 1}}, {*parse_move("parallelize i")}, Outcome::wrong, {}, 0});
  r.rows.push_back({"",
                    {},
                    {*parse_move("tile_scope n 32 tail=mask as n0,n3"), *parse_move("vectorize_scope n3")},
                    Outcome::timed,
                    {7},
                    14});
  return r;
}

TEST(History, a_record_survives_its_text) {
  const TaskRecord r = sample_record();
  const std::string text = print_record(r);
  const auto again = parse_record(text);
  ASSERT_TRUE(again.ok()) << again.status().to_string() << "\n" << text;
  EXPECT_EQ(print_record(*again), text);
  EXPECT_EQ(again->rows.size(), 3u);
  EXPECT_EQ(again->rows[2].extra.size(), 2u);
  EXPECT_EQ(again->rows[0].samples_us, r.rows[0].samples_us);
  EXPECT_EQ(again->problem.dims, r.problem.dims);
  EXPECT_EQ(task_name(again->problem), task_name(r.problem));
  EXPECT_EQ(again->trust, 1);
}

TEST(History, several_records_are_one_text) {
  TaskRecord bare;
  bare.problem = matmul_problem(8, 64, 32);
  const std::string text = print_record(sample_record()) + print_record(bare) + print_record(sample_record());
  const auto all = parse_records(text);
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  EXPECT_EQ(all->size(), 3u);
  EXPECT_EQ((*all)[1].isa, "");
  EXPECT_TRUE(parse_records("")->empty());
  EXPECT_FALSE(parse_record(text).ok());
}

TEST(History, faults_are_named_with_their_line) {
  const std::string text = print_record(sample_record());
  const auto refuse = [&](const std::string& from, const std::string& to) {
    std::string bad = text;
    const size_t at = bad.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    bad.replace(at, from.size(), to);
    const auto parsed = parse_record(bad);
    EXPECT_FALSE(parsed.ok()) << bad;
    return parsed.ok() ? std::string() : parsed.status().message();
  };
  EXPECT_THAT(refuse("record 1", "record 2"), HasSubstr("line 1"));
  EXPECT_THAT(refuse("cold 1", "cold 2"), HasSubstr("line 7: expected 0 or 1"));
  EXPECT_THAT(refuse("12.5 13", "12.50 13"), HasSubstr("not as it is written: line"));
  EXPECT_THAT(refuse("grain=4 unroll=4", "unroll=4 grain=4"), HasSubstr("not as it is written: line"));
  EXPECT_THAT(refuse("row timed", "row fast"), HasSubstr("unknown outcome"));
  EXPECT_THAT(refuse("parallelize i", "parallelize  i"), HasSubstr("line"));
  EXPECT_THAT(refuse("d[i, n1] = exp", "d[i, n1 + 1] = exp"), HasSubstr("the kernel"));
  EXPECT_THAT(refuse("12.5 13", "-12.5 13"), HasSubstr("a time out of range"));
  EXPECT_THAT(refuse(" 12 3 ", " 12 4 "), HasSubstr("at most 3 samples"));
  EXPECT_THAT(refuse("dims 1", "dims 99999999"), HasSubstr("count out of range"));
}

TEST(History, mutated_texts_are_refused_or_mean_themselves) {
  const std::string text = print_record(sample_record());
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 1500; ++i) {
    std::string bad = text;
    const int edits = 1 + static_cast<int>(random() % 3);
    for (int e = 0; e < edits; ++e) {
      const size_t at = random() % bad.size();
      switch (random() % 4) {
        case 0:
          bad[at] = static_cast<char>(random() % 128);
          break;
        case 1:
          bad.erase(at, 1 + random() % 20);
          break;
        case 2:
          bad.insert(at, bad.substr(random() % bad.size(), random() % 30));
          break;
        default:
          bad.resize(at + 1);
          break;
      }
      if (bad.empty()) bad = "r";
    }
    const auto parsed = parse_record(bad);
    refused += !parsed.ok();
    if (parsed.ok()) {
      EXPECT_EQ(print_record(*parsed), bad);
    }
  }
  EXPECT_GT(refused, 900);
}

TEST(History, times_are_minimum_hot_and_median_cold) {
  MeasuredRow row;
  EXPECT_EQ(row.us(true), 0);
  row.samples_us = {5, 2, 3};
  EXPECT_EQ(row.us(false), 2);
  EXPECT_EQ(row.us(true), 3);
  row.samples_us = {5, 2};
  EXPECT_EQ(row.us(true), 3.5);
}

TEST(History, times_follow_the_reference_where_all_rows_have_one) {
  TaskRecord r;
  r.rows.push_back({"", {}, {}, Outcome::timed, {10}, 10});
  r.rows.push_back({"", {}, {}, Outcome::timed, {15}, 20});
  r.rows.push_back({"", {}, {}, Outcome::crashed, {}, 0});
  EXPECT_THAT(corrected_times(r), ElementsAre(1, 0.75, 0));
  r.rows[1].reference_us = 0;
  EXPECT_THAT(corrected_times(r), ElementsAre(10, 15, 0));
}

TEST(History, a_task_is_its_kernel_dims_threads_and_policy) {
  Problem p = softmax_problem(128, 1000);
  const std::string name = task_name(p);
  EXPECT_EQ(name.size(), 16u);
  p.one_layout = true;
  EXPECT_EQ(task_name(p), name);
  p.cold = true;
  EXPECT_NE(task_name(p), name);
  EXPECT_NE(task_name(softmax_problem(64, 1000)), name);
  EXPECT_NE(task_name(softmax_problem(128, 1000, 2)), name);
  EXPECT_NE(task_name(softmax_problem(128, 1001)), name);
}

}  // namespace
}  // namespace lathe::search
