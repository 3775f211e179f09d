// What is expected of candidates before the first measurement of a task: by the analytic estimate, the ranker where
// there is a trusted one, and what both left unexplained in near tasks. Orders candidates; a constant common to all of
// them does not matter. Pure.
#pragma once
#include <span>
#include <vector>

#include "search/strategy/strategy.h"
#include "search/strategy/surrogate.h"

namespace lathe::search {

// log2 share for each point of the space, as what near tasks showed is left out of it. ranker: the model has a say, if
// it is trusted; near: for beliefs that learned from near tasks.
std::vector<double> prior_shares(const SearchProblem& problem, std::span<const int> points, bool ranker = true,
                                 bool near = true);

// Beliefs of the task at hand before its first measurement, for candidates with those priors. near: the rows of the
// nearest tasks in history are learned.
Surrogate make_beliefs(const SearchProblem& problem, bool ranker = true, bool near = true);

struct MeasuredPoint {
  int point = -1;  // of the space
  double us = 0;
};
// What is believed of measured points once all of them are: log2 of the fastest time over their own. A time that
// neither prior nor neighbours support is taken for noise in part: who is to be timed again is chosen by this, not by
// one reading.
std::vector<double> believed(const SearchProblem& problem, std::span<const MeasuredPoint> measured);

// What can be counted on of points of a task that was never measured, by its near tasks: log2 share of the default's
// speed, less doubt.
std::vector<double> cautious_shares(const SearchProblem& problem, std::span<const int> points);

// What to serve of such a task: the point that can be counted on most, if that is more than the default; without
// history the default.
int best_guess(const SearchProblem& problem);

}  // namespace lathe::search
