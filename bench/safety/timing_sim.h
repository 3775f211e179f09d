// Candidates of stated speed on a clock of their own, with noise: what drives the real timing in tests and in the
// safety campaign. Models: quiet; busy (drift 1.2 %, 15 % of the samples longer by an exponential of mean 0.5), hostile
// (3 %, 35 %, 0.8).
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include "runtime/measure/timing.h"

namespace lathe::test {

struct NoiseModel {
  double drift = 0;   // of a slow random walk around 1, standard deviation
  double bursts = 0;  // share of the calls
  double burst = 0;   // mean of what a burst adds, relative
  static NoiseModel busy() { return {0.012, 0.15, 0.5}; }
  static NoiseModel hostile() { return {0.03, 0.35, 0.8}; }
};

struct SimulatedBench {
  std::vector<double> us;
  std::mt19937_64 random{1};
  NoiseModel noise;
  double sample_us = 1e-9;    // a sample is one call, unless the options say otherwise; 0: as in earnest
  size_t at_once = SIZE_MAX;  // candidates given to one call of screen()
  double now_us = 1e6;
  double level = 0;  // of the drift
  int placement = 0;
  std::function<double(int candidate, int placement)> at;  // times more there; empty: none
  std::function<double(double)> clock = [](double t) { return t; };

  struct Result {
    std::vector<runtime::TimingRow> rows;
    runtime::TimingDecision decision;
    int further = 0;
  };

  double noisy(double t) {
    std::normal_distribution<double> normal(0, 1);
    std::uniform_real_distribution<double> uniform(0, 1);
    std::exponential_distribution<double> more(1);
    // An auto-regressive walk that forgets within about fifty samples.
    constexpr double kKeep = 0.98;
    level = kKeep * level + std::sqrt(1 - kKeep * kKeep) * noise.drift * normal(random);
    const double jitter = 0.002 * std::abs(normal(random)) * (noise.drift > 0);
    return t * (1 + level + jitter) * (1 + (uniform(random) < noise.bursts ? noise.burst * more(random) : 0));
  }

  // Screens all, then decides among the best four.
  Result run(runtime::TimingOptions options = {}, int incumbent = -1) {
    if (options.min_sample_us <= 0) options.min_sample_us = sample_us;
    options.now_ns = [this] { return static_cast<int64_t>(clock(now_us) * 1e3); };
    options.place = [this](int p) { placement = p; };
    runtime::TimingSession session(options);
    std::vector<int> all;
    for (const double t : us) {
      const int number = static_cast<int>(all.size());
      all.push_back(session.add([this, t, number] { now_us += noisy(at ? t * at(number, placement) : t); }));
    }
    for (std::span<const int> left = all; !left.empty();) {
      const size_t n = std::min(at_once, left.size());
      session.screen(left.first(n));
      left = left.subspan(n);
    }
    std::vector<std::pair<double, int>> ranking;
    for (size_t i = 1; i < us.size(); ++i) {
      if (const double s = session.score(static_cast<int>(i)); s > 0) ranking.emplace_back(s, static_cast<int>(i));
    }
    std::sort(ranking.begin(), ranking.end());
    std::vector<runtime::Finalist> finalists;
    for (size_t n = 0; n < std::min<size_t>(4, ranking.size()); ++n)
      finalists.push_back({ranking[n].second, 100, fmt::format("c{}", ranking[n].second)});
    Result out;
    if (!us.empty()) out.decision = session.decide(std::move(finalists), incumbent);
    for (const int i : all) out.rows.push_back(session.row(i));
    out.further = session.further();
    return out;
  }
};

}  // namespace lathe::test
