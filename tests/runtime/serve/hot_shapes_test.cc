// Counting calls of a shape, the window that is looked at, pairs of a trial; copies of calls in memory that another
// process maps.
#include "runtime/serve/hot_shapes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "runtime/serve/operator.h"
#include "runtime/serve/recorded_calls.h"

namespace lathe::runtime {
namespace {

TEST(HotShape, eight_calls_in_a_row_of_each_period_are_looked_at) {
  HotShape heat(64);
  int looked = 0;
  for (int i = 0; i < 640; ++i) {
    const int place = heat.tick();
    if (place < 0) continue;
    EXPECT_EQ(place, looked % kWindow);
    ++looked;
  }
  EXPECT_EQ(looked, 10 * kWindow);
  EXPECT_EQ(heat.calls(), 640u);
}

TEST(HotShape, at_most_half_a_per_cent_of_calls_goes_to_the_body_on_trial) {
  HotShape heat;
  int tried = 0;
  const int calls = 1 << 16;
  for (int i = 0; i < calls; ++i) {
    const int place = heat.tick();
    tried += place >= 0 && place < kBurst;
  }
  EXPECT_GT(tried, 0);
  EXPECT_LE(tried, calls / 200);
}

TEST(HotShape, times_are_of_the_body_that_serves_and_without_the_first_call) {
  HotShape heat(16);
  for (int place = 0; place < kWindow; ++place)
    heat.note(place, place < kBurst ? 1'000'000 : place == kBurst ? 500'000 : 100, nullptr);
  EXPECT_EQ(heat.mean_ns(), 100);
  heat.forget_times();
  EXPECT_EQ(heat.mean_ns(), 0);
}

TEST(HotShape, a_window_gives_one_pair_of_the_best_times) {
  HotShape heat(16);
  const BoundOp other;
  Trial trial;
  trial.other = &other;
  heat.set_trial(&trial);
  const int64_t times[kWindow] = {999, 30, 20, 40, 999, 70, 90, 80};
  for (int place = 0; place < kWindow; ++place) heat.note(place, times[place], heat.trial());
  const std::vector<Trial::Pair> pairs = trial.take();
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(pairs[0].other_ns, 20);
  EXPECT_EQ(pairs[0].serving_ns, 70);
  EXPECT_TRUE(trial.take().empty());
}

TEST(HotShape, a_window_that_another_trial_began_gives_none) {
  HotShape heat(16);
  const BoundOp other;
  Trial first, second;
  first.other = second.other = &other;
  for (int place = 0; place < kWindow; ++place) heat.note(place, 10, place < kBurst ? &first : &second);
  EXPECT_TRUE(first.take().empty());
  EXPECT_TRUE(second.take().empty());
}

TEST(HotShape, while_calls_are_recorded_one_in_sixteen_is_offered) {
  ir::Result<std::unique_ptr<RecordedCalls>> recorder = RecordedCalls::create({{RecordedParam::Kind::in, 8}}, 2);
  ASSERT_TRUE(recorder.ok());
  HotShape heat(1024);
  Trial trial;
  trial.recorder = recorder->get();
  heat.set_trial(&trial);
  int offered = 0;
  for (int i = 0; i < 1024; ++i) offered += heat.tick() == kWindow;
  EXPECT_GE(offered, 62);
  EXPECT_LE(offered, 64);
  heat.set_trial(nullptr);
  for (int i = 0; i < 1024; ++i) EXPECT_NE(heat.tick(), kWindow);
}

TEST(HotShape, threads_lose_few_counts) {
  HotShape heat;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50'000; ++i) {
        const int place = heat.tick();
        if (place >= 0) heat.note(place, 100, heat.trial());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_LE(heat.calls(), 200'000u);
  EXPECT_GT(heat.calls(), 20'000u);
}

using Kind = RecordedParam::Kind;

TEST(RecordedCalls, constants_come_in_pieces_and_calls_after_them) {
  const int64_t large = RecordedCalls::kPiece * 2 + 100;
  std::vector<char> constant(static_cast<size_t>(large));
  for (size_t i = 0; i < constant.size(); ++i) constant[i] = static_cast<char>(i * 31 >> 3);
  ir::Result<std::unique_ptr<RecordedCalls>> made =
      RecordedCalls::create({{Kind::in, 8}, {Kind::constant, large}, {Kind::out, 4}}, 3);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  RecordedCalls& calls = **made;
  int recorded = 0, offered = 0;
  for (int64_t i = 0; !calls.complete() && offered < 100; ++i, ++offered) {
    int64_t in = i;
    int32_t out = -1;
    void* params[] = {&in, constant.data(), &out};
    const int call = calls.begin(params);
    if (call < 0) continue;
    EXPECT_EQ(call, recorded++);
    out = static_cast<int32_t>(i * 2);
    calls.end(call, params);
  }
  EXPECT_EQ(recorded, 3);
  EXPECT_GE(offered, 6);
  ir::Result<std::unique_ptr<RecordedCalls>> read = RecordedCalls::open(calls.path());
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ((*read)->calls(), 3);
  EXPECT_EQ(std::memcmp((*read)->data(0, 1), constant.data(), constant.size()), 0);
  for (int c = 0; c < 3; ++c) {
    int64_t in = 0;
    int32_t out = 0;
    std::memcpy(&in, (*read)->data(c, 0), sizeof in);
    std::memcpy(&out, (*read)->data(c, 2), sizeof out);
    EXPECT_EQ(out, in * 2);
  }
  calls.release();
  void* none[] = {nullptr, nullptr, nullptr};
  EXPECT_EQ(calls.begin(none), -1);
}

TEST(RecordedCalls, calls_with_other_constants_are_left_out) {
  ir::Result<std::unique_ptr<RecordedCalls>> made = RecordedCalls::create({{Kind::constant, 8}, {Kind::out, 8}}, 2);
  ASSERT_TRUE(made.ok());
  int64_t first = 1, second = 2, out = 0;
  void* a[] = {&first, &out};
  void* b[] = {&second, &out};
  EXPECT_EQ((*made)->begin(a), -1);  // the constant
  EXPECT_EQ((*made)->begin(b), -1);
  EXPECT_EQ((*made)->begin(a), 0);
  EXPECT_EQ((*made)->begin(b), -1);
  EXPECT_EQ((*made)->begin(a), 1);
}

TEST(RecordedCalls, what_is_too_large_is_refused_and_so_is_foreign_memory) {
  EXPECT_FALSE(RecordedCalls::create({{Kind::in, RecordedCalls::kMostPerCall + 1}}, 1).ok());
  EXPECT_FALSE(RecordedCalls::create({{Kind::constant, RecordedCalls::kMost}}, 1).ok());
  EXPECT_FALSE(RecordedCalls::create({}, 1).ok());
  EXPECT_FALSE(RecordedCalls::open("/proc/self/exe").ok());
  EXPECT_FALSE(RecordedCalls::open("/nowhere").ok());
}

}  // namespace
}  // namespace lathe::runtime
