// live_search TASKS: strategies in earnest on the tasks of a manifest: candidates compiled, verified and timed by the
// evaluation that the library uses, in this process. What each would serve after 1, 2, 4 .. measurements, by the
// decision that the library makes then, is judged by fresh interleaved passes over all of these picks together. History
// is the starter pack, for those that can use it.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "bench/live/service_pairs.h"
#include "bench/live/stage_timer.h"
#include "bench/live/table_builder.h"
#include "bench/search/replay.h"
#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "runtime/measure/evaluation.h"
#include "search/model/starter_pack.h"
#include "search/strategy/prior.h"

namespace lathe::bench {
namespace {

using ir::Result;
using ir::Status;

constexpr int kBatch = 4, kPasses = 80;

struct Flags {
  std::string tasks, only = ".*";
  std::vector<std::string> strategies = {"lathe"};
  int budget = 16, searches = 1, cpu = -1, service = 0, placements = runtime::kPlacements;
  bool history = true, json = false, seeds = false;
};

struct Search {
  std::string strategy;
  std::string standard;                    // the default
  std::vector<std::string> picks;          // what is decided for after each budget, as Schedules
  std::map<std::string, double> screened;  // time over the default's
  double ms = 0;                           // wall clock of the search and its last decision
  int measurements = 0, further = 0;
  const std::string& winner() const { return picks.back(); }
};

// Milliseconds since the last question.
class Lap {
 public:
  double ms() {
    const auto from = std::exchange(from_, Clock::now());
    return std::chrono::duration<double, std::milli>(from_ - from).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point from_ = Clock::now();
};

// The model of the family that the starter pack makes.
search::CostModel pack_model(const search::Problem& problem, const ir::Target& target) {
  std::vector<search::TaskRecord> records;
  for (const search::TaskRecord& r : search::starter_pack()) {
    if (r.problem.kernel.family == problem.kernel.family) records.push_back(r);
  }
  return search::train_model(records, target, search::MachineRates::assumed(target), 1);
}

class LiveTask {
 public:
  LiveTask(const MeasuredTask& task, const ir::Target& target, const Flags& flags)
      : task_(task), target_(target), flags_(flags), model_(pack_model(task.problem, target)) {}

  Result<Search> search(const std::string& strategy, uint64_t seed) {
    runtime::EvaluateTask job;
    job.kernel_text = ir::print(task_.problem.kernel);
    job.dims = task_.problem.dims;
    job.threads = task_.problem.threads;
    job.cold = task_.problem.cold;
    job.seed = seed;
    job.placements = flags_.placements;
    Search out;
    out.strategy = strategy;
    Lap lap;
    LATHE_ASSIGN(const std::unique_ptr<runtime::Evaluation> evaluation,
                 runtime::begin_evaluation(std::move(job), leaves_));
    search::RecipeSpace space(task_.problem, target_, search::MachineRates::assumed(target_));
    search::SearchProblem problem;
    problem.problem = &task_.problem;
    problem.target = &target_;
    problem.space = &space;
    problem.model = flags_.history ? &model_ : nullptr;
    problem.budget = flags_.budget;
    problem.seed = seed;
    problem.stop_early = false;
    const std::unique_ptr<search::Strategy> asked = find_strategy(strategy)->make();
    asked->start(problem);

    std::vector<runtime::CandidateResult> results;
    std::vector<std::string> texts;
    std::vector<search::MeasuredPoint> measured;
    std::vector<size_t> timed;  // numbers of these
    double base_us = 0, screening_ms = 0;
    bool more = true;
    for (const int goal : kBudgets) {
      if (goal > flags_.budget) break;
      while (more && out.measurements < goal) {
        search::Proposal proposals[kBatch];
        const int n = asked->next({proposals, static_cast<size_t>(std::min(kBatch, goal - out.measurements))});
        more = n > 0;
        std::vector<runtime::CandidateSpec> batch;
        std::vector<int> points;
        for (int i = 0; i < n; ++i) {
          const Result<search::Scheduled> scheduled = space.scheduled(proposals[i].point);
          if (!scheduled.ok()) {
            asked->tell({proposals[i].point, search::Outcome::refused, 0});
            continue;
          }
          batch.push_back({search::to_text(scheduled->schedule), true});
          points.push_back(proposals[i].point);
        }
        LATHE_ASSIGN(const std::vector<runtime::CandidateResult> told, evaluation->screen(batch));
        for (size_t i = 0; i < told.size(); ++i) {
          const runtime::CandidateResult& c = told[i];
          results.push_back(c);
          texts.push_back(batch[i].schedule);
          const bool usable = c.outcome == search::Outcome::timed && c.reference_us > 0;
          if (base_us == 0) base_us = c.reference_us;
          const double share = usable ? c.us(task_.problem.cold) / c.reference_us : 0;
          asked->tell({points[i], usable ? search::Outcome::timed : search::Outcome::refused, share * base_us});
          if (!usable) continue;
          ++out.measurements;
          measured.push_back({points[i], share * base_us});
          timed.push_back(results.size() - 1);
          out.screened[texts.back()] = share;
        }
      }
      if (out.standard.empty() && !texts.empty()) out.standard = texts[0];
      if (flags_.service > 0 && more && goal < flags_.budget) continue;
      std::vector<double> believed(results.size(), -1e9);
      const std::vector<double> of = search::believed(problem, measured);
      for (size_t i = 0; i < timed.size(); ++i) believed[timed[i]] = of[i];
      screening_ms += lap.ms();
      LATHE_ASSIGN(const runtime::FinalResult decided,
                   evaluation->decide(runtime::choose_finalists(results, task_.problem.cold, believed), -1));
      if (decided.winner < 0) return ir::unsupported("{}: nothing is right", task_.name);
      out.further = decided.further;
      out.picks.push_back(texts[static_cast<size_t>(decided.winner)]);
      out.ms = screening_ms + lap.ms();
    }
    return out;
  }

  // Share of each Schedule: the time of the best by the even passes over its own, by the odd ones, pair by pair.
  Result<std::map<std::string, double>> judge(const std::vector<Search>& searches) {
    std::map<std::string, double> share;
    for (const Search& s : searches) {
      for (const std::string& text : s.picks) share[text] = 0;
    }
    std::vector<std::unique_ptr<runtime::Stage>> stages;
    std::vector<const runtime::Stage*> bound;
    for (const auto& [text, unused] : share) {
      LATHE_ASSIGN(const search::Schedule schedule, search::parse_schedule(text));
      LATHE_ASSIGN(runtime::Stage stage,
                   runtime::build_stage(task_.problem.kernel, schedule, target_, leaves_, {.portable = false}));
      stages.push_back(std::make_unique<runtime::Stage>(std::move(stage)));
      bound.push_back(stages.back().get());
    }
    StageTimer timer(task_.problem, target_);
    LATHE_RETURN_IF_ERROR(timer.bind(bound));
    std::vector<std::vector<double>> us(stages.size());
    std::vector<size_t> order(stages.size());
    for (size_t i = 0; i < order.size(); ++i) timer.calibrate(order[i] = i);
    std::mt19937_64 random(7);
    for (int pass = 0; pass < kPasses; ++pass) {
      timer.await_cores();
      std::shuffle(order.begin(), order.end(), random);
      for (size_t i : order) {
        timer.warm(i);
        us[i].push_back(timer.sample(i));
      }
    }
    const auto half = [&](size_t i, size_t odd, size_t by) {
      std::vector<double> out;
      for (size_t p = odd; p < kPasses; p += 2) out.push_back(us[i][p] / (by < us.size() ? us[by][p] : 1));
      return median(std::move(out));
    };
    size_t reference = 0;
    for (size_t i = 1; i < us.size(); ++i) {
      if (half(i, 0, us.size()) < half(reference, 0, us.size())) reference = i;
    }
    size_t i = 0;
    for (auto& [text, s] : share) s = half(reference, 1, i++);
    return share;
  }

 private:
  const MeasuredTask& task_;
  const ir::Target& target_;
  const Flags& flags_;
  const search::CostModel model_;
  runtime::LeafCache leaves_{{}, nullptr, nullptr};
};

struct Totals {
  std::map<std::string, std::vector<std::vector<double>>> by_budget;  // by strategy, budget: log2 shares
  std::vector<double> ms;                                             // of the default strategy
  int pairs = 0, differ = 0;
  std::vector<double> served;  // winners' time over the default's
};

double geomean(const std::vector<double>& logs) {
  double sum = 0;
  for (double l : logs) sum += l;
  return logs.empty() ? 0 : std::exp2(sum / static_cast<double>(logs.size()));
}

// Knobs, or the moves where the neighbourhood has left the recipe.
std::string what_of(const std::string& text) {
  const Result<search::Schedule> schedule = search::parse_schedule(text);
  if (!schedule.ok()) return {};
  std::string out;
  for (const auto& [name, value] : schedule->knobs) out += fmt::format(" {}={}", name, value);
  if (!schedule->knobs.empty()) return out;
  for (const search::Move& m : schedule->moves) out += fmt::format("{}; ", search::to_text(m));
  return out;
}

// Each winner beside the default, as a host runs them.
Status serve(const MeasuredTask& task, const ir::Target& target, const Flags& flags,
             const std::vector<Search>& searches, Totals* totals) {
  for (const Search& s : searches) {
    const bool won = s.winner() != s.standard;
    double ratio = 1, worst = 1, best = 1;
    if (won) {
      LATHE_ASSIGN(std::vector<double> at, service_pairs(task.problem, target, s.standard, s.winner(), flags.service));
      worst = *std::max_element(at.begin(), at.end());
      best = *std::min_element(at.begin(), at.end());
      ratio = median(std::move(at));
    }
    totals->served.push_back(ratio);
    totals->ms.push_back(s.ms);
    fmt::print("{:<28}{:>7.3f} ({:.3f} to {:.3f})  {:.0f} ms {} {}\n", task.name, ratio, best, worst, s.ms,
               s.measurements, won ? what_of(s.winner()) : " the default stays");
    std::fflush(stdout);
  }
  return {};
}

Status one(const MeasuredTask& task, const ir::Target& target, const Flags& flags, Totals* totals) {
  LiveTask live(task, target, flags);
  std::vector<Search> searches;
  for (const std::string& strategy : flags.strategies) {
    for (int n = 0; n < flags.searches; ++n) {
      LATHE_ASSIGN(Search s, live.search(strategy, flags.seeds ? static_cast<uint64_t>(n) + 1 : 1));
      searches.push_back(std::move(s));
    }
  }
  if (flags.service > 0) return serve(task, target, flags, searches, totals);
  LATHE_ASSIGN(const auto share, live.judge(searches));
  for (const Search& s : searches) {
    auto& budgets = totals->by_budget[s.strategy];
    budgets.resize(kBudgetCount);
    if (!flags.json) fmt::print("{:<28}{:<16}", task.name, s.strategy);
    for (size_t b = 0; b < s.picks.size(); ++b) {
      budgets[b].push_back(std::log2(share.at(s.picks[b])));
      if (!flags.json) fmt::print("{:>7.3f}", share.at(s.picks[b]));
    }
    if (!flags.json) fmt::print("   {:.0f} ms, {} measurements, {} further samples\n", s.ms, s.measurements, s.further);
    if (s.strategy == flags.strategies[0]) totals->ms.push_back(s.ms);
  }
  for (size_t i = 0; i + 1 < searches.size(); ++i) {
    if (searches[i].strategy != searches[i + 1].strategy) continue;
    const Search &a = searches[i], &b = searches[i + 1];
    const double apart = std::abs(share.at(a.winner()) / share.at(b.winner()) - 1);
    ++totals->pairs;
    if (apart <= (task.problem.cold ? 0.02 : 0.01)) continue;
    ++totals->differ;
    if (flags.json) continue;
    fmt::print("  the winners are {:.1f} % apart, here and as screened by either search:\n", 100 * apart);
    for (const std::string& text : {a.winner(), b.winner()}) {
      const auto seen = [&](const Search& s) {
        return s.screened.count(text) != 0 ? fmt::format("{:.3f}", 1 / s.screened.at(text)) : "never";
      };
      fmt::print("    {:.3f}  {} {}  {}\n", share.at(text), seen(a), seen(b), what_of(text));
    }
  }
  std::fflush(stdout);
  return {};
}

int main_of(int argc, char** argv) {
  CLI::App app{"Searches in earnest, strategy by strategy"};
  Flags flags;
  app.add_option("tasks", flags.tasks, "manifest")->required();
  app.add_option("--only", flags.only, "regular expression of task names");
  app.add_option("--strategy", flags.strategies, "names; the first one's wall clock is reported");
  app.add_option("--budget", flags.budget, "measurements")->check(CLI::Range(1, 64));
  app.add_option("--searches", flags.searches, "of each task: do their winners differ?");
  app.add_flag("--seeds", flags.seeds, "a seed for each; else the same, as two warm-ups have it");
  app.add_option("--cpu", flags.cpu, "where tasks of one thread run; -1: anywhere");
  app.add_flag("!--no-history", flags.history, "without the starter pack");
  app.add_option("--service", flags.service,
                 "compare winners with the default as a host runs them, at so many placements, and nothing else");
  app.add_option("--placements", flags.placements, "of operands that searches time")->check(CLI::Range(1, 64));
  app.add_flag("--json", flags.json, "one line");
  CLI11_PARSE(app, argc, argv);
  const Result<std::vector<MeasuredTask>> tasks = read_tasks(flags.tasks);
  if (!tasks.ok()) {
    fmt::print(stderr, "{}\n", tasks.status().to_string());
    return 2;
  }
  for (const std::string& s : flags.strategies) {
    if (find_strategy(s) != nullptr) continue;
    fmt::print(stderr, "unknown strategy {}\n", s);
    return 2;
  }
  const ir::Target target = jit::host_target();
  const std::regex only(flags.only);
  Totals totals;
  int failed = 0;
  for (const MeasuredTask& task : *tasks) {
    if (!std::regex_search(task.name, only)) continue;
    pin_for(task, flags.cpu);
    if (const Status status = one(task, target, flags, &totals); !status.ok()) {
      ++failed;
      fmt::print(stderr, "{}: {}\n", task.name, status.to_string());
    }
  }
  if (flags.service > 0) {
    const auto slower = std::count_if(totals.served.begin(), totals.served.end(), [](double r) { return r > 1.03; });
    std::vector<double> logs;
    for (const double r : totals.served) logs.push_back(std::log2(r));
    fmt::print(
        "{} searches: {:.3f} of the default's time in the geometric mean, {} over 1.03, {} failed; median {:.0f} ms\n",
        totals.served.size(), geomean(logs), slower, failed, totals.ms.empty() ? 0 : median(totals.ms));
    return failed > 0;
  }
  nlohmann::json out;
  for (const std::string& strategy : flags.strategies) {
    if (!flags.json) fmt::print("{:<28}{:<16}", "geometric mean", strategy);
    for (size_t b = 0; b < totals.by_budget[strategy].size(); ++b) {
      const std::vector<double>& logs = totals.by_budget[strategy][b];
      if (logs.empty()) continue;
      out["share"][strategy][std::to_string(kBudgets[b])] = geomean(logs);
      if (!flags.json) fmt::print("{:>7.3f}", geomean(logs));
    }
    if (!flags.json) fmt::print("\n");
  }
  out["tasks"] = totals.ms.size() / static_cast<size_t>(flags.searches);
  out["failed"] = failed;
  out["median_ms"] = totals.ms.empty() ? 0 : median(totals.ms);
  out["budget"] = flags.budget;
  out["pairs"] = totals.pairs;
  out["winners_differ"] = totals.differ;
  if (flags.json) {
    fmt::print("{}\n", out.dump());
  } else {
    fmt::print("{} measurements and the decision: median {:.0f} ms; winners of two searches differ in {} of {}\n",
               flags.budget, out["median_ms"].get<double>(), totals.differ, totals.pairs);
  }
  return failed > 0;
}

}  // namespace
}  // namespace lathe::bench

int main(int argc, char** argv) { return lathe::bench::main_of(argc, argv); }
