// See replay.h.
#include "bench/search/replay.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <thread>

#include "bench/search/pack.h"
#include "search/strategy/prior.h"

namespace lathe::bench {

using search::Outcome;

namespace {

constexpr double kMustWin = 0.01;
constexpr int kBatch = 4;

double log_share(double share) { return std::log2(std::max(share, 1e-3)); }

std::vector<double> of(const std::vector<double>& by_task, const std::vector<int>& tasks) {
  std::vector<double> out;
  for (int t : tasks) out.push_back(by_task[static_cast<size_t>(t)]);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

double Curve::geomean(int budget, const std::vector<int>& tasks) const {
  double sum = 0;
  for (int t : tasks) sum += by_task[static_cast<size_t>(budget)][static_cast<size_t>(t)];
  return std::exp2(sum / static_cast<double>(tasks.size()));
}
double Curve::least(int budget, const std::vector<int>& tasks) const {
  return std::exp2(of(by_task[static_cast<size_t>(budget)], tasks)[0]);
}
double Curve::percentile10(int budget, const std::vector<int>& tasks) const {
  return std::exp2(of(by_task[static_cast<size_t>(budget)], tasks)[tasks.size() / 10]);
}

Replay::Replay(const std::vector<MeasuredTask>& tables, const ir::Target& target, const ReplayOptions& options)
    : options_(options), target_(target), rates_(search::MachineRates::assumed(target)) {
  for (const MeasuredTask& t : tables) {
    tasks_.push_back(std::make_unique<TableTask>(t, target, rates_));
    records_.push_back(thinned(t, kPackBest, options.history_rows));
    records_.back().trust = options.trust;
  }
}

void Replay::each_task(const std::function<void(int)>& f) {
  std::atomic<int> next{0};
  const auto work = [&] {
    for (int t; (t = next.fetch_add(1)) < tasks();) f(t);
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < options_.threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
}

const search::CostModel& Replay::model_of(int task, Fold fold) {
  const MeasuredTask& target = tasks_[static_cast<size_t>(task)]->measured();
  const std::string& family = target.problem.kernel.family;
  const std::string key = fold == Fold::group ? fmt::format("{} group {}", family, target.group)
                                              : fmt::format("{} length {}", family, target.length);
  TrainedModel* m = nullptr;
  {
    std::lock_guard lock(mutex_);
    std::unique_ptr<TrainedModel>& slot = models_[key];
    if (!slot) slot = std::make_unique<TrainedModel>();
    m = slot.get();
  }
  std::call_once(m->made, [&] {
    std::vector<search::TaskRecord> records;
    for (int t = 0; t < tasks(); ++t) {
      const MeasuredTask& other = tasks_[static_cast<size_t>(t)]->measured();
      if (other.problem.kernel.family != family) continue;
      if (fold == Fold::group ? other.group == target.group : other.length == target.length) continue;
      records.push_back(records_[static_cast<size_t>(t)]);
    }
    m->model = search::train_model(records, target_, rates_, options_.seed);
  });
  return m->model;
}

search::SearchProblem Replay::problem_of(int t, Fold fold, uint64_t seed) {
  TableTask& task = *tasks_[static_cast<size_t>(t)];
  search::SearchProblem problem;
  problem.problem = &task.measured().problem;
  problem.target = &target_;
  problem.space = &task.space();
  problem.model = fold == Fold::none ? nullptr : &model_of(t, fold);
  problem.rates = &rates_;
  problem.budget = kBudgets[kBudgetCount - 1];
  problem.seed = seed;
  problem.stop_early = false;
  return problem;
}

Run Replay::run(const StrategyInfo& info, int t, Fold fold, uint64_t seed, bool noisy) {
  TableTask& task = *tasks_[static_cast<size_t>(t)];
  const search::SearchProblem problem = problem_of(t, fold, seed);
  const int start = task.standard();
  task.space().set_default(start);
  const std::unique_ptr<search::Strategy> strategy = info.make();
  strategy->start(problem);
  Run out;
  if (noisy) out.timing = std::make_unique<TableTiming>(task, start, seed * 7919 + 13);
  // With noise as in earnest: batches, between which the reference is read.
  std::vector<search::Proposal> batch(noisy ? kBatch : 1);
  for (bool first_of_all = true; static_cast<int>(out.order.size()) < problem.budget; first_of_all = false) {
    const int n = strategy->next({batch.data(), first_of_all ? 1 : batch.size()});
    if (n == 0) break;
    std::vector<int> rows;
    for (int i = 0; i < n; ++i) {
      if (task.timed(batch[static_cast<size_t>(i)].point)) rows.push_back(batch[static_cast<size_t>(i)].point);
    }
    std::vector<double> us;
    if (!noisy) {
      for (int row : rows) us.push_back(task.truth(row));
    } else if (first_of_all) {
      us.push_back(out.timing->reference_us());
    } else {
      us = out.timing->screen(rows);
    }
    out.order.insert(out.order.end(), rows.begin(), rows.end());
    for (int i = 0, timed = 0; i < n; ++i) {
      const int p = batch[static_cast<size_t>(i)].point;
      search::Tell tell{p, task.measured().rows[static_cast<size_t>(p)].outcome, 0};
      if (task.timed(p)) {
        tell.us = us[static_cast<size_t>(timed++)];
      } else if (tell.kind == Outcome::timed) {
        tell.kind = Outcome::refused;
      }
      strategy->tell(tell);
    }
  }
  return out;
}

Curve Replay::noise_free(const std::string& strategy, Fold fold) {
  const StrategyInfo* info = find_strategy(strategy);
  Curve curve{strategy, std::vector<std::vector<double>>(kBudgetCount, std::vector<double>(tasks_.size(), 0)), {}};
  std::vector<std::vector<double>> to_95(tasks_.size());
  each_task([&](int t) {
    TableTask& task = *tasks_[static_cast<size_t>(t)];
    for (int seed = 0; seed < options_.seeds; ++seed) {
      const Run r = run(*info, t, fold, seed_of(t, seed), false);
      double best = 0;
      int needed = 0;
      size_t at = 0;
      for (int b = 0; b < kBudgetCount; ++b) {
        for (; at < r.order.size() && static_cast<int>(at) < kBudgets[b]; ++at) {
          best = std::max(best, task.share(r.order[at]));
          if (needed == 0 && best >= 0.95) needed = static_cast<int>(at) + 1;
        }
        curve.by_task[static_cast<size_t>(b)][static_cast<size_t>(t)] += log_share(best) / options_.seeds;
      }
      to_95[static_cast<size_t>(t)].push_back(needed > 0 ? needed : kBudgets[kBudgetCount - 1] + 1);
    }
  });
  for (const std::vector<double>& t : to_95) curve.to_95.insert(curve.to_95.end(), t.begin(), t.end());
  return curve;
}

Curve Replay::noisy(const std::string& strategy, Fold fold, Decisions* decisions) {
  const StrategyInfo* info = find_strategy(strategy);
  Curve curve{strategy, std::vector<std::vector<double>>(kBudgetCount, std::vector<double>(tasks_.size(), 0)), {}};
  std::atomic<int> flips{0}, pairs{0}, regressed{0};
  std::atomic<int64_t> samples{0};
  each_task([&](int t) {
    TableTask& task = *tasks_[static_cast<size_t>(t)];
    const double tolerance = task.measured().problem.cold ? 0.02 : 0.01;
    double previous = 0;
    const search::SearchProblem problem = problem_of(t, fold, 0);
    const auto beliefs = [&](const std::vector<int>& rows, const std::vector<double>& us) {
      std::vector<search::MeasuredPoint> measured;
      for (size_t i = 0; i < rows.size(); ++i) measured.push_back({rows[i], us[i]});
      return search::believed(problem, measured);
    };
    for (int seed = 0; seed < options_.seeds; ++seed) {
      const Run r = run(*info, t, fold, seed_of(t, seed), true);
      for (int b = 0; b < kBudgetCount; ++b) {
        const int pick = r.timing->decide(kBudgets[b], beliefs);
        const double share = task.fresh_share(pick);
        curve.by_task[static_cast<size_t>(b)][static_cast<size_t>(t)] += log_share(share) / options_.seeds;
        if (kBudgets[b] != 16) continue;
        if (share * (1 + kMustWin) < task.fresh_share(r.order[0])) ++regressed;
        const int n = std::min<int>(16, static_cast<int>(r.order.size()));
        samples += n * 3 + r.timing->further();
        if (seed % 2 == 1) {
          ++pairs;
          flips += std::abs(share / previous - 1) > tolerance;
        }
        previous = share;
      }
    }
  });
  if (decisions != nullptr) {
    decisions->flips = pairs > 0 ? static_cast<double>(flips) / pairs : 0;
    decisions->regressed = regressed;
    decisions->samples_per_task = static_cast<double>(samples) / (options_.seeds * tasks());
  }
  return curve;
}

std::vector<std::vector<double>> Replay::new_length(const std::string& strategy) {
  const StrategyInfo* info = find_strategy(strategy);
  constexpr int kAfter[] = {0, 2, 4};
  std::vector<std::vector<double>> out(3, std::vector<double>(tasks_.size(), std::numeric_limits<double>::quiet_NaN()));
  each_task([&](int t) {
    TableTask& task = *tasks_[static_cast<size_t>(t)];
    bool tuned = false;  // another length of the same operator
    for (int o = 0; o < tasks(); ++o) {
      const MeasuredTask& other = tasks_[static_cast<size_t>(o)]->measured();
      tuned |= other.group == task.measured().group && other.length != task.measured().length;
    }
    if (!tuned || task.measured().length == 0) return;
    for (int i = 0; i < 3; ++i) out[static_cast<size_t>(i)][static_cast<size_t>(t)] = 0;
    for (int seed = 0; seed < options_.seeds; ++seed) {
      const Run r = run(*info, t, Fold::length, seed_of(t, seed), false);
      for (int i = 0; i < 3; ++i) {
        double best = task.share(task.standard());
        for (int n = 0; n < kAfter[i] && n < static_cast<int>(r.order.size()); ++n)
          best = std::max(best, task.share(r.order[static_cast<size_t>(n)]));
        out[static_cast<size_t>(i)][static_cast<size_t>(t)] += log_share(best) / options_.seeds;
      }
    }
  });
  return out;
}

double Replay::claimed_of_identical(int runs) {
  int claimed = 0, asked = 0;
  for (int t = 0; t < tasks(); ++t) {
    for (int n = 0; n < runs && task(t).timed_again(); ++n) {
      TableTiming timing(task(t), task(t).measured().default_row, seed_of(t, n) + 99);
      (void)timing.screen({TableTask::kAgain});
      ++asked;
      claimed += timing.decide(2, [](const auto& rows, const auto&) { return std::vector<double>(rows.size()); }) ==
                 TableTask::kAgain;
    }
  }
  return asked == 0 ? 0 : static_cast<double>(claimed) / asked;
}

}  // namespace lathe::bench
