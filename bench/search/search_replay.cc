// search_replay TABLES...: every strategy replayed on measured tables; a table for people, or with --json one line
// (docs/search_replay.md). Nothing is compiled or timed.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/search/replay.h"

namespace lathe::bench {
namespace {

using nlohmann::json;

// Whom the default strategy has to be ahead of.
const std::vector<std::string> kRivals = {"random", "iree", "iree-repaired", "annealing", "mcts", "evolutionary"};
constexpr double kAheadBy = 0.002;

struct Flags {
  std::vector<std::string> tables, hints;
  std::vector<std::string> strategies;
  std::string curves;
  bool json = false, full = false, by_task = false;
  ReplayOptions replay;
};

double round3(double v) { return std::round(v * 10000) / 10000; }

json by_budget(const Curve& c, const std::vector<int>& tasks, int last = 6) {
  json out = json::object();
  for (int b = 0; b < last; ++b) out[std::to_string(kBudgets[b])] = round3(c.geomean(b, tasks));
  return out;
}

void print_row(const char* what, const Curve& c, const std::vector<int>& tasks) {
  fmt::print("{:<20}{:<18}", what, c.strategy);
  for (int b = 0; b < kBudgetCount; ++b) fmt::print("{:>7.3f}", c.geomean(b, tasks));
  fmt::print("   p10@16 {:.3f}  min@4 {:.3f}\n", c.percentile10(4, tasks), c.least(2, tasks));
}

double percentile(std::vector<double> v, double p) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[std::min(v.size() - 1, static_cast<size_t>(p * static_cast<double>(v.size())))];
}

// What the tables of other tasks or machines are worth as history: `hints` stand behind the `targets` tasks that are
// searched.
int report_hints(const std::vector<MeasuredTask>& all, int targets, const ir::Target& target,
                 const ReplayOptions& options) {
  Replay replay(all, target, options);
  std::vector<int> counted;
  for (int t = 0; t < targets; ++t) {
    if (replay.task(t).median_share() <= 0.90) counted.push_back(t);
  }
  const Curve alone = replay.noise_free("lathe", Fold::none), hinted = replay.noise_free("lathe", Fold::group);
  fmt::print("{} tasks, {} count\n{:<38}", targets, counted.size(), "share of the best after");
  for (int b : kBudgets) fmt::print("{:>7}", b);
  fmt::print("\n");
  print_row("alone", alone, counted);
  print_row("with hints", hinted, counted);
  return 0;
}

class Report {
 public:
  Report(const Flags& flags, const std::vector<MeasuredTask>& tables, const ir::Target& target)
      : flags_(flags), replay_(tables, target, flags.replay) {
    for (int t = 0; t < replay_.tasks(); ++t) {
      families_[replay_.task(t).measured().problem.kernel.family]++;
      // A task where anything is nearly the best says nothing of an order.
      if (replay_.task(t).median_share() <= 0.90) counted_.push_back(t);
    }
  }

  int run() {
    if (counted_.empty()) {
      fmt::print(stderr, "no task whose median configuration is below .90 of its best\n");
      return 1;
    }
    if (!flags_.json) {
      fmt::print("{} tasks, {} count (median configuration <= .90 of the best)\n", replay_.tasks(), counted_.size());
      fmt::print("{:<38}", "share of the best after");
      for (int b : kBudgets) fmt::print("{:>7}", b);
      fmt::print("\n");
    }
    const Curve lathe = shown("held out", "lathe", Fold::group, false);
    Decisions decisions;
    const Curve real = replay_.noisy("lathe", Fold::group, &decisions);
    note("held out, noisy", real, Fold::group, true);
    const Curve bare = shown("no history", "lathe", Fold::none, false);
    int ahead = 64;
    for (const std::string& rival : flags_.strategies) {
      const bool named = std::find(kRivals.begin(), kRivals.end(), rival) != kRivals.end();
      for (const Fold fold : {Fold::group, Fold::none}) {
        if (fold == Fold::none && !flags_.full) continue;
        const Curve c = shown(fold == Fold::group ? "held out" : "no history", rival, fold, false);
        if (!named) continue;
        const Curve& ours = fold == Fold::group ? lathe : bare;
        for (int b = kBudgetCount - 1; b >= 0; --b) {
          if (c.geomean(b, counted_) > ours.geomean(b, counted_) + kAheadBy)
            ahead = std::min(ahead, b > 0 ? kBudgets[b - 1] : 0);
        }
      }
    }
    lengths_ = replay_.new_length("lathe");
    if (flags_.by_task && !flags_.json) by_task(lathe, real, bare);
    summary(lathe, real, bare, decisions, ahead);
    if (!flags_.curves.empty()) std::ofstream(flags_.curves) << curves_.dump() << "\n";
    return 0;
  }

 private:
  Curve shown(const char* what, const std::string& strategy, Fold fold, bool noisy) {
    const Curve c = replay_.noise_free(strategy, fold);
    note(what, c, fold, noisy);
    return c;
  }
  void note(const char* what, const Curve& c, Fold fold, bool noisy) {
    if (!flags_.json) print_row(what, c, counted_);
    curves_.push_back({{"strategy", c.strategy},
                       {"history", fold != Fold::none},
                       {"noisy", noisy},
                       {"share", by_budget(c, counted_, kBudgetCount)}});
  }

  void by_task(const Curve& lathe, const Curve& real, const Curve& bare) {
    fmt::print("{:<28}{:>6}{:>8}{:>8}{:>8}{:>8}{:>10}{:>10}{:>8}\n", "task", "rows", "median", "default", "after 4",
               "16", "noisy 16", "bare 16", "new");
    for (int t = 0; t < replay_.tasks(); ++t) {
      TableTask& task = replay_.task(t);
      const std::vector<int> one{t};
      fmt::print("{:<28}{:>6}{:>8.3f}{:>8.3f}{:>8.3f}{:>8.3f}{:>10.3f}{:>10.3f}{:>8.3f}\n", task.measured().name,
                 task.measured().rows.size(), task.median_share(), task.share(task.standard()), lathe.geomean(2, one),
                 lathe.geomean(4, one), real.geomean(4, one), bare.geomean(4, one),
                 std::exp2(lengths_[0][static_cast<size_t>(t)]));
    }
  }

  std::vector<int> of_family(const std::string& family) {
    std::vector<int> out;
    for (int t : counted_) {
      if (replay_.task(t).measured().problem.kernel.family == family) out.push_back(t);
    }
    return out;
  }

  void summary(const Curve& lathe, const Curve& real, const Curve& bare, const Decisions& decisions, int ahead) {
    json new_length = json::object();
    const char* kAfter[] = {"0", "2", "4"};
    std::vector<double> last;
    for (size_t i = 0; i < 3; ++i) {
      double sum = 0;
      int n = 0;
      last.clear();
      for (int t : counted_) {
        const double v = lengths_[i][static_cast<size_t>(t)];
        if (std::isnan(v)) continue;
        sum += v;
        last.push_back(std::exp2(v));
        ++n;
      }
      new_length[kAfter[i]] = n > 0 ? round3(std::exp2(sum / n)) : 0.0;
    }
    std::vector<double> to_95;
    const size_t seeds = lathe.to_95.size() / static_cast<size_t>(replay_.tasks());
    for (int t : counted_) {
      for (size_t s = 0; s < seeds; ++s) to_95.push_back(lathe.to_95[static_cast<size_t>(t) * seeds + s]);
    }
    json by_family = json::object(), per_family = json::object();
    for (const auto& [family, count] : families_) {
      by_family[family] = count;
      const std::vector<int> of = of_family(family);
      if (!of.empty()) per_family[family] = by_budget(lathe, of);
    }
    int64_t off_grid = 0;
    for (int t = 0; t < replay_.tasks(); ++t) off_grid += replay_.task(t).space().off_grid();
    nlohmann::ordered_json out;
    out["counted"] = counted_.size();
    out["held_out_by_family"] = per_family;
    out["off_grid"] = off_grid;
    out["p10_after_16"] = round3(lathe.percentile10(4, counted_));
    out["new_length_p10_after_4"] = round3(percentile(last, 0.1));
    out["tables"] = replay_.tasks();
    out["tasks_by_family"] = by_family;
    out["held_out"] = by_budget(lathe, counted_);
    out["held_out_noisy"] = by_budget(real, counted_);
    out["no_history"] = by_budget(bare, counted_);
    out["worst_after_4"] = round3(lathe.least(2, counted_));
    out["new_length"] = new_length;
    out["to_95_median"] = percentile(to_95, 0.5);
    out["to_95_p90"] = percentile(to_95, 0.9);
    out["flips"] = round3(decisions.flips);
    out["aa"] = round3(replay_.claimed_of_identical(20));
    out["regressed"] = decisions.regressed;
    out["samples_per_task"] = round3(decisions.samples_per_task);
    out["ahead_of_all_to"] = ahead;
    if (flags_.json) {
      fmt::print("{}\n", out.dump());
    } else {
      for (const auto& [key, value] : out.items()) fmt::print("{:<24}{}\n", key, value.dump());
    }
  }

  const Flags& flags_;
  Replay replay_;
  std::map<std::string, int> families_;
  std::vector<int> counted_;
  std::vector<std::vector<double>> lengths_;  // of a new length, after 0, 2 and 4
  json curves_ = json::array();
};

bool read_all(const std::vector<std::string>& paths, std::vector<MeasuredTask>* out) {
  for (const std::string& path : paths) {
    ir::Result<std::vector<MeasuredTask>> read = read_tables(path);
    if (!read.ok()) {
      fmt::print(stderr, "{}\n", read.status().to_string());
      return false;
    }
    std::move(read->begin(), read->end(), std::back_inserter(*out));
  }
  return true;
}

int main_of(int argc, char** argv) {
  CLI::App app{"Replays search strategies on measured tables"};
  Flags flags;
  app.add_option("tables", flags.tables, "files or folders")->required();
  app.add_flag("--json", flags.json, "one line");
  app.add_option("--curves", flags.curves, "writes best-so-far by budget of every strategy, for plot_replay.py");
  app.add_option("--strategies", flags.strategies, "beside lathe; default: all")->delimiter(',');
  app.add_flag("--by-task", flags.by_task, "a line for each task");
  app.add_option("--hints", flags.hints,
                 "tables that are history and nothing else: prints the search of `tables` with and without");
  app.add_flag("--full", flags.full, "rivals without history, too");
  app.add_option("--rows", flags.replay.history_rows, "of each task in history");
  app.add_option("--trust", flags.replay.trust, "of history: 0.25 as if another machine had measured it");
  app.add_option("--seeds", flags.replay.seeds, "searches per task");
  app.add_option("--threads", flags.replay.threads, "of this program");
  CLI11_PARSE(app, argc, argv);
  if (flags.strategies.empty()) {
    for (const StrategyInfo& s : strategies()) {
      if (std::string(s.name) != "lathe") flags.strategies.emplace_back(s.name);
    }
  }
  std::erase(flags.strategies, "none");
  for (const std::string& s : flags.strategies) {
    if (find_strategy(s) == nullptr) {
      fmt::print(stderr, "unknown strategy {}\n", s);
      return 2;
    }
  }
  std::vector<MeasuredTask> tables;
  if (!read_all(flags.tables, &tables)) return 2;
  const ir::Target target =
      target_of(ir::parse_isa(tables.empty() ? "" : tables[0].isa).value_or(ir::IsaLevel::avx512));
  if (flags.hints.empty()) return Report(flags, tables, target).run();
  const size_t targets = tables.size();
  if (!read_all(flags.hints, &tables)) return 2;
  for (size_t t = 0; t < tables.size(); ++t) tables[t].group = t < targets ? "target" : "hint";
  return report_hints(tables, static_cast<int>(targets), target, flags.replay);
}

}  // namespace
}  // namespace lathe::bench

int main(int argc, char** argv) { return lathe::bench::main_of(argc, argv); }
