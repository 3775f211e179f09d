// See timing.h.
//
//   default: 3 samples                          reference of the screening
//   each candidate: warm up, 3 samples          stopped after one that is 1.5x the best; divided by
//   the drift of the default,
//                                               which is sampled again every 4 candidates
//   best 4: pairs (c d d c ...) with the default, random start, until narrow or spent; the best
//   median that wins for certain,
//                                               if a sequential sign test on fresh pairs agrees
#include "runtime/timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <utility>

namespace lathe::runtime {
namespace {

constexpr int kScreenSamples = 3;
constexpr int kReferenceEvery = 4;
constexpr double kHopeless = 1.5;
constexpr int kRetries = 3;  // of a sample on a clock that stood still or went back
constexpr int kMaxRepeats = 1 << 16;
constexpr double kSignWin = 0.995, kSignGain = 0.470, kSignLoss = 0.916, kSignAccept = 4.55,
                 kSignReject = 2.99;
constexpr int kMaxSignPairs = 64;

int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Session {
 public:
  Session(const std::vector<std::function<void()>>& calls, const TimingOptions& options,
          const std::function<void(int)>& before)
      : calls_(calls),
        options_(options),
        before_(before),
        now_(options.now_ns ? options.now_ns : steady_ns),
        samples_(calls.size()),
        repeats_(calls.size(), 1) {
    start_ = now_();
  }

  TimingResult run() {
    result_.rows.resize(calls_.size());
    screen();
    finals();
    for (size_t i = 0; i < calls_.size(); ++i) {
      TimingRow& row = result_.rows[i];
      row.rounds = static_cast<int>(samples_[i].size());
      if (row.rounds == 0) continue;
      row.min_us = *std::min_element(samples_[i].begin(), samples_[i].end());
      row.median_us = median_of(samples_[i]);
      result_.measurements += row.rounds;
    }
    result_.default_us = result_.rows[0].median_us;
    // The pairs say how much faster the winner is; the medians of two rows come from different moments.
    const TimingRow& winner = result_.rows[result_.winner];
    const double gain = result_.winner == 0 ? 0 : (winner.gain_lo + winner.gain_hi) / 2;
    result_.best_us = result_.default_us * (1 - gain / 100);
    return result_;
  }

 private:
  double elapsed_ms() const { return static_cast<double>(now_() - start_) * 1e-6; }
  bool spent(double share) const {
    return options_.budget_ms > 0 && elapsed_ms() > share * options_.budget_ms;
  }

  // Microseconds per call, or 0 if the clock gave nothing.
  double measure(int i) {
    if (before_) before_(i);
    for (int attempt = 0; attempt < kRetries; ++attempt) {
      const int64_t from = now_();
      for (int r = 0; r < repeats_[i]; ++r) calls_[i]();
      const int64_t ns = now_() - from;
      if (ns > 0) return static_cast<double>(ns) * 1e-3 / repeats_[i];
    }
    return 0;
  }
  double sample(int i) {
    const double us = measure(i);
    if (us > 0) samples_[i].push_back(us);
    return us;
  }

  // Two calls or 1 ms; sets how often a sample repeats the call.
  void warm_up(int i) {
    repeats_[i] = 1;
    double total = 0, once = 0;
    for (int n = 0; n < 2 || (total < 1000 && n < 64); ++n) {
      const double us = measure(i);
      total += us;
      if (us > 0 && (once == 0 || us < once)) once = us;
      if (total >= 1000) break;
    }
    if (once > 0)
      repeats_[i] = static_cast<int>(
          std::clamp(std::ceil(options_.min_sample_us / once), 1.0, double{kMaxRepeats}));
  }

  double score(const std::vector<double>& v) const {
    return options_.cold ? median_of(v) : *std::min_element(v.begin(), v.end());
  }

  void screen() {
    std::vector<double> reference;
    warm_up(0);
    for (int n = 0; n < kScreenSamples; ++n) {
      if (const double us = sample(0); us > 0) reference.push_back(us);
    }
    if (reference.empty()) return;
    const double start = score(reference);
    double drift = 1, best = start;
    for (int i = 1; i < static_cast<int>(calls_.size()) && !spent(0.5); ++i) {
      if (i % kReferenceEvery == 0) {
        // The better of two: one interruption is not a drift.
        const double a = sample(0), b = sample(0);
        if (a > 0 && b > 0) drift = std::clamp(std::min(a, b) / start, 0.5, 2.0);
      }
      warm_up(i);
      std::vector<double> own;
      for (int n = 0; n < kScreenSamples; ++n) {
        const double us = sample(i);
        if (us > 0) own.push_back(us / drift);
        if (us > 0 && n == 0 && us / drift > kHopeless * best) break;
      }
      if (static_cast<int>(own.size()) < kScreenSamples) continue;
      const double s = score(own);
      best = std::min(best, s);
      ranking_.emplace_back(s, i);
    }
    std::stable_sort(ranking_.begin(), ranking_.end());
  }

  void finals() {
    std::mt19937_64 random(options_.seed);
    double best = 1;
    const int n = std::min<int>(options_.finalists, static_cast<int>(ranking_.size()));
    for (int f = 0; f < n && !spent(1); ++f) {
      const int i = ranking_[f].second;
      TimingRow& row = result_.rows[i];
      std::vector<double> ratios;
      bool default_first = random() & 1;
      std::pair<double, double> interval{0, 0};
      for (int n_pairs = 0; n_pairs < options_.max_pairs; ++n_pairs) {
        const double ratio = pair(i, &default_first);
        if (ratio <= 0) continue;
        ratios.push_back(ratio);
        if (static_cast<int>(ratios.size()) < options_.min_pairs) continue;
        interval = median_interval(ratios);
        if (interval.second - interval.first <= options_.narrow || interval.first > 1 || spent(1))
          break;
      }
      if (static_cast<int>(ratios.size()) < options_.min_pairs) continue;
      const double ratio = median_of(ratios);
      row.finalist = true;
      row.gain_lo = 100 * (1 - interval.second);
      row.gain_hi = 100 * (1 - interval.first);
      if (interval.second <= 1 - options_.must_win && ratio < best) {
        best = ratio;
        result_.winner = i;
        result_.tie = false;
      }
    }
    if (!result_.tie && !confirmed(result_.winner, random() & 1)) {
      result_.winner = 0;
      result_.tie = true;
    }
  }

  // Time of candidate over default in one pair of samples, turns taken; 0 if the clock failed.
  double pair(int i, bool* default_first) {
    const bool swapped = std::exchange(*default_first, !*default_first);
    const double first = sample(swapped ? 0 : i), second = sample(swapped ? i : 0);
    const double candidate = swapped ? second : first, reference = swapped ? first : second;
    return candidate > 0 && reference > 0 ? candidate / reference : 0;
  }

  // Sequential sign test on fresh pairs, p0 = .5 against p1 = .8, alpha .01, beta .05: the median
  // selects, this guards.
  bool confirmed(int i, bool default_first) {
    double evidence = 0;
    for (int n = 0; n < kMaxSignPairs; ++n) {
      const double ratio = pair(i, &default_first);
      if (ratio <= 0) continue;
      evidence += ratio < kSignWin ? kSignGain : -kSignLoss;
      if (evidence >= kSignAccept) return true;
      if (evidence <= -kSignReject) return false;
    }
    return false;
  }

  const std::vector<std::function<void()>>& calls_;
  const TimingOptions& options_;
  const std::function<void(int)>& before_;
  std::function<int64_t()> now_;
  int64_t start_ = 0;
  std::vector<std::vector<double>> samples_;
  std::vector<int> repeats_;
  std::vector<std::pair<double, int>> ranking_;
  TimingResult result_;
};

}  // namespace

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

std::pair<double, double> median_interval(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  // Largest k with 2 * P(Binomial(n, 1/2) < k) <= 5 %: the k-th value from either end.
  double term = std::pow(0.5, static_cast<double>(n)), below = 0;
  size_t k = 0;
  while (k < n && 2 * (below + term) <= 0.05) {
    below += term;
    ++k;
    term *= static_cast<double>(n - k + 1) / static_cast<double>(k);
  }
  k = std::max<size_t>(k, 1);
  return {values[k - 1], values[n - k]};
}

TimingResult time_candidates(const std::vector<std::function<void()>>& calls,
                             const TimingOptions& options, const std::function<void(int)>& before) {
  if (calls.empty()) return {};
  return Session(calls, options, before).run();
}

}  // namespace lathe::runtime
