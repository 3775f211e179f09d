// See trial_judge.h.
#include "runtime/live/trial_judge.h"

#include <algorithm>
#include <cstddef>

namespace lathe::runtime {
namespace {

// p0 .5 against p1 .8 with errors of 1 % and 5 %; a lost cause starts anew, for the test may go on as long as there are
// calls.
constexpr double kWin = 0.470, kLoss = -0.916, kAccept = 4.55, kReject = -2.99;

void step(bool won, double* sum, bool* accepted) {
  *sum = std::max(*sum + (won ? kWin : kLoss), kReject);
  *accepted |= *sum >= kAccept;
}

}  // namespace

void TrialJudge::add(double candidate_ns, double incumbent_ns) {
  if (!(candidate_ns > 0) || !(incumbent_ns > 0)) return;
  const double ratio = candidate_ns / incumbent_ns;
  ratios_.push_back(ratio);
  step(ratio < rules_.win, &faster_, &is_faster_);
  step(ratio > rules_.lose, &slower_, &is_slower_);
}

double TrialJudge::median() const {
  if (ratios_.empty()) return 1;
  std::vector<double> sorted = ratios_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

TrialVerdict TrialJudge::verdict() const {
  const double ratio = median();
  if (pairs() >= rules_.least_pairs && ratio > rules_.lose && (is_slower_ || calls() >= rules_.least_calls))
    return TrialVerdict::worse;
  if (calls() < rules_.least_calls) return TrialVerdict::undecided;
  if (is_faster_ && ratio < rules_.win) return TrialVerdict::better;
  return calls() >= rules_.most_calls ? TrialVerdict::tie : TrialVerdict::undecided;
}

}  // namespace lathe::runtime
