// Where a workload's measurements go.
#include "runtime/tune/task_scheduler.h"

#include <gtest/gtest.h>

#include <map>

namespace lathe::runtime {
namespace {

TEST(TaskScheduler, EveryTaskIsLookedAtOnceTheHeaviestFirst) {
  TaskScheduler s({{1, 10, 1, 1}, {1, 1000, 1, 1}, {50, 10, 1, 1}}, {.first = 3, .quantum = 4, .most = 16});
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) {
    const auto q = s.next();
    ASSERT_TRUE(q);
    EXPECT_EQ(q->measurements, 3);
    order.push_back(q->task);
    s.tell(q->task, 0, q->measurements, 1, false);
  }
  EXPECT_EQ(order, (std::vector<int>{1, 2, 0}));
  EXPECT_EQ(s.spent(), 9);
}

TEST(TaskScheduler, QuantaGoWhereTimeAndGapAreLarge) {
  // Task 0 is at its floor, task 1 has a tenth of task 2's time to win.
  TaskScheduler s({{1, 1000, 1000, 1}, {1, 100, 50, 1}, {10, 100, 50, 1}},
                  {.first = 1, .quantum = 4, .most = 9, .total = 15});
  std::map<int, int> spent;
  while (const auto q = s.next()) {
    spent[q->task] += q->measurements;
    s.tell(q->task, 0, q->measurements, q->measurements, false);
  }
  EXPECT_EQ(spent[0], 1);
  EXPECT_EQ(spent[2], 9);
  EXPECT_EQ(spent[1], 5);
  EXPECT_EQ(s.spent(), 15);
}

TEST(TaskScheduler, CostCounts) {
  TaskScheduler s({{1, 100, 10, 1}, {1, 100, 10, 1}}, {.first = 1, .quantum = 1, .most = 10});
  s.tell(0, 100, 1, 50, false);
  s.tell(1, 100, 1, 5, false);
  EXPECT_EQ(s.next()->task, 1);
}

TEST(TaskScheduler, NegligibleEndedAndSkippedTasksGetNoMore) {
  TaskScheduler s({{1, 1e6, 1, 1}, {1, 10, 1, 1}, {1, 1e6, 1, 1}, {1, 1e6, 1, 1}},
                  {.first = 1, .quantum = 4, .most = 5});
  s.skip(3);
  for (int i = 0; i < 3; ++i) {
    const auto q = s.next();
    ASSERT_TRUE(q);
    s.tell(q->task, 0, q->measurements, 1, q->task == 2);
  }
  const auto q = s.next();
  ASSERT_TRUE(q);
  EXPECT_EQ(q->task, 0);
  s.tell(0, 1e5, 4, 1, false);
  EXPECT_FALSE(s.next());
  EXPECT_EQ(s.slots(0), 5);
  EXPECT_EQ(s.slots(3), 0);
}

TEST(TaskScheduler, AQuantumThatMeasuredNothingEndsTheTask) {
  TaskScheduler s({{1, 100, 1, 1}}, {});
  s.tell(0, 0, 0, 3, false);
  EXPECT_FALSE(s.next());
  EXPECT_DOUBLE_EQ(s.done(), 1);
}

TEST(TaskScheduler, DoneGrowsToOne) {
  TaskScheduler s({{1, 100, 1, 1}, {1, 100, 1, 2}}, {.first = 2, .quantum = 2, .most = 4});
  double before = s.done();
  EXPECT_DOUBLE_EQ(before, 0);
  while (const auto q = s.next()) {
    s.tell(q->task, 50, q->measurements, q->measurements * (1 + q->task), false);
    EXPECT_GT(s.done(), before);
    before = s.done();
  }
  EXPECT_DOUBLE_EQ(before, 1);
}

}  // namespace
}  // namespace lathe::runtime
