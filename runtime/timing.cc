// See timing.h.
//
//   reference: 3 samples
//   each candidate: warm up, 3 samples          stopped after one that is 1.5x the best; taken again if suspiciously fast
//   every 4 candidates: a reference sample      times are divided by it; if it moved, the four are done again, twice at most
//   finalists: rounds (r a b c d, then back)    ratios to the round's reference sample; the field is halved
//   the best median: a sign test on fresh pairs against the reference, and against the incumbent
#include "runtime/timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <string_view>
#include <tuple>

namespace lathe::runtime {
namespace {

constexpr int kScreenSamples = 3;
constexpr int kReferenceEvery = 4;
constexpr int kLevelOf = 3;         // readings
constexpr int kRequeues = 2;
constexpr double kHopeless = 1.5;
constexpr double kSuspicious = 0.8;  // of the best so far
constexpr double kMoved = 0.05;
constexpr int kRetries = 3;  // of a sample on a clock that stood still or went back
constexpr int kMaxRepeats = 1 << 16;
constexpr int kRounds = 3;          // before the field is halved
constexpr int kSelectRounds = 7;    // of the last two
constexpr int kReserve = 26;        // samples for a sign test
constexpr double kTie = 0.005;
// The sign test: a pair is won below kWin; 1/2 of them by chance, 4/5 if it is faster.
constexpr double kWin = 0.995, kSignGain = 0.470, kSignLoss = 0.916, kSignReject = 2.99;
constexpr double kAlpha = 0.01, kPower = 0.95;
constexpr int kMinIntervalPairs = 6;

int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

TimingSession::TimingSession(TimingOptions options, std::function<void(int)> before)
    : options_(std::move(options)), before_(std::move(before)) {
  if (!options_.now_ns) options_.now_ns = steady_ns;
  start_ = rested_ = options_.now_ns();
}

int TimingSession::add(std::function<void()> call, std::function<void(int)> prepare) {
  Candidate c;
  c.call = std::move(call);
  c.prepare = std::move(prepare);
  candidates_.push_back(std::move(c));
  return static_cast<int>(candidates_.size()) - 1;
}

double TimingSession::elapsed_ms() const {
  return static_cast<double>(options_.now_ns() - start_) * 1e-6;
}
bool TimingSession::spent(double share) const {
  return options_.budget_ms > 0 && elapsed_ms() > share * options_.budget_ms;
}

// Microseconds per call, or 0 if the clock gave nothing.
double TimingSession::measure(int i) {
  if (before_) before_(i);
  const int64_t before = options_.now_ns();
  if (options_.rest && static_cast<double>(before - rested_) * 1e-6 > options_.burst_ms) {
    options_.rest();
    rested_ = options_.now_ns();
  }
  Candidate& c = candidates_[static_cast<size_t>(i)];
  const int calls = std::max(c.repeats, 1);
  for (int attempt = 0; attempt < kRetries; ++attempt) {
    if (c.prepare) c.prepare(calls);
    const int64_t from = options_.now_ns();
    for (int r = 0; r < calls; ++r) c.call();
    const int64_t ns = options_.now_ns() - from;
    if (ns > 0) return static_cast<double>(ns) * 1e-3 / calls;
  }
  return 0;
}

double TimingSession::sample(int i) {
  const double us = measure(i);
  if (i == 0 && us > 0) reference_all_.push_back(us);
  return us;
}

// A sample beyond those of the screening.
double TimingSession::extra(int i) {
  ++further_;
  return sample(i);
}

// Two calls or 1 ms; sets how often a sample repeats the call.
void TimingSession::warm_up(int i) {
  Candidate& c = candidates_[static_cast<size_t>(i)];
  c.repeats = 1;
  double total = 0, once = 0;
  for (int n = 0; n < 2 || (total < 1000 && n < 64); ++n) {
    const double us = measure(i);
    total += us;
    if (us > 0 && (once == 0 || us < once)) once = us;
    if (total >= 1000) break;
  }
  if (once > 0)
    c.repeats = static_cast<int>(
        std::clamp(std::ceil(options_.min_sample_us / once), 1.0, double{kMaxRepeats}));
}

double TimingSession::best_of(const std::vector<double>& v) const {
  return options_.cold ? median_of(v) : *std::min_element(v.begin(), v.end());
}

double TimingSession::score(int i) const {
  const TimingRow& r = row(i);
  if (static_cast<int>(r.samples.size()) < kScreenSamples || r.reference_us <= 0) return 0;
  return best_of(r.samples) / r.reference_us * base_;
}

// Median of the latest readings.
double TimingSession::reference_level() const {
  if (readings_.empty()) return 0;
  const size_t n = std::min<size_t>(readings_.size(), kLevelOf);
  return median_of(std::vector<double>(readings_.end() - static_cast<std::ptrdiff_t>(n), readings_.end()));
}

// How far a reading may lie from the level: 5 %, or three times the usual deviation.
double TimingSession::reference_limit() const {
  const double middle = median_of(readings_);
  std::vector<double> deviations;
  for (const double r : readings_) deviations.push_back(std::abs(r / middle - 1));
  return std::max(kMoved, 3 * median_of(deviations));
}

// One sample of the reference, a second one if the first looks odd; whether the machine moved.
bool TimingSession::read_reference() {
  const double level = reference_level(), limit = reference_limit();
  double us = extra(0);
  if (us <= 0 || level <= 0) return false;
  if (std::abs(us / level - 1) > limit) {
    const double again = extra(0);
    if (again > 0 && std::abs(again - level) < std::abs(us - level)) us = again;
  }
  const bool moved = std::abs(us / level - 1) > limit;
  if (moved) readings_.clear();
  readings_.push_back(us);
  return moved;
}

void TimingSession::screen_one(int i) {
  TimingRow& row = candidates_[static_cast<size_t>(i)].row;
  row.samples.clear();
  const double level = reference_level();
  const auto corrected = [&](double us) { return us / level * base_; };
  if (candidates_[static_cast<size_t>(i)].repeats == 0) warm_up(i);
  for (int n = 0; n < kScreenSamples; ++n) {
    const double us = sample(i);
    if (us > 0) row.samples.push_back(us);
    if (us > 0 && n == 0 && corrected(us) > kHopeless * best_) return;
  }
  if (static_cast<int>(row.samples.size()) < kScreenSamples) return;
  if (corrected(best_of(row.samples)) < kSuspicious * best_ && can_afford(kScreenSamples)) {
    std::vector<double> again;
    for (int n = 0; n < kScreenSamples; ++n) {
      if (const double us = extra(i); us > 0) again.push_back(us);
    }
    if (static_cast<int>(again.size()) == kScreenSamples && best_of(again) > best_of(row.samples)) row.samples = again;
  }
}

void TimingSession::screen(std::span<const int> candidates, const std::function<void(int)>& settled) {
  if (candidates_.empty()) return;
  if (candidates_[0].repeats == 0) {
    warm_up(0);
    TimingRow& own = candidates_[0].row;
    for (int n = 0; n < kScreenSamples; ++n) {
      if (const double us = sample(0); us > 0) own.samples.push_back(us);
    }
    if (!own.samples.empty()) {
      readings_ = own.samples;
      base_ = best_ = own.reference_us = best_of(own.samples);
    }
  }
  std::vector<int> todo;
  for (const int i : candidates) {
    if (i != 0) todo.push_back(i);
    else if (settled) settled(0);
  }
  for (size_t at = 0; at < todo.size();) {
    const size_t end = std::min(at + kReferenceEvery, todo.size());
    const bool dead = base_ <= 0 || spent(0.5);
    if (!dead) {
      for (size_t n = at; n < end; ++n) screen_one(todo[n]);
    }
    const bool moved = !dead && can_afford(2) && read_reference();
    if (moved && candidates_[static_cast<size_t>(todo[at])].row.requeued < kRequeues) {
      for (size_t n = at; n < end; ++n) ++candidates_[static_cast<size_t>(todo[n])].row.requeued;
      continue;
    }
    for (; at < end; ++at) {
      TimingRow& row = candidates_[static_cast<size_t>(todo[at])].row;
      row.reference_us = reference_level();
      row.provisional = moved;
      if (const double s = score(todo[at]); s > 0) best_ = std::min(best_, s);
      if (settled) settled(todo[at]);
    }
  }
}

// A sample of the reference and of each one left; ratios of this round.
void TimingSession::round(const std::vector<int>& active, bool reversed) {
  std::vector<int> order = {0};
  order.insert(order.end(), active.begin(), active.end());
  if (reversed) std::reverse(order.begin(), order.end());
  double reference = 0;
  std::vector<std::pair<int, double>> own;
  for (const int i : order) {
    const double us = extra(i);
    if (i == 0) reference = us;
    else if (us > 0) own.emplace_back(i, us);
  }
  if (reference <= 0) return;
  for (const auto& [i, us] : own) candidates_[static_cast<size_t>(i)].ratios.push_back(us / reference);
}

// Those left in the order of their paired medians; equal within the tie in the stated order.
std::vector<Finalist> TimingSession::select(std::vector<Finalist> field, int incumbent) {
  std::mt19937_64 random(options_.seed);
  bool reversed = random() & 1;
  const auto ratios = [&](const Finalist& f) -> const std::vector<double>& { return candidates_[static_cast<size_t>(f.candidate)].ratios; };
  const auto median = [&](const Finalist& f) { return ratios(f).empty() ? INFINITY : median_of(ratios(f)); };
  const auto sort = [&] { std::stable_sort(field.begin(), field.end(), [&](const Finalist& a, const Finalist& b) { return median(a) < median(b); }); };
  std::vector<int> active;
  for (const Finalist& f : field) active.push_back(f.candidate);
  for (int n = 0; n < kRounds + kSelectRounds && !active.empty() && !spent(1); ++n) {
    // The sign test of the winner has to remain possible.
    const int each = static_cast<int>(active.size()) + 1;
    if (!can_afford(each + (n < kRounds ? 0 : incumbent < 0 ? kReserve : 2 * kReserve))) break;
    round(active, std::exchange(reversed, !reversed));
    if (n + 1 < kRounds) continue;
    sort();
    const double best = median(field[0]);
    std::vector<int> left;
    for (const Finalist& f : field) {
      const bool near = median(f) <= best * (1 + 4 * kTie) && left.size() < 2;
      const bool known = std::find(active.begin(), active.end(), f.candidate) != active.end();
      if (known && (near || f.candidate == incumbent)) left.push_back(f.candidate);
    }
    active = std::move(left);
    if (active.size() == 1 && best < 1 - 2 * options_.must_win) break;
    const auto [lo, hi] = median_interval(ratios(field[0]));
    if (static_cast<int>(ratios(field[0]).size()) >= kMinIntervalPairs && (hi - lo <= options_.narrow || lo > 1)) break;
  }
  sort();
  if (field.empty() || ratios(field[0]).empty()) return {};
  const double limit = median(field[0]) + kTie;
  const auto tied = std::partition_point(field.begin(), field.end(), [&](const Finalist& f) { return median(f) <= limit; });
  std::sort(field.begin(), tied, [&](const Finalist& a, const Finalist& b) {
    const auto rank = [&](const Finalist& f) { return std::tuple(f.candidate != incumbent, f.code_bytes, f.text.size(), std::string_view(f.text)); };
    return rank(a) < rank(b);
  });
  return field;
}

// Time of candidate over `against` in one pair of samples, turns taken; 0 if the clock failed.
double TimingSession::pair(int i, int against, bool* against_first) {
  const bool swapped = std::exchange(*against_first, !*against_first);
  const double first = extra(swapped ? against : i), second = extra(swapped ? i : against);
  const double candidate = swapped ? second : first, reference = swapped ? first : second;
  return candidate > 0 && reference > 0 ? candidate / reference : 0;
}

// On fresh pairs: the median selects, this guards.
TimingSession::Test TimingSession::sign_test(int i, int against, double alpha, std::vector<double>* ratios) {
  std::mt19937_64 random(options_.seed + static_cast<uint64_t>(i) + 1);
  bool against_first = random() & 1;
  const double accept = std::log(kPower / alpha);
  double evidence = 0;
  while (can_afford(2) && !spent(1)) {
    const double ratio = pair(i, against, &against_first);
    if (ratio <= 0) continue;
    ratios->push_back(ratio);
    evidence += ratio < kWin ? kSignGain : -kSignLoss;
    if (evidence <= -kSignReject) return Test::rejected;
    if (evidence >= accept) return Test::accepted;
  }
  return Test::spent;
}

// Better than the reference by must_win for certain, and than the incumbent by the sign test.
bool TimingSession::confirmed(int i, int incumbent, bool strict) {
  ++tests_;
  const double alpha = kAlpha / (tests_ * (tests_ + 1.0)) / (strict ? 10 : 1);
  std::vector<double> fresh;
  if (sign_test(i, 0, alpha, &fresh) != Test::accepted) return false;
  bool against_first = false;
  while (true) {
    const auto [lo, hi] = median_interval(fresh);
    if (hi <= 1 - options_.must_win) break;
    const bool narrow = hi - lo <= options_.narrow;
    if (narrow || lo > 1 - options_.must_win || !can_afford(2) || spent(1)) return false;
    if (const double ratio = pair(i, 0, &against_first); ratio > 0) fresh.push_back(ratio);
  }
  TimingRow& row = candidates_[static_cast<size_t>(i)].row;
  const auto [lo, hi] = median_interval(fresh);
  row.gain_lo = 100 * (1 - hi);
  row.gain_hi = 100 * (1 - lo);
  std::vector<double> unused;
  return incumbent < 0 || incumbent == i || sign_test(i, incumbent, alpha, &unused) == Test::accepted;
}

TimingDecision TimingSession::decide(std::vector<Finalist> finalists, int incumbent) {
  TimingDecision out;
  const bool strict = options_.contended && options_.contended();
  if (!reference_all_.empty()) {
    const std::vector<Finalist> field = select(std::move(finalists), incumbent);
    for (const Finalist& f : field) {
      TimingRow& row = candidates_[static_cast<size_t>(f.candidate)].row;
      const std::vector<double>& ratios = candidates_[static_cast<size_t>(f.candidate)].ratios;
      if (ratios.empty()) continue;
      const auto [lo, hi] = median_interval(ratios);
      row.finalist = true;
      row.gain_lo = 100 * (1 - hi);
      row.gain_hi = 100 * (1 - lo);
    }
    for (const Finalist& f : field) {
      const std::vector<double>& ratios = candidates_[static_cast<size_t>(f.candidate)].ratios;
      if (ratios.empty() || median_of(ratios) >= 1 - options_.must_win / 2) continue;
      if (f.candidate != incumbent && !confirmed(f.candidate, incumbent, strict)) continue;
      // What serves already was confirmed when it came; it goes only if it is slower for certain.
      out.winner = f.candidate;
      out.tie = false;
      break;
    }
  }
  if (!reference_all_.empty()) out.reference_us = median_of(reference_all_);
  const TimingRow& winner = row(out.winner);
  const double gain = out.winner == 0 ? 0 : (winner.gain_lo + winner.gain_hi) / 2;
  out.best_us = out.reference_us * (1 - gain / 100);
  return out;
}

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

bool processor_contended() {
  std::FILE* file = std::fopen("/proc/pressure/cpu", "re");
  if (file == nullptr) return false;
  double average = 0;
  const bool read = std::fscanf(file, "some avg10=%lf", &average) == 1;
  std::fclose(file);
  return read && average > 20;
}

}  // namespace lathe::runtime
