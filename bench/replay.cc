// See replay.h.
#include "bench/replay.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <set>
#include <thread>

#include "bench/pack.h"
#include "search/transfer.h"

namespace lathe::bench {

using search::OutcomeKind;

namespace {

constexpr double kMustWin = 0.01;

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
double Curve::least(int budget, const std::vector<int>& tasks) const { return std::exp2(of(by_task[static_cast<size_t>(budget)], tasks)[0]); }
double Curve::percentile10(int budget, const std::vector<int>& tasks) const {
  return std::exp2(of(by_task[static_cast<size_t>(budget)], tasks)[tasks.size() / 10]);
}

Replay::Replay(const std::vector<MeasuredTask>& tables, const ir::Target& target, const ReplayOptions& options)
    : options_(options), target_(target), rates_(search::MachineRates::assumed(target)) {
  for (const MeasuredTask& t : tables) {
    tasks_.push_back(std::make_unique<TableTask>(t, target, rates_));
    records_.push_back(thinned(t));
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

const Replay::History& Replay::history(int task, Fold fold) {
  const MeasuredTask& target = tasks_[static_cast<size_t>(task)]->measured();
  const std::string& family = target.problem.kernel.family;
  const std::string key = fold == Fold::none    ? "none"
                          : fold == Fold::group ? fmt::format("{} group {}", family, target.group)
                                                : fmt::format("{} length {}", family, target.length);
  History* h = nullptr;
  {
    std::lock_guard lock(mutex_);
    std::unique_ptr<History>& slot = histories_[key];
    if (!slot) slot = std::make_unique<History>();
    h = slot.get();
  }
  std::call_once(h->made, [&] {
    if (fold == Fold::none) return;
    for (int t = 0; t < tasks(); ++t) {
      const MeasuredTask& other = tasks_[static_cast<size_t>(t)]->measured();
      if (other.problem.kernel.family != family) continue;
      if (fold == Fold::group ? other.group == target.group : other.length == target.length) continue;
      h->records.push_back(records_[static_cast<size_t>(t)]);
    }
    h->model = search::train_model(h->records, target_, rates_, options_.seed);
  });
  return *h;
}

Run Replay::run(const search::StrategyInfo& info, int t, Fold fold, uint64_t seed, bool noisy, int first) {
  TableTask& task = *tasks_[static_cast<size_t>(t)];
  const History& h = history(t, fold);
  int start = task.measured().default_row;
  if (options_.default_from_history && !h.records.empty()) {
    const std::vector<search::Knobs> best = search::portfolio(h.records, 1, &task.measured().problem, 1e9);
    if (!best.empty()) start = task.space().nearest(best[0]);
  }
  if (first >= 0) start = first;
  if (!task.timed(start)) start = task.measured().default_row;
  task.space().set_default(start);
  Random random(seed * 7919 + 13);
  search::SearchProblem problem;
  problem.problem = &task.measured().problem;
  problem.target = &target_;
  problem.space = &task.space();
  problem.history = h.records.empty() ? nullptr : &h.records;
  problem.model = h.records.empty() ? nullptr : &h.model;
  problem.budget = kBudgets[kBudgetCount - 1];
  problem.seed = seed;
  problem.stop_early = false;
  const std::unique_ptr<search::Strategy> strategy = info.make();
  strategy->start(problem);
  Run out;
  for (search::Proposal p; static_cast<int>(out.order.size()) < problem.budget && strategy->next({&p, 1}) == 1;) {
    ++out.proposals;
    search::Tell tell{p.point, task.measured().rows[static_cast<size_t>(p.point)].outcome, 0};
    if (task.timed(p.point)) {
      tell.us = noisy ? task.screen(p.point, random) : task.truth(p.point);
      out.samples += task.screen_samples(p.point);
      out.order.push_back(p.point);
      out.seen_us.push_back(tell.us);
    } else if (tell.kind == OutcomeKind::timed) {
      tell.kind = OutcomeKind::refused;
    }
    strategy->tell(tell);
  }
  return out;
}

int Replay::decide(int t, const Run& run, int budget, Random& random) {
  const int n = std::min<int>(budget, static_cast<int>(run.order.size()));
  std::vector<std::pair<double, int>> ranked;
  for (int i = 0; i < n; ++i) ranked.emplace_back(run.seen_us[static_cast<size_t>(i)], run.order[static_cast<size_t>(i)]);
  const int incumbent = ranked[0].second;
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<int> rows{incumbent};
  for (size_t i = 0; i < ranked.size() && i < kFinalists; ++i) {
    if (ranked[i].second != incumbent) rows.push_back(ranked[i].second);
  }
  if (rows.size() == 1) return incumbent;
  std::vector<std::vector<double>> ratios(rows.size());
  for (int round = 0; round < kFinalSamples / static_cast<int>(rows.size()); ++round) {
    const std::vector<double> us = tasks_[static_cast<size_t>(t)]->round(rows, random);
    for (size_t i = 0; i < rows.size(); ++i) ratios[i].push_back(us[i] / us[0]);
  }
  size_t pick = 0;
  double least = 1 - kMustWin;
  for (size_t i = 1; i < rows.size(); ++i) {
    if (const double r = median(ratios[i]); r <= least) {
      least = r;
      pick = i;
    }
  }
  return rows[pick];
}

Curve Replay::noise_free(const std::string& strategy, Fold fold) {
  const search::StrategyInfo* info = search::find_strategy(strategy);
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
  const search::StrategyInfo* info = search::find_strategy(strategy);
  Curve curve{strategy, std::vector<std::vector<double>>(kBudgetCount, std::vector<double>(tasks_.size(), 0)), {}};
  std::atomic<int> flips{0}, pairs{0}, regressed{0};
  std::atomic<int64_t> samples{0};
  each_task([&](int t) {
    TableTask& task = *tasks_[static_cast<size_t>(t)];
    const double tolerance = task.measured().problem.cold ? 0.02 : 0.01;
    double previous = 0;
    for (int seed = 0; seed < options_.seeds; ++seed) {
      const Run r = run(*info, t, fold, seed_of(t, seed), true);
      Random random(seed_of(t, seed) + 17);
      for (int b = 0; b < kBudgetCount; ++b) {
        const int pick = decide(t, r, kBudgets[b], random);
        const double share = task.fresh_share(pick);
        curve.by_task[static_cast<size_t>(b)][static_cast<size_t>(t)] += log_share(share) / options_.seeds;
        if (kBudgets[b] != 16) continue;
        if (share * (1 + kMustWin) < task.fresh_share(r.order[0])) ++regressed;
        const int n = std::min<int>(16, static_cast<int>(r.order.size()));
        samples += n * 3 + (n > 1 ? kFinalSamples : 0);
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
  const search::StrategyInfo* info = search::find_strategy(strategy);
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
    const History& h = history(t, Fold::length);
    const std::vector<search::Knobs> body = search::nearest(h.records, task.measured().problem, 1);
    if (body.empty()) return;
    const int bound = task.space().nearest(body[0]);
    for (int i = 0; i < 3; ++i) out[static_cast<size_t>(i)][static_cast<size_t>(t)] = 0;
    for (int seed = 0; seed < options_.seeds; ++seed) {
      const Run r = run(*info, t, Fold::length, seed_of(t, seed), false, bound);
      for (int i = 0; i < 3; ++i) {
        double best = task.timed(bound) ? task.share(bound) : 0;
        for (int n = 0; n < kAfter[i] && n < static_cast<int>(r.order.size()); ++n) best = std::max(best, task.share(r.order[static_cast<size_t>(n)]));
        out[static_cast<size_t>(i)][static_cast<size_t>(t)] += log_share(best) / options_.seeds;
      }
    }
  });
  return out;
}

std::vector<double> Replay::four_bodies(int k) {
  std::vector<double> out(tasks_.size(), 0);
  each_task([&](int t) {
    TableTask& task = *tasks_[static_cast<size_t>(t)];
    // Tables of the other lengths, which other threads may be using: their rows are only read.
    std::vector<std::pair<int64_t, const TableTask*>> others;
    for (int o = 0; o < tasks(); ++o) {
      const TableTask& other = *tasks_[static_cast<size_t>(o)];
      if (other.measured().group == task.measured().group && other.measured().length != task.measured().length) {
        others.emplace_back(other.measured().length, &other);
      }
    }
    if (others.size() < 2) return;
    std::sort(others.begin(), others.end());
    std::set<search::Knobs> settings;
    for (const auto& [length, other] : others) {
      for (const TableRow& r : other->measured().rows) settings.insert(r.knobs);
    }
    const std::vector<search::Knobs> configs(settings.begin(), settings.end());
    std::vector<int64_t> lengths;
    std::vector<std::vector<double>> us;
    for (const auto& [length, other] : others) {
      lengths.push_back(length);
      std::map<search::Knobs, int> rows;
      for (size_t i = 0; i < other->measured().rows.size(); ++i) rows.emplace(other->measured().rows[i].knobs, static_cast<int>(i));
      us.emplace_back(configs.size(), 0);
      for (size_t c = 0; c < configs.size(); ++c) {
        const auto it = rows.find(configs[c]);
        if (it != rows.end() && other->timed(it->second)) us.back()[c] = other->truth(it->second);
      }
    }
    const std::vector<search::BodyRule> rules = search::choose_bodies(lengths, us, k);
    const int config = search::body_for(rules, task.measured().length);
    if (config < 0) return;
    const int row = task.space().nearest(configs[static_cast<size_t>(config)]);
    out[static_cast<size_t>(t)] = task.timed(row) ? task.share(row) : 1e-3;
  });
  return out;
}

double Replay::claimed_of_identical(int runs) {
  int claimed = 0, asked = 0;
  for (int t = 0; t < tasks(); ++t) {
    for (int n = 0; n < runs; ++n) {
      Random random(seed_of(t, n) + 99);
      std::vector<double> ratios;
      for (int pair = 0; pair < kFinalSamples / 2; ++pair) ratios.push_back(task(t).identical_ratio(random));
      if (ratios[0] <= 0) break;
      ++asked;
      claimed += median(ratios) <= 1 - kMustWin;
    }
  }
  return asked == 0 ? 0 : static_cast<double>(claimed) / asked;
}

}  // namespace lathe::bench
