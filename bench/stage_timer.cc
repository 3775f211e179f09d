// See stage_timer.h.
#include "bench/stage_timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace lathe::bench {
namespace {

// Reading from memory varies from call to call by a quarter: a cold sample takes in several.
constexpr double kSampleUs = 50, kColdSampleUs = 500;

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

StageTimer::StageTimer(const search::Problem& problem, const ir::Target& target) : problem_(problem), target_(target) {
  if (problem.threads <= 1) return;
  runtime::TeamOptions options;
  options.threads = problem.threads;
  team_ = std::make_unique<runtime::ThreadTeam>(options);
}

ir::Status StageTimer::bind(const std::vector<const runtime::Stage*>& stages) {
  const runtime::RotatingOptions rotating{{problem_.dims.begin(), problem_.dims.end()}, problem_.threads, problem_.cold, target_.l3_bytes};
  LATHE_ASSIGN(operands_, runtime::RotatingOperands::create(problem_.kernel, rotating, team_.get()));
  for (const runtime::Stage* s : stages) LATHE_RETURN_IF_ERROR(operands_->add(*s).status());
  repeats_.assign(stages.size(), 0);
  return {};
}

double StageTimer::sample_us() const { return problem_.cold ? kColdSampleUs : kSampleUs; }

double StageTimer::timed(size_t stage, int repeats) {
  if (problem_.cold) operands_->evict(repeats);
  const double from = now_us();
  for (int n = 0; n < repeats; ++n) operands_->call(static_cast<int>(stage));
  return (now_us() - from) / repeats;
}

double StageTimer::calibrate(size_t stage) {
  double once = timed(stage, 1);
  for (int n = 0; n < 2 && once < 1000; ++n) once = std::min(once, timed(stage, 1));
  repeats_[stage] = static_cast<int>(std::clamp(std::ceil(sample_us() / std::max(once, 0.05)), 1.0, 1000.0));
  return once;
}

}  // namespace lathe::bench
