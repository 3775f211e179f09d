// See service_pairs.h.
#include "bench/live/service_pairs.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "bench/live/stage_timer.h"
#include "runtime/compile/compiler.h"
#include "runtime/measure/timing.h"

namespace lathe::bench {
namespace {

using ir::Result;

constexpr int kPairs = 12;

Result<std::vector<double>> measure(const search::Problem& problem, const ir::Target& target,
                                    const std::string& reference, const std::string& candidate, int placements) {
  runtime::LeafCache leaves({}, nullptr, nullptr);
  std::vector<runtime::Stage> stages;
  for (const std::string& text : {reference, candidate}) {
    LATHE_ASSIGN(const search::Schedule schedule, search::parse_schedule(text));
    LATHE_ASSIGN(runtime::Stage stage,
                 runtime::build_stage(problem.kernel, schedule, target, leaves, {.portable = false}));
    stages.push_back(std::move(stage));
  }
  StageTimer timer(problem, target);
  std::vector<double> out;
  for (int p = 0; p < placements; ++p) {
    LATHE_RETURN_IF_ERROR(timer.bind({&stages[0], &stages[1]}));
    // The first is one that searches have, too: hosts that allocate each operand by itself have it.
    timer.place(p == 0 ? 0 : runtime::kPlacements + p);
    timer.calibrate(0);
    timer.calibrate(1);
    std::vector<double> ratios;
    for (int n = 0; n < kPairs; ++n) {
      timer.await_cores();
      double us[2];
      for (const size_t who : {static_cast<size_t>(n % 2), static_cast<size_t>(1 - n % 2)}) {
        timer.warm(who);
        us[who] = timer.sample(who);
      }
      ratios.push_back(us[1] / us[0]);
    }
    out.push_back(runtime::median_of(std::move(ratios)));
  }
  return out;
}

}  // namespace

Result<std::vector<double>> service_pairs(const search::Problem& problem, const ir::Target& target,
                                          const std::string& reference, const std::string& candidate, int placements) {
  int ends[2];
  if (pipe(ends) != 0) return ir::internal_error("no pipe");
  const pid_t pid = fork();
  if (pid == 0) {
    const auto ratios = measure(problem, target, reference, candidate, placements);
    if (!ratios.ok()) fmt::print(stderr, "{}\n", ratios.status().to_string());
    const size_t bytes = ratios.ok() ? ratios->size() * sizeof(double) : 0;
    _exit(bytes > 0 && write(ends[1], ratios->data(), bytes) == static_cast<ssize_t>(bytes) ? 0 : 1);
  }
  close(ends[1]);
  std::vector<double> out(static_cast<size_t>(placements));
  size_t got = 0;
  const size_t wanted = out.size() * sizeof(double);
  for (ssize_t n = 1; pid > 0 && got < wanted && n > 0; got += static_cast<size_t>(std::max<ssize_t>(n, 0))) {
    n = read(ends[0], reinterpret_cast<char*>(out.data()) + got, wanted - got);
  }
  close(ends[0]);
  int status = 0;
  if (pid > 0) waitpid(pid, &status, 0);
  if (pid < 0 || status != 0 || got != wanted) {
    return WIFSIGNALED(status) ? ir::internal_error("the process that compares died of signal {}", WTERMSIG(status))
                               : ir::internal_error("the process that compares did not finish");
  }
  return out;
}

}  // namespace lathe::bench
