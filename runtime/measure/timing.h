// Which of several ways to do one thing is fastest: screen each cheaply against a reference, then select among a few by
// samples taken in turns and guard the winner by a sequential rank test (docs/measuring.md). Knows nothing of kernels:
// a candidate is a function to call. Clock, contention and rests are injected; a clock that stands still or jumps costs
// samples, never picks a slower candidate for certain. Not thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/measure/sample.h"

namespace lathe::runtime {

struct TimingOptions {
  bool cold = false;         // screening by median of 3 (else by minimum of 3)
  double min_sample_us = 0;  // shorter calls are repeated within a sample; 0: sample_us(cold, false)
  int further = 64;          // samples beyond the screening's three, of all candidates together
  double narrow = 0.01;      // pairs stop when the 95 % interval of their median is as narrow as this
  double must_win = 0.01;    // the winner's gain over the reference, for certain
  double budget_ms = 0;      // screening beyond half of it is skipped, pairs beyond all of it; 0: none
  uint64_t seed = 0;
  // Placements of operands that each sample takes in, equally, and counts by the mean of; place(p) is told before the
  // calls at one. Of calls that are longer than a sample, two.
  int placements = 1;
  std::function<void(int)> place;
  std::function<int64_t()> now_ns;  // empty: the steady clock
  std::function<bool()> contended;  // others want the processor: the test of the winner is stricter; empty: never
};

struct TimingRow {
  std::vector<double> samples;  // of the screening, microseconds a call, at most 3; empty: skipped
  double reference_us = 0;      // the reference's time around then
  bool provisional = false;     // the machine moved under it, again and again
  int requeued = 0;
  // 95 % interval of the gain over the reference in per cent of its time (positive: faster); finalists only.
  double gain_lo = 0, gain_hi = 0;
  bool finalist = false;
};

struct Finalist {
  int candidate = 0;
  int64_t code_bytes = 0;  // ties go to the smaller code,
  std::string text;        // then to the shorter, then to the lesser text
};

struct TimingDecision {
  int winner = 0;           // 0 unless another one wins for certain
  bool tie = true;          // nobody beat the reference
  double reference_us = 0;  // median
  double best_us = 0;       // by the paired gain
};

class TimingSession {
 public:
  // before(i) is told who runs next.
  explicit TimingSession(TimingOptions options, std::function<void(int)> before = {});

  // Its number; number 0 is the reference. prepare(n), if any, runs before each sample of n calls, off the clock.
  int add(std::function<void()> call, std::function<void(int calls)> prepare = {});
  // Takes the samples of these candidates (the reference's first of all); settled(i) when a row is final.
  void screen(std::span<const int> candidates, const std::function<void(int)>& settled = {});
  const TimingRow& row(int i) const { return candidates_[static_cast<size_t>(i)].row; }
  // Corrected for drift; 0: not screened, or stopped after one hopeless sample.
  double score(int i) const;
  // Best first. The incumbent (-1: none) is a finalist too, and stays unless the winner beats it as well.
  TimingDecision decide(std::vector<Finalist> finalists, int incumbent = -1);
  int further() const { return further_; }  // samples taken beyond the screening's

 private:
  struct Candidate {
    std::function<void()> call;
    std::function<void(int)> prepare;
    int repeats = 0;  // calls of a sample at each placement; 0: not warmed up yet
    int at_once = 1;  // of these between two looks at the clock
    TimingRow row;
    std::vector<std::pair<size_t, double>> in_rounds;  // which round, its time
  };
  double elapsed_ms() const;
  bool spent(double share) const;
  bool can_afford(int samples) const { return further_ + samples <= options_.further; }
  double measure(int i, int placements);
  double sample(int i);
  double extra(int i);
  void warm_up(int i);
  double best_of(const std::vector<double>& samples) const;
  double corrected(double us) const;
  bool screen_batch(std::span<const int> batch, bool plenty);
  void doubt(int i);
  bool read_reference();
  double reference_level() const;
  double reference_limit() const;
  void round(const std::vector<int>& active, bool reversed);
  double level(int i) const;
  std::vector<double> ratios(int i) const;
  std::vector<double> duel(const std::vector<int>& rivals, int reserve);
  std::vector<Finalist> select(std::vector<Finalist> finalists, int incumbent);
  bool confirmed(int i, int incumbent, double alpha);

  TimingOptions options_;
  std::function<void(int)> before_;
  int64_t start_ = 0;
  std::vector<Candidate> candidates_;
  std::vector<double> readings_;       // of the reference, since the machine last moved
  std::vector<double> reference_all_;  // every sample of it
  std::vector<double> rounds_;         // the reference's time in each
  double base_ = 0;                    // the reference's level at first
  double best_ = 0;                    // best score so far
  int further_ = 0, tests_ = 0;
  int placements_;              // of a sample
  std::vector<double> placed_;  // the last sample's time at each
};

// 95 % interval of the median by order statistics; the whole range below six values. values:
// unsorted, not empty.
std::pair<double, double> median_interval(std::vector<double> values);
double median_of(std::vector<double> values);
// Others waited for a processor more than 20 % of the last ten seconds, as the kernel says (PSI); false where it does
// not say.
bool processor_contended();

}  // namespace lathe::runtime
