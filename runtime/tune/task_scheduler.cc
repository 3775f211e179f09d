// See task_scheduler.h. priority = weight * max(0, us - floor) * (1 - exp(-1 / (n + 1))) / cost: what a call may still
// gain, less likely with every measurement already spent.
#include "runtime/tune/task_scheduler.h"

#include <algorithm>
#include <cmath>

namespace lathe::runtime {

TaskScheduler::TaskScheduler(std::vector<ScheduledTask> tasks, const ScheduleRules& rules) : rules_(rules) {
  rules_.first = std::max(rules_.first, 1);
  rules_.quantum = std::max(rules_.quantum, 1);
  rules_.most = std::max(rules_.most, rules_.first);
  for (const ScheduledTask& t : tasks) states_.push_back({t, t.expected_us});
}

int TaskScheduler::room(const State& s) const {
  const int wanted = s.looked ? rules_.quantum : rules_.first;
  const int left = rules_.total > 0 ? rules_.total - spent_ : wanted;
  return std::min({wanted, rules_.most - s.slots, left});
}

double TaskScheduler::priority(const State& s) const {
  const double gain = std::max(0.0, s.us - s.task.floor_us);
  return s.task.weight * gain * (1 - std::exp(-1.0 / (s.slots + 1))) / std::max(s.task.cost_ms, 1e-3);
}

std::optional<TaskScheduler::Quantum> TaskScheduler::next() const {
  // First looks come first, the heaviest operator at the head, so that a short budget goes where it counts.
  double total = 0;
  for (const State& s : states_) total += s.task.weight * s.us;
  int best = -1;
  double best_key = -1;
  for (const bool looking : {true, false}) {
    for (size_t i = 0; i < states_.size(); ++i) {
      const State& s = states_[i];
      if (s.ended || s.looked == looking || room(s) <= 0) continue;
      const double time = s.task.weight * s.us;
      if (!looking && time < rules_.negligible * total) continue;
      const double key = looking ? time : priority(s);
      if (key > best_key && (looking || key > 0)) {
        best = static_cast<int>(i);
        best_key = key;
      }
    }
    if (best >= 0) return Quantum{best, room(states_[static_cast<size_t>(best)])};
  }
  return std::nullopt;
}

void TaskScheduler::tell(int task, double best_us, int measurements, double cost_ms, bool ended) {
  State& s = states_[static_cast<size_t>(task)];
  if (best_us > 0) s.us = best_us;
  s.slots += measurements;
  spent_ += measurements;
  s.looked = true;
  // A quantum that measured nothing has nothing more to offer.
  s.ended = ended || measurements == 0 || s.slots >= rules_.most;
  if (measurements > 0 && cost_ms > 0) s.task.cost_ms = cost_ms / measurements;
}

void TaskScheduler::skip(int task) { states_[static_cast<size_t>(task)].ended = true; }

double TaskScheduler::done() const {
  double all = 0, left = 0;
  for (const State& s : states_) {
    all += s.task.cost_ms * rules_.most;
    if (!s.ended) left += s.task.cost_ms * (rules_.most - s.slots);
  }
  if (rules_.total > 0 && all > 0) {
    const double spent_share = static_cast<double>(spent_) / rules_.total;
    return std::max(std::min(spent_share, 1.0), 1 - left / all);
  }
  return all > 0 ? 1 - left / all : 1;
}

}  // namespace lathe::runtime
