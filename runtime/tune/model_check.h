// Whether the wins of single operators are a win of the whole: the calls of a workload in their order, all with their
// defaults against all as tuned, interleaved; what costs the whole is found by bisection and named. Knows nothing of
// kernels; the clock is in the calls.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lathe::runtime {

// One operator at one shape. Each call runs it once and returns the microseconds it took.
struct ModelCall {
  double weight = 1;          // calls of it in one run of the model
  bool tuned_differs = true;  // else both are the same body
  std::function<double()> by_default, tuned;
};

struct ModelCheckRules {
  int pairs = 9;        // samples of each kind per comparison
  int repeats = 1;      // runs of the model per sample
  double drift = 0.03;  // default runs at both ends further apart: the comparison says nothing, it is taken again
  int retries = 2;
  double tolerance = 0.002;  // a loss smaller than this is no loss
};

struct ModelCheck {
  bool valid = false;                   // the machine held still long enough
  double default_us = 0, tuned_us = 0;  // of one weighted run; tuned: with what is kept
  double gain = 0;                      // median over the pairs of 1 - tuned / default
  std::vector<int> dropped;             // calls whose tuned body costs the whole
  int comparisons = 0;
};

ModelCheck check_model(const std::vector<ModelCall>& calls, const ModelCheckRules& rules = {});

}  // namespace lathe::runtime
