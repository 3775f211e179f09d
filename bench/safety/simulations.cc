// See safety.h: the real timing on clocks of its own (bench/safety/timing_sim.h).
#include <cmath>

#include "bench/safety/safety.h"
#include "bench/safety/timing_sim.h"

namespace lathe::safety {
namespace {

using runtime::TimingOptions;
using test::NoiseModel;
using test::SimulatedBench;

using Clock = std::function<double(double)>;

// Candidates beside a default of 100 us; who wins, by how much it is slower.
void run_one(std::vector<double> us, const NoiseModel& noise, uint64_t seed, const Clock& clock, ClaimCounts* counts,
             bool contended = false) {
  SimulatedBench bench;
  bench.us = std::move(us);
  bench.random.seed(seed);
  bench.noise = noise;
  if (clock) bench.clock = clock;
  TimingOptions options;
  options.seed = seed;
  if (contended) options.contended = [] { return true; };
  const SimulatedBench::Result r = bench.run(options);
  ++counts->runs;
  counts->further_mean += (r.further - counts->further_mean) / counts->runs;
  if (r.decision.tie) return;
  ++counts->claims;
  const double slower = bench.us[static_cast<size_t>(r.decision.winner)] / bench.us[0] - 1;
  counts->slower_1_2 += slower >= 0.0099 && slower < 0.02;
  counts->slower_2_5 += slower >= 0.02 && slower <= 0.05;
  counts->slower_5 += slower > 0.05;
}

}  // namespace

SimulationReport simulate(int runs, uint64_t seed) {
  SimulationReport out;
  const std::pair<const char*, NoiseModel> models[] = {{"busy", NoiseModel::busy()},
                                                       {"hostile", NoiseModel::hostile()}};
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (const auto& [name, noise] : models) {
    for (int n = 0; n < runs; ++n) {
      const uint64_t s = random();
      run_one({100, 100, 100, 100, 100}, noise, s, {}, &out.models[std::string("a/a ") + name]);
      // All slower by 1 to 2 per cent; and a field from 1 to 15 per cent slower.
      std::vector<double> near = {100}, field = {100};
      for (int c = 0; c < 4; ++c) near.push_back(101 + uniform(random));
      for (int c = 0; c < 8; ++c) field.push_back(101 + 14 * uniform(random));
      run_one(near, noise, s + 1, {}, &out.models[std::string("1-2 % slower, ") + name]);
      run_one(field, noise, s + 2, {}, &out.models[std::string("1-15 % slower, ") + name]);
    }
    for (const bool contended : {false, true}) {
      for (const int gain : {1, 2, 5, 10, 20, 30}) {
        ClaimCounts counts;
        for (int n = 0; n < std::max(runs / 10, 50); ++n)
          run_one({100, 104, 100.0 - gain, 103, 110}, noise, random(), {}, &counts, contended);
        out.detected[std::to_string(gain) + " % faster, " + name + (contended ? ", contended" : "")] =
            static_cast<double>(counts.claims) / counts.runs;
      }
    }
  }
  for (int n = 0; n < std::max(runs / 10, 50); ++n) {
    const uint64_t s = random();
    const std::vector<double> slower = {100, 106, 110, 130, 120};
    const auto clock = [&](const char* name, const Clock& c) {
      run_one(slower, NoiseModel::busy(), s, c, &out.models[std::string("clock ") + name]);
    };
    clock("stands", [](double) { return 5.0; });
    clock("goes back", [](double t) { return -t; });
    clock("jumps back at times", [n = s % 7](double t) mutable { return ++n % 7 == 0 ? t - 1e5 : t; });
    clock("x0.3 at times", [at = 0.0, last = 1e6, generator = std::mt19937_64(s), slow = false](double t) mutable {
      if (generator() % 16 == 0) slow = !slow;
      at += (t - last) * (slow ? 0.3 : 1);
      last = t;
      return at;
    });
  }
  return out;
}

}  // namespace lathe::safety
