// What is expected of candidates before the first measurement of a task: by the ranker and the near tasks where there is a trusted one, else by
// the analytic estimate. Orders candidates; a constant common to all of them does not matter. Pure.
#pragma once
#include <span>
#include <vector>

#include "search/strategy.h"
#include "search/surrogate.h"

namespace lathe::search {

// log2 share for each point of the space. near: near tasks have a say; ranker: the model has, if it is trusted.
std::vector<double> prior_shares(const SearchProblem& problem, std::span<const int> points, bool ranker = true, bool near = true);

// The surrogate's parameters for a task, with or without a ranker's prior.
SurrogateParams surrogate_params(const SearchProblem& problem, bool ranked);

struct MeasuredPoint {
  int point = -1;  // of the space
  double us = 0;
};
// What is believed of measured points once all of them are: log2 of the fastest time over their own. A time that neither prior nor neighbours
// support is taken for noise in part: who is to be timed again is chosen by this, not by one reading.
std::vector<double> believed(const SearchProblem& problem, std::span<const MeasuredPoint> measured);

// What to serve of a task that was never measured: the point most is expected of; without a trusted ranker the winner of the nearest
// task, without history the default.
int best_guess(const SearchProblem& problem);

}  // namespace lathe::search
