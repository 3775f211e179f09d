// Is one of two ways to do a thing faster, said from readings whose order was drawn at random: had both the same speed,
// every other order would have been as likely, whatever the machine did meanwhile. So the share of all orders in which
// the candidate comes out at least as well bounds the chance of a false claim, exactly. Pure: no clock, no randomness
// of its own.
#pragma once
#include <vector>

namespace lathe::runtime {

struct Reading {
  double us = 0;           // more than 0
  bool candidate = false;  // else of the one it is compared with
  int stage = 0;           // the order was drawn anew within each stage
};

// In the order they were taken. The least readings count most (they are the least disturbed), each against the least of
// its neighbours in time (slow drifts go). margin: the candidate's readings are taken for that much longer, 1.01: it
// has to be faster by 1 %. 1 without readings of both.
double rank_test(const std::vector<Reading>& readings, double margin);

// A reading at each of several placements (sample.h).
struct PlacedReading {
  std::vector<double> us;
  bool candidate = false;
  int stage = 0;
};
// Their means without the placement at which the candidate gains most: what is won there alone is not won. Of both, and
// of two placements at least.
std::vector<Reading> without_best(const std::vector<PlacedReading>& readings);

}  // namespace lathe::runtime
