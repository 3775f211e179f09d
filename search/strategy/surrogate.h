// What measurements say about the candidates not yet measured: a Gaussian process on what a prior leaves unexplained,
// near knobs being alike, the level of the task unknown. Exact, deterministic, for at most some hundred measurements.
// Knows no strategy.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "search/strategy/space.h"

namespace lathe::search {

// log2 of share: of the best so far for Surrogate::of, higher is faster.
struct Belief {
  double mean = 0, sigma = 0;
  // Expected share gained over the best so far, in log2.
  double expected_gain() const;
};

struct SurrogateParams {
  double spread = 0.2;  // of what the prior leaves unexplained, log2
  double noise = 0.03;  // of a measurement, log2
  double reach = 3;     // knob distance at which likeness falls to 1/e
};

class Surrogate {
 public:
  explicit Surrogate(const SurrogateParams& params) : params_(params) {}
  // prior: log2 share expected without measurements; a constant common to all candidates does not matter.
  int add(const SpacePoint& point, double prior);
  // The time of a candidate that was added.
  void observe(int candidate, double us);
  // Forgets all but the first n observations.
  void forget_after(int n);
  int observations() const { return static_cast<int>(observed_.size()); }
  // Without observations: the prior, sigma 0.
  Belief of(int candidate) const;

 private:
  struct Candidate {
    std::vector<double> knobs;    // coded, in the order of names_
    std::vector<uint64_t> moves;  // hashes of the moves beyond the recipe, ascending
    double prior = 0;
    mutable std::vector<double> solved;  // factor_ \ its covariances with what was observed, as far as it was asked for
  };
  double covariance(const Candidate& a, const Candidate& b) const;

  SurrogateParams params_;
  std::vector<std::string> names_;
  std::vector<Candidate> candidates_;
  std::vector<int> observed_;
  std::vector<double> speed_;  // -log2 of the observed times
  double zero_ = 0;            // what the prior leaves of the first one
  double best_ = 0;
  std::vector<std::vector<double>> factor_;  // lower triangle of the observations' covariance
  std::vector<double> left_;                 // factor_ \ what the prior leaves of them
};

}  // namespace lathe::search
