// Kernels without a recipe: general rules and neighbours, at most 64 measurements, against the best that the recipe
// finds on the same operator written for it. Prints one line per Kernel: share of the recipe's best, and by the
// screening's samples alone after 1, 8, 16, 32 and 64 measurements; then the moves that occurred.
//   no_recipe [name...]
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "bench/search/move_counts.h"
#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "runtime/measure/evaluation.h"
#include "search/model/neighbours.h"
#include "search/sketches/generic_schedules.h"

namespace lathe {
namespace {

constexpr int kMeasurements = 64, kRound = 12, kStart = 28;

struct Task {
  const char* name;
  ir::SymbolValues dims;
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

// One Kernel and what was measured of it, as shares of its first Schedule's time around then.
class Session {
 public:
  Session(const std::string& kernel, const Task& task) {
    runtime::EvaluateTask job;
    job.kernel_text = kernel;
    job.dims = task.dims;
    auto begun = runtime::begin_evaluation(std::move(job), leaves_);
    if (begun.ok()) evaluation_ = std::move(*begun);
  }

  void screen(const std::vector<search::Schedule>& list) {
    std::vector<runtime::CandidateSpec> batch;
    for (const search::Schedule& s : list) batch.push_back({search::to_text(s), true});
    const auto results = evaluation_ ? evaluation_->screen(batch)
                                     : ir::Result<std::vector<runtime::CandidateResult>>(ir::invalid("no session"));
    if (!results.ok()) return;
    using search::Outcome;
    for (size_t i = 0; i < results->size(); ++i) {
      const runtime::CandidateResult& c = (*results)[i];
      refused += c.outcome == Outcome::refused;
      wrong += c.outcome == Outcome::wrong;
      all_.push_back(c);
      if (c.outcome == Outcome::wrong) fmt::print("wrong: {}\n{}", c.reason, batch[i].schedule);
      if (c.outcome != Outcome::timed) continue;
      share.push_back(c.us(false) / c.reference_us);
      texts.push_back(batch[i].schedule);
    }
  }
  // Microseconds of the first Schedule and of the best, by all the samples a decision takes.
  std::pair<double, double> decide() {
    const auto final = evaluation_->decide(runtime::choose_finalists(all_, false), -1);
    if (!final.ok() || final->winner < 0) return {0, 0};
    return {final->default_us, final->best_us};
  }
  double best_of(size_t n) const {
    return *std::min_element(share.begin(), share.begin() + static_cast<std::ptrdiff_t>(std::min(n, share.size())));
  }
  const std::string& best_text() const {
    return texts[static_cast<size_t>(std::min_element(share.begin(), share.end()) - share.begin())];
  }

  std::vector<double> share;  // of those timed, in order
  std::vector<std::string> texts;
  int refused = 0, wrong = 0;

 private:
  runtime::LeafCache leaves_{{}, nullptr, nullptr};
  std::unique_ptr<runtime::Evaluation> evaluation_;
  std::vector<runtime::CandidateResult> all_;
};

search::Problem problem_of(const std::string& text, const Task& task) {
  search::Problem problem;
  problem.kernel = ir::parse_kernel(text).value();
  problem.dims = task.dims;
  return problem;
}

void run(const Task& task, bench::MoveCounts* moves) {
  const std::string root = LATHE_SOURCE_DIR;
  const std::string user = read_file(fmt::format("{}/tests/search/no_recipe/{}.lir", root, task.name));
  const std::string known = read_file(fmt::format("{}/bench/no_recipe/{}.lir", root, task.name));
  const ir::Target target = jit::host_target();
  Session recipe(known, task), own(user, task);
  recipe.screen(search::candidates(problem_of(known, task), target, kMeasurements));

  const search::Problem problem = problem_of(user, task);
  std::set<std::string> seen;
  std::vector<search::Schedule> list = search::generic_schedules(problem, target, kStart);
  for (const search::Schedule& s : list) seen.insert(to_text(s));
  own.screen(list);
  for (uint64_t round = 0; round < 8 && own.share.size() < kMeasurements && !own.share.empty(); ++round) {
    const search::Schedule best = search::parse_schedule(own.best_text()).value();
    list.clear();
    const size_t left = std::min<size_t>(kRound, kMeasurements - own.share.size());
    for (search::Neighbour& n : search::neighbours(problem, target, best, kRound * 3, round)) {
      if (list.size() < left && seen.insert(to_text(n.schedule)).second) list.push_back(std::move(n.schedule));
    }
    if (list.empty()) break;
    own.screen(list);
  }
  if (recipe.share.empty() || own.share.empty()) return;
  for (const std::string& text : own.texts) moves->add(search::parse_schedule(text).value(), text == own.best_text());
  const auto [recipe_first, recipe_best] = recipe.decide();
  const auto [own_first, own_best] = own.decide();
  fmt::print(
      "{:10} recipe {:8.2f} us of {:2} timed; own {:8.2f} us of {:2} timed ({} refused, {} wrong), share {:.3f}; "
      "screened:",
      task.name, recipe_best, recipe.share.size(), own_best, own.share.size(), own.refused, own.wrong,
      recipe_best / own_best);
  for (const size_t n : {1, 8, 16, 32, 64}) fmt::print(" {:.3f}", recipe_best / (own.best_of(n) * own_first));
  fmt::print("\n");
  std::fflush(stdout);
}

}  // namespace
}  // namespace lathe

int main(int argc, char** argv) {
  const std::set<std::string> wanted(argv + 1, argv + argc);
  lathe::bench::MoveCounts moves;
  for (const lathe::Task& task : lathe::kTasks) {
    if (wanted.empty() || wanted.count(task.name)) lathe::run(task, &moves);
  }
  fmt::print("{}", moves.text());
}
