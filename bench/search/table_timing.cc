// See table_timing.h.
#include "bench/search/table_timing.h"

#include <algorithm>

namespace lathe::bench {

static runtime::TimingOptions options_of(const TableTask& task, uint64_t seed, const int64_t* now_ns) {
  runtime::TimingOptions o;
  o.cold = task.measured().problem.cold;
  o.min_sample_us = 1e-9;  // a recorded sample is one call of this clock
  o.further = 64;
  o.seed = seed;
  o.now_ns = [now_ns] { return *now_ns; };
  return o;
}

TableTiming::TableTiming(const TableTask& task, int reference, uint64_t seed)
    : task_(&task),
      random_(seed),
      called_(task.measured().rows.size() + 1, 0),
      session_(options_of(task, seed, &now_ns_)) {
  (void)screen({reference});
}

// Screening shows the samples of one recorded pass in their order. Deciding walks through recorded passes: within one,
// every row was sampled at about the same time; a row that comes round again begins another.
double TableTiming::next_us(int candidate) {
  const int row = rows_[static_cast<size_t>(candidate)];
  if (!deciding_) {
    const auto& passes = task_->measured()
                             .rows[static_cast<size_t>(row == TableTask::kAgain ? task_->measured().default_row : row)]
                             .passes;
    const std::vector<double>& samples = passes[recorded_[static_cast<size_t>(candidate)] % passes.size()];
    return samples[calls_[static_cast<size_t>(candidate)]++ % samples.size()];
  }
  if (called_[static_cast<size_t>(row + 1)]) {
    std::fill(called_.begin(), called_.end(), 0);
    pass_ = random_();
  }
  called_[static_cast<size_t>(row + 1)] = 1;
  return task_->sample(row, pass_, random_);
}

std::vector<double> TableTiming::screen(const std::vector<int>& rows) {
  std::vector<int> batch;
  for (int row : rows) {
    const int candidate = static_cast<int>(rows_.size());
    rows_.push_back(row);
    recorded_.push_back(random_());
    calls_.push_back(0);
    session_.add(
        [this, candidate] { now_ns_ += std::max<int64_t>(1, static_cast<int64_t>(next_us(candidate) * 1000)); });
    batch.push_back(candidate);
  }
  session_.screen(batch);
  std::vector<double> out;
  for (int candidate : batch) {
    const runtime::TimingRow& row = session_.row(candidate);
    scores_.push_back(session_.score(candidate));
    // One that was stopped as hopeless has its first samples only.
    out.push_back(scores_.back() > 0 || row.samples.empty()
                      ? scores_.back()
                      : *std::min_element(row.samples.begin(), row.samples.end()));
  }
  return out;
}

int TableTiming::decide(int n, const Beliefs& beliefs) {
  std::vector<runtime::Finalist> field;
  const int count = std::min(n, static_cast<int>(rows_.size()));
  std::vector<int> rows, candidates;
  std::vector<double> us;
  for (int c = 0; c < count; ++c) {
    if (c > 0 && !(scores_[static_cast<size_t>(c)] > 0)) continue;
    rows.push_back(rows_[static_cast<size_t>(c)]);
    us.push_back(scores_[static_cast<size_t>(c)]);
    candidates.push_back(c);
  }
  const std::vector<double> of = beliefs(rows, us);
  std::vector<std::pair<double, int>> ranked;
  for (size_t i = 1; i < candidates.size(); ++i) ranked.emplace_back(-of[i], candidates[i]);
  std::stable_sort(ranked.begin(), ranked.end());
  for (const auto& [value, candidate] : ranked) field.push_back({candidate, 0, ""});
  if (field.size() > kFinalists) field.resize(kFinalists);
  for (runtime::Finalist& f : field) f.text = fmt::format("{:05}", rows_[static_cast<size_t>(f.candidate)] + 1);
  deciding_ = true;
  pass_ = random_();
  std::fill(called_.begin(), called_.end(), 0);
  runtime::TimingSession session = session_;
  const int before = session.further();
  const runtime::TimingDecision decision = session.decide(std::move(field));
  further_ = session.further() - before;
  deciding_ = false;
  return rows_[static_cast<size_t>(decision.winner)];
}

}  // namespace lathe::bench
