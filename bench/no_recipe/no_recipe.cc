// Kernels without a recipe: general rules and neighbours, at most 64 measurements, against the best that the recipe finds on the same
// operator written for it. Prints one line per Kernel: share of the recipe's best after 1, 8, 16, 32 and 64 measurements.
//   no_recipe [name...]
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "ir/text_form.h"
#include "jit/host_cpu.h"
#include "runtime/evaluate.h"
#include "search/neighbours.h"

namespace lathe {
namespace {

constexpr int kMeasurements = 64, kRound = 12, kStart = 28;

struct Task {
  const char* name;
  std::map<std::string, int64_t> dims;
};
const Task kTasks[] = {{"matmul", {{"M", 128}}},
                       {"softmax", {{"R", 128}, {"C", 896}}},
                       {"layernorm", {{"R", 128}, {"C", 896}}},
                       {"rmsnorm", {{"R", 128}, {"C", 896}}},
                       {"transpose", {{"P", 896}, {"Q", 512}}},
                       {"chain", {{"R", 128}, {"C", 896}}}};

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Measured {
  std::vector<double> us;  // in the order measured
  std::vector<std::string> texts;
  int refused = 0, wrong = 0;
  std::string first_reason;
  int best() const { return static_cast<int>(std::min_element(us.begin(), us.end()) - us.begin()); }
  double best_of(size_t n) const { return *std::min_element(us.begin(), us.begin() + static_cast<std::ptrdiff_t>(std::min(n, us.size()))); }
};

// Every time is taken beside the same first Schedule and scaled to it, so rounds compare.
void measure(const std::string& kernel, const Task& task, const std::vector<search::Schedule>& list, Measured& out) {
  runtime::EvaluateTask job;
  job.kernel_text = kernel;
  job.dims = {task.dims.begin(), task.dims.end()};
  for (const search::Schedule& s : list) job.schedules.push_back(search::to_text(s));
  const bool again = !out.texts.empty();
  if (again) job.schedules.insert(job.schedules.begin(), out.texts[0]);
  runtime::LeafCache leaves({}, nullptr, nullptr);
  const ir::Result<runtime::EvaluateResult> r = runtime::evaluate_in_process(job, leaves, {});
  if (!r.ok()) {
    fmt::print("{}: {}\n", task.name, r.status().to_string());
    return;
  }
  using Outcome = runtime::CandidateResult::Outcome;
  const double scale = again && r->candidates[0].outcome == Outcome::timed ? out.us[0] / r->candidates[0].median_us : 1;
  for (size_t i = again; i < r->candidates.size(); ++i) {
    const runtime::CandidateResult& c = r->candidates[i];
    out.refused += c.outcome == Outcome::refused;
    out.wrong += c.outcome == Outcome::wrong;
    if (c.outcome == Outcome::wrong) fmt::print("WRONG {}\n{}\n", c.reason, job.schedules[i]);
    if (c.outcome == Outcome::wrong || (c.outcome == Outcome::refused && out.first_reason.empty())) out.first_reason = c.reason;
    if (c.outcome != Outcome::timed) continue;
    out.us.push_back(c.median_us * scale);
    out.texts.push_back(job.schedules[i]);
  }
}

search::Problem problem_of(const std::string& text, const Task& task) {
  search::Problem problem;
  problem.kernel = ir::parse_kernel(text).value();
  problem.dims = task.dims;
  return problem;
}

void run(const Task& task) {
  const std::string root = LATHE_SOURCE_DIR;
  const std::string user = read_file(fmt::format("{}/tests/search/no_recipe/{}.lir", root, task.name));
  const std::string known = read_file(fmt::format("{}/bench/no_recipe/{}.lir", root, task.name));
  const ir::Target target = jit::host_target();
  Measured recipe, own;
  measure(known, task, search::candidates(problem_of(known, task), target, kMeasurements), recipe);

  const search::Problem problem = problem_of(user, task);
  std::set<std::string> seen;
  std::vector<search::Schedule> list = search::generic_schedules(problem, target, kStart);
  for (const search::Schedule& s : list) seen.insert(to_text(s));
  measure(user, task, list, own);
  for (uint64_t round = 0; round < 8 && own.us.size() < kMeasurements && !own.us.empty(); ++round) {
    const search::Schedule best = search::parse_schedule(own.texts[static_cast<size_t>(own.best())]).value();
    list.clear();
    const size_t left = std::min<size_t>(kRound, kMeasurements - own.us.size());
    for (search::Neighbour& n : search::neighbours(problem, target, best, kRound * 3, round)) {
      if (list.size() < left && seen.insert(to_text(n.schedule)).second) list.push_back(std::move(n.schedule));
    }
    if (list.empty()) break;
    measure(user, task, list, own);
  }
  if (recipe.us.empty() || own.us.empty()) return;
  const double best = recipe.us[static_cast<size_t>(recipe.best())];
  fmt::print("{:10} recipe {:9.2f} us of {:2}; own {:9.2f} us of {:2} ({} refused, {} wrong); share", task.name, best, recipe.us.size(),
             own.us[static_cast<size_t>(own.best())], own.us.size(), own.refused, own.wrong);
  for (const size_t n : {1, 8, 16, 32, 64}) fmt::print(" {:.3f}", best / own.best_of(n));
  fmt::print("\n");
  if (!own.first_reason.empty()) fmt::print("           {}\n", own.first_reason);
  std::fflush(stdout);
}

}  // namespace
}  // namespace lathe

int main(int argc, char** argv) {
  const std::set<std::string> wanted(argv + 1, argv + argc);
  for (const lathe::Task& task : lathe::kTasks) {
    if (wanted.empty() || wanted.count(task.name)) lathe::run(task);
  }
}
