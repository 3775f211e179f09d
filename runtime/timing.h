// Which of several ways to do one thing is fastest: screen cheaply, then select by the median of
// interleaved pairs against the default. Knows nothing of kernels: a candidate is a function to
// call. The clock is injected; one that stands still or jumps costs samples, never picks a slower
// candidate for certain.
#pragma once
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace lathe::runtime {

struct TimingOptions {
  bool cold = false;          // screening by median of 3 (else by minimum of 3)
  double min_sample_us = 50;  // shorter calls are repeated within a sample
  int finalists = 4;
  int min_pairs = 6, max_pairs = 24;  // per finalist
  double narrow = 0.01;    // pairs stop when the 95 % interval of their median is as narrow as this
  double must_win = 0.01;  // the winner's gain over the default, for certain
  double budget_ms = 0;  // screening beyond half of it is skipped, pairs beyond all of it; 0: none
  uint64_t seed = 0;
  std::function<int64_t()> now_ns;  // empty: the steady clock
};

struct TimingRow {
  int rounds = 0;  // samples taken; 0: skipped
  double min_us = 0, median_us = 0;
  // 95 % interval of the gain over the default in per cent of its time (positive: faster);
  // finalists only.
  double gain_lo = 0, gain_hi = 0;
  bool finalist = false;
};

struct TimingResult {
  std::vector<TimingRow> rows;
  int winner = 0;        // 0 unless another one wins for certain
  bool tie = true;       // nobody beat the default
  int measurements = 0;  // samples of all
  double default_us = 0;  // median
  double best_us = 0;     // by the paired gain
};

// calls[0] is the default; each call runs the candidate once. before(i) is told who runs next.
TimingResult time_candidates(const std::vector<std::function<void()>>& calls,
                             const TimingOptions& options,
                             const std::function<void(int)>& before = {});

// 95 % interval of the median by order statistics; the whole range below six values. values:
// unsorted, not empty.
std::pair<double, double> median_interval(std::vector<double> values);
double median_of(std::vector<double> values);

}  // namespace lathe::runtime
