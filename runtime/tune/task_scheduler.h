// Which operator of a workload gets the next measurements: one look at each, then quanta where time x expected gain per
// cost is largest. Pure: no clock, no measuring; the caller tells what came of each quantum. Not thread-safe.
#pragma once
#include <optional>
#include <vector>

namespace lathe::runtime {

struct ScheduledTask {
  double weight = 1;       // calls, in any unit common to all tasks
  double expected_us = 0;  // of one call before anything is known: an estimate
  double floor_us = 0;     // the least one call can take: roofline / 0.95, or what similar shapes reached
  double cost_ms = 1;      // of one measurement: an estimate until the first quantum
};

struct ScheduleRules {
  int first = 4;  // measurements of the first look, the default included
  int quantum = 4;
  int most = 16;              // per task
  int total = 0;              // of all tasks; 0: most each
  double negligible = 0.001;  // a task below this share of the workload's time gets nothing after its first look
};

class TaskScheduler {
 public:
  TaskScheduler(std::vector<ScheduledTask> tasks, const ScheduleRules& rules);

  struct Quantum {
    int task = -1;
    int measurements = 0;
  };
  // Ties go to the lower number. Null: nothing left that is worth a measurement.
  std::optional<Quantum> next() const;
  // After a quantum: the task's time with what is best now, measurements that were spent on it, what they cost, whether
  // its search has ended.
  void tell(int task, double best_us, int measurements, double cost_ms, bool ended);
  // The task needs none: stored already, or impossible.
  void skip(int task);

  int spent() const { return spent_; }
  int slots(int task) const { return states_[static_cast<size_t>(task)].slots; }
  // Share of the expected work that is done, 0..1, for progress and the time left.
  double done() const;

 private:
  struct State {
    ScheduledTask task;
    double us = 0;
    int slots = 0;
    bool looked = false, ended = false;
  };
  double priority(const State& s) const;
  int room(const State& s) const;

  std::vector<State> states_;
  ScheduleRules rules_;
  int spent_ = 0;
};

}  // namespace lathe::runtime
