// See device_timing.h.
#include "runtime/cuda/measure/device_timing.h"

#include <algorithm>

#include "runtime/measure/timing.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

constexpr int kWarmUps = 3, kMostRepeats = 9, kSamples = 3, kRounds = 9;
constexpr double kSampleUs = 20'000;  // and of a graph; where one launch is longer, each has one

}  // namespace

Result<double> DeviceTiming::sample(int number) {
  const Candidate& candidate = candidates_[static_cast<size_t>(number)];
  if (before_) before_(number);
  std::vector<double> times;
  for (int i = 0; i < candidate.repeats; ++i) {
    LATHE_ASSIGN(const double us, session_->time(*candidate.graph));
    times.push_back(us);
  }
  return median_of(times);
}

Result<int> DeviceTiming::add(const DeviceSession::Launch& launch) {
  Candidate made;
  double once_us = 0;
  const auto warm_up = [&]() -> Status {
    for (int i = 0; i < kWarmUps && once_us < kSampleUs; ++i) {
      LATHE_ASSIGN(const double us, session_->time(*made.graph));
      once_us = us * made.graph->launches();
    }
    return {};
  };
  LATHE_ASSIGN(made.graph, session_->record(launch, 1));
  LATHE_RETURN_IF_ERROR(warm_up());
  const int launches = std::clamp(static_cast<int>(kSampleUs / std::max(once_us, 1.0)), 1, DeviceSession::kLaunches);
  if (launches > 1) {
    LATHE_ASSIGN(made.graph, session_->record(launch, launches));
    LATHE_RETURN_IF_ERROR(warm_up());
  }
  made.repeats = std::clamp(static_cast<int>(kSampleUs / std::max(once_us, 1.0)), 1, kMostRepeats);
  candidates_.push_back(std::move(made));
  return static_cast<int>(candidates_.size()) - 1;
}

Result<DeviceTiming::Row> DeviceTiming::screen(int candidate) {
  Row out;
  std::vector<double> reference;
  for (int i = 0; i < kSamples; ++i) {
    if (candidate != 0) {
      LATHE_ASSIGN(const double beside, sample(0));
      reference.push_back(beside);
    }
    LATHE_ASSIGN(const double us, sample(candidate));
    out.samples.push_back(us);
  }
  out.reference_us = median_of(candidate == 0 ? out.samples : reference);
  return out;
}

Result<DeviceTiming::Decision> DeviceTiming::decide(const std::vector<int>& finalists) {
  Decision out;
  std::vector<double> reference;
  std::vector<std::vector<double>> shares(finalists.size());  // of the reference's time in the same round
  for (int round = 0; round < kRounds; ++round) {
    LATHE_ASSIGN(const double base, sample(0));
    reference.push_back(base);
    for (size_t i = 0; i < finalists.size(); ++i) {
      LATHE_ASSIGN(const double us, sample(finalists[i]));
      shares[i].push_back(us / std::max(base, 1e-9));
    }
  }
  out.samples = kRounds * static_cast<int>(finalists.size() + 1);
  out.reference_us = median_of(reference);
  for (size_t i = 0; i < finalists.size(); ++i) {
    std::sort(shares[i].begin(), shares[i].end());
    out.finalists.push_back({finalists[i], out.reference_us * median_of(shares[i]), 100 * (1 - shares[i][kRounds - 2]),
                             100 * (1 - shares[i][1])});
  }
  std::stable_sort(out.finalists.begin(), out.finalists.end(),
                   [](const Finalist& a, const Finalist& b) { return a.us < b.us; });
  return out;
}

}  // namespace lathe::runtime
