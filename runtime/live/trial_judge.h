// Judges a candidate against the incumbent by pairs of times of real calls: a sequential sign test decides that it is
// faster, the median of the ratios that it is slower. Pure, no clock. Not thread-safe.
#pragma once
#include <cstdint>
#include <vector>

namespace lathe::runtime {

struct TrialRules {
  int calls_per_pair = 3;  // of the candidate, timed for one pair
  int least_calls = 200;   // timed before it may win
  int most_calls = 600;    // undecided by then: a tie
  int least_pairs = 12;    // before it may lose
  double win = 0.995;      // a pair is won below this ratio of candidate to incumbent
  double lose = 1.02;      // rolled back above this median
};

enum class TrialVerdict : uint8_t { undecided, better, worse, tie };

class TrialJudge {
 public:
  explicit TrialJudge(TrialRules rules = {}) : rules_(rules) {}
  // One pair. Times that are not positive are no pair.
  void add(double candidate_ns, double incumbent_ns);
  TrialVerdict verdict() const;
  int pairs() const { return static_cast<int>(ratios_.size()); }
  int calls() const { return pairs() * rules_.calls_per_pair; }
  double median() const;  // of the ratios; 1 if there is no pair

 private:
  TrialRules rules_;
  std::vector<double> ratios_;
  double faster_ = 0, slower_ = 0;  // log likelihood ratios of the two sign tests
  bool is_faster_ = false, is_slower_ = false;
};

}  // namespace lathe::runtime
