// See stage_timer.h.
#include "bench/live/stage_timer.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/clock.h"
#include "runtime/measure/machine_profile.h"
#include "runtime/measure/timing.h"

namespace lathe::bench {
namespace {

// Reading from memory varies from call to call by a quarter: a cold sample takes in several.
constexpr double kSampleUs = 250, kColdSampleUs = 1000;
constexpr double kLongestMs = 20'000;

}  // namespace

StageTimer::StageTimer(const search::Problem& problem, const ir::Target& target) : problem_(problem), target_(target) {
  if (problem.threads <= 1) return;
  runtime::TeamOptions options;
  options.threads = problem.threads;
  team_ = std::make_unique<runtime::ThreadTeam>(options);
  runtime::OwnCoresOptions patient;
  patient.first_ms = patient.most_ms = kLongestMs;
  cores_ = std::make_unique<runtime::OwnCores>(team_.get(), patient);
}

ir::Status StageTimer::bind(const std::vector<const runtime::Stage*>& stages) {
  const runtime::RotatingOptions rotating{problem_.dims, problem_.threads, problem_.cold, runtime::cold_bytes(target_)};
  LATHE_ASSIGN(operands_, runtime::RotatingOperands::create(problem_.kernel, rotating, team_.get()));
  for (const runtime::Stage* s : stages) LATHE_RETURN_IF_ERROR(operands_->add(*s).status());
  repeats_.assign(stages.size(), 0);
  at_once_.assign(stages.size(), 1);
  return {};
}

double StageTimer::sample_us() const { return problem_.cold ? kColdSampleUs : kSampleUs; }

double StageTimer::timed(size_t stage, int repeats) {
  if (problem_.cold) operands_->evict(repeats);
  return runtime::sampled_us(
      repeats, std::min(repeats, at_once_[stage]), [&] { operands_->call(static_cast<int>(stage)); }, runtime::now_ns);
}

double StageTimer::calibrate(size_t stage) {
  double once = timed(stage, 1);
  for (int n = 0; n < 2 && once < 1000; ++n) once = std::min(once, timed(stage, 1));
  once = std::max(once, 0.05);
  repeats_[stage] = static_cast<int>(std::clamp(std::ceil(sample_us() / once), 1.0, 5000.0));
  at_once_[stage] = runtime::calls_at_once(once);
  return once;
}

}  // namespace lathe::bench
