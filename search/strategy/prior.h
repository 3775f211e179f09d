// What is expected of candidates before the first measurement of a task: by the analytic estimate, and the ranker where
// there is a trusted one. Orders candidates; a constant common to all of them does not matter. Pure.
#pragma once
#include <span>
#include <vector>

#include "search/strategy/strategy.h"
#include "search/strategy/surrogate.h"

namespace lathe::search {

// log2 share for each point of the space.
std::vector<double> prior_shares(const SearchProblem& problem, std::span<const int> points);

// Beliefs of the task at hand before its first measurement, for candidates with those priors.
Surrogate make_beliefs(const SearchProblem& problem);

struct MeasuredPoint {
  int point = -1;  // of the space
  double us = 0;
};
// What is believed of measured points once all of them are: log2 of the fastest time over their own. A time that
// neither prior nor neighbours support is taken for noise in part: who is to be timed again is chosen by this, not by
// one reading.
std::vector<double> believed(const SearchProblem& problem, std::span<const MeasuredPoint> measured);

}  // namespace lathe::search
