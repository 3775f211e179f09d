// Replays strategies on measured tables under the rules of docs/search_replay.md: folds, the judge, re-injected noise,
// the same decision rule for everyone. Fills in figures; prints nothing.
#pragma once
#include <functional>
#include <memory>
#include <mutex>

#include "bench/search/strategies.h"
#include "bench/search/table_timing.h"
#include "search/strategy/strategy.h"

namespace lathe::bench {

constexpr int kBudgets[] = {1, 2, 4, 8, 16, 32, 64};
constexpr int kBudgetCount = 7;

enum class Fold : uint8_t { none, group, length };  // what is held out with the target; none: no history at all

struct ReplayOptions {
  int seeds = 20;
  int threads = 2;
  uint64_t seed = 1;
  int history_rows = 56;  // of a task
  double trust = 1;       // of history: 0.25 as if another machine had measured it
};

// One strategy on one task with one seed.
struct Run {
  std::vector<int> order;               // timed rows, as measured
  std::unique_ptr<TableTiming> timing;  // noisy: what was seen of them
};

// Shares after each budget, one entry a task: geometric mean over seeds (log2).
struct Curve {
  std::string strategy;
  std::vector<std::vector<double>> by_task;  // [budget][task], log2 share
  std::vector<double> to_95;                 // measurements until .95, by task and seed
  double geomean(int budget_index, const std::vector<int>& tasks) const;
  double least(int budget_index, const std::vector<int>& tasks) const;
  double percentile10(int budget_index, const std::vector<int>& tasks) const;
};

// What the noisy replay adds: stability of the choice.
struct Decisions {
  double flips = 0;   // of pairs of searches, after 16
  int regressed = 0;  // picks more than 1 % slower than the default by fresh pairs
  double samples_per_task = 0;
};

class Replay {
 public:
  Replay(const std::vector<MeasuredTask>& tables, const ir::Target& target, const ReplayOptions& options);

  int tasks() const { return static_cast<int>(tasks_.size()); }
  TableTask& task(int i) { return *tasks_[static_cast<size_t>(i)]; }

  Curve noise_free(const std::string& strategy, Fold fold);
  // As a tuner would: told recorded samples, picks by the decision rule, judged by fresh pairs.
  Curve noisy(const std::string& strategy, Fold fold, Decisions* decisions);
  // A length that was never seen: after 0 (its default), 2 and 4 measurements. Tasks without another length of their
  // operator do not count (NaN).
  std::vector<std::vector<double>> new_length(const std::string& strategy);
  // How often the default would be said to beat itself, by the samples of passes in which it was timed twice.
  double claimed_of_identical(int runs);

 private:
  struct TrainedModel {
    search::CostModel model;
    std::once_flag made;
  };
  const search::CostModel& model_of(int task, Fold fold);
  search::SearchProblem problem_of(int task, Fold fold, uint64_t seed);
  Run run(const StrategyInfo& info, int task, Fold fold, uint64_t seed, bool noisy);
  void each_task(const std::function<void(int)>& f);
  uint64_t seed_of(int task, int seed) const {
    return options_.seed * 1000003 + static_cast<uint64_t>(task) * 1009 + static_cast<uint64_t>(seed);
  }

  ReplayOptions options_;
  ir::Target target_;
  search::MachineRates rates_;
  std::vector<std::unique_ptr<TableTask>> tasks_;
  std::vector<search::TaskRecord> records_;  // thinned, by task
  std::map<std::string, std::unique_ptr<TrainedModel>> models_;
  std::mutex mutex_;
};

}  // namespace lathe::bench
