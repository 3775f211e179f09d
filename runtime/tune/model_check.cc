// See model_check.h.
#include "runtime/tune/model_check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "runtime/measure/timing.h"

namespace lathe::runtime {
namespace {

class Check {
 public:
  Check(const std::vector<ModelCall>& calls, const ModelCheckRules& rules) : calls_(calls), rules_(rules) {}

  ModelCheck run() {
    std::vector<int> tuned;
    for (size_t i = 0; i < calls_.size(); ++i) {
      if (calls_[i].tuned_differs) tuned.push_back(static_cast<int>(i));
    }
    result_.valid = true;
    std::vector<int> kept = keep(tuned);
    // The halves may have been wins each and still not together.
    if (kept.size() != tuned.size() && !kept.empty() && !wins(kept)) kept.clear();
    for (const int i : tuned) {
      if (std::find(kept.begin(), kept.end(), i) == kept.end()) result_.dropped.push_back(i);
    }
    if (kept.empty()) {
      result_.gain = 0;
      result_.tuned_us = result_.default_us;
    }
    return result_;
  }

 private:
  // One sample: runs of the model with `tuned` of the calls as tuned.
  double pass(const std::vector<int>& tuned) {
    double us = 0;
    for (int n = 0; n < std::max(rules_.repeats, 1); ++n) us += once(tuned);
    return us / std::max(rules_.repeats, 1);
  }

  double once(const std::vector<int>& tuned) {
    double us = 0;
    size_t at = 0;
    for (size_t i = 0; i < calls_.size(); ++i) {
      const bool use = at < tuned.size() && tuned[at] == static_cast<int>(i);
      at += use;
      us += calls_[i].weight * (use ? calls_[i].tuned() : calls_[i].by_default());
    }
    return us;
  }

  // Does the model lose nothing with these calls tuned? What cannot be said counts as no loss.
  bool wins(const std::vector<int>& tuned) {
    for (int attempt = 0; attempt <= rules_.retries; ++attempt) {
      ++result_.comparisons;
      pass(tuned);
      std::vector<double> gains, defaults, others;
      const double first = pass({});
      for (int n = 0; n < rules_.pairs; ++n) {
        // Turns taken: a drift costs both alike.
        const double a = pass(n % 2 ? std::vector<int>{} : tuned), b = pass(n % 2 ? tuned : std::vector<int>{});
        defaults.push_back(n % 2 ? a : b);
        others.push_back(n % 2 ? b : a);
        gains.push_back(1 - others.back() / defaults.back());
      }
      const double last = pass({});
      if (std::abs(last / first - 1) > rules_.drift && attempt < rules_.retries) continue;
      result_.valid = result_.valid && std::abs(last / first - 1) <= rules_.drift;
      result_.default_us = median_of(defaults);
      result_.tuned_us = median_of(others);
      result_.gain = median_of(gains);
      break;
    }
    return result_.gain >= -rules_.tolerance;
  }

  std::vector<int> keep(const std::vector<int>& tuned) {
    if (tuned.empty() || wins(tuned)) return tuned;
    if (tuned.size() == 1) return {};
    // Halves of about equal weight.
    double total = 0, sum = 0;
    for (const int i : tuned) total += calls_[static_cast<size_t>(i)].weight;
    size_t middle = 0;
    while (middle + 1 < tuned.size() && (middle == 0 || sum < total / 2))
      sum += calls_[static_cast<size_t>(tuned[middle++])].weight;
    std::vector<int> kept = keep({tuned.begin(), tuned.begin() + static_cast<std::ptrdiff_t>(middle)});
    const std::vector<int> second = keep({tuned.begin() + static_cast<std::ptrdiff_t>(middle), tuned.end()});
    kept.insert(kept.end(), second.begin(), second.end());
    return kept;
  }

  const std::vector<ModelCall>& calls_;
  const ModelCheckRules& rules_;
  ModelCheck result_;
};

}  // namespace

ModelCheck check_model(const std::vector<ModelCall>& calls, const ModelCheckRules& rules) {
  if (calls.empty()) return {true, 0, 0, 0, {}, 0};
  return Check(calls, rules).run();
}

}  // namespace lathe::runtime
