// See evaluate.h.
#include "runtime/measure/evaluate.h"

#include <algorithm>

#include "runtime/measure/timing.h"

namespace lathe::runtime {

using search::Outcome;

namespace {

constexpr size_t kFinalists = 4;
constexpr size_t kWholeScreening = 3;  // samples; fewer: stopped as hopeless

}  // namespace

const char* phase_name(EvaluatePhase phase) {
  constexpr const char* kNames[] = {"build", "verify", "time", "confirm"};
  return kNames[static_cast<int>(phase)];
}

const char* step_name(Step step) {
  constexpr const char* kNames[] = {"none", "V0", "V1", "V2", "V3", "after"};
  return kNames[static_cast<int>(step)];
}

double CandidateResult::us(bool cold) const {
  if (samples_us.empty()) return 0;
  return cold ? median_of(samples_us) : *std::min_element(samples_us.begin(), samples_us.end());
}

std::vector<int> choose_finalists(const std::vector<CandidateResult>& candidates, bool cold,
                                  const std::vector<double>& believed) {
  std::vector<std::pair<double, int>> ranking;
  bool reference = true;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const CandidateResult& c = candidates[i];
    if (c.outcome != Outcome::timed) continue;
    if (!reference && c.samples_us.size() >= kWholeScreening && c.reference_us > 0)
      ranking.emplace_back(believed.empty() ? c.us(cold) / c.reference_us : -believed[i], static_cast<int>(i));
    reference = false;
  }
  std::stable_sort(ranking.begin(), ranking.end());
  std::vector<int> out;
  for (size_t n = 0; n < std::min(kFinalists, ranking.size()); ++n) out.push_back(ranking[n].second);
  return out;
}

}  // namespace lathe::runtime
