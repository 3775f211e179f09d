// What it costs to run a phase of a call on several threads: Lathe's spin team (runtime/walk/threads.h) beside oneTBB's
// parallel_for in a task_arena, turn by turn, for parts of a given length. A part is arithmetic in registers, so that
// memory decides nothing. Two settings: calls one after another, and calls with a pause before each, in which a
// worker may fall asleep.
//
//   build/release/bench/thread_team --threads 2
#include <fmt/format.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/walk/threads.h"

namespace {

using lathe::runtime::now_ns;

volatile double sink = 0;

// About four cycles a step: a chain of additions.
void work(int64_t steps) {
  double x = 1;
  for (int64_t i = 0; i < steps; ++i) {
    x += 1e-9;
    asm volatile("" : "+x"(x));
  }
  sink = x;
}

int64_t steps_of(double us) {
  constexpr int64_t kSteps = 1'000'000;
  int64_t best = INT64_MAX;
  for (int i = 0; i < 5; ++i) {
    const int64_t begin = now_ns();
    work(kSteps);
    best = std::min(best, now_ns() - begin);
  }
  return std::max<int64_t>(1, static_cast<int64_t>(us * 1e3 * kSteps / static_cast<double>(best)));
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<long>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

void pause_us(int64_t us) {
  if (us == 0) return;
  const int64_t until = now_ns() + us * 1000;
  while (now_ns() < until) {
  }
}

// us of the median call of one block.
template <class Phase>
double block(int calls, int64_t pause, Phase&& phase) {
  std::vector<double> us;
  for (int i = 0; i < calls; ++i) {
    pause_us(pause);
    const int64_t begin = now_ns();
    phase();
    us.push_back(static_cast<double>(now_ns() - begin) * 1e-3);
  }
  return median(us);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"The spin team beside oneTBB"};
  int threads = 2, rounds = 15, calls = 400;
  app.add_option("--threads", threads, "of both")->check(CLI::Range(2, 256));
  app.add_option("--rounds", rounds, "turns of each")->check(CLI::Range(1, 1000));
  app.add_option("--calls", calls, "of a turn")->check(CLI::Range(10, 100000));
  CLI11_PARSE(app, argc, argv);

  lathe::runtime::ThreadTeam team(lathe::runtime::TeamOptions{.threads = threads});
  tbb::task_arena arena(threads);
  fmt::print("{} threads; us of a call of {} equal parts, median of {} turns of {} calls\n", threads, threads, rounds,
             calls);
  fmt::print("{:>8} {:>8} {:>10} {:>10} {:>10} {:>12}\n", "part us", "pause us", "alone", "team", "oneTBB",
             "team/oneTBB");
  for (const int64_t pause : {0, 50, 1000}) {
    for (const double part : {0.5, 1.0, 2.0, 5.0, 20.0, 100.0}) {
      const int64_t steps = steps_of(part);
      const int n = pause >= 1000 ? std::max(10, calls / 10) : calls;
      std::vector<double> alone, own, tbb_us;
      for (int r = 0; r < rounds; ++r) {
        alone.push_back(block(n, pause, [&] {
          for (int i = 0; i < threads; ++i) work(steps);
        }));
        own.push_back(block(n, pause, [&] { team.parallel_for(threads, [&](int) { work(steps); }); }));
        tbb_us.push_back(block(n, pause, [&] {
          arena.execute([&] { tbb::parallel_for(0, threads, [&](int) { work(steps); }, tbb::static_partitioner()); });
        }));
      }
      fmt::print("{:8.1f} {:8} {:10.2f} {:10.2f} {:10.2f} {:12.2f}\n", part, pause, median(alone), median(own),
                 median(tbb_us), median(own) / median(tbb_us));
      std::fflush(stdout);
    }
  }
}
