// See timing.h.
//
//   reference              3 samples
//   four candidates        warm up, three passes; one is left out after two samples of 1.5x the best, taken again if
//                          suspiciously fast
//   each pass              a reference sample first: times are divided by it; if it moved, the four are done again,
//                          twice at most (one in the end, then one every 8, where many have been spent)
//   finalists              rounds (r a b c d, then back), over the reference's samples around then
//   what is near the best  rounds (a b, b a), over the least of them around then
//   the best               fresh samples in random order with the reference, and the incumbent; a rank test
//                          (rank_test.h) after 6, 9, 14 turns, ...
#include "runtime/measure/timing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <random>
#include <string_view>
#include <tuple>

#include "runtime/base/clock.h"
#include "runtime/measure/rank_test.h"

namespace lathe::runtime {
namespace {

constexpr int kScreenSamples = 3;
constexpr int kReferenceEvery = 4;  // candidates; twice as many once half of what screening may spend is spent
constexpr int kForDeciding = 40;    // samples that screening leaves: three rounds of five, twelve turns of two
constexpr int kLevelOf = 3;         // readings
constexpr int kRequeues = 2;
constexpr double kHopeless = 1.5;
constexpr double kSuspicious = 0.8;  // of the best so far
constexpr double kMoved = 0.05, kMovedCold = 0.15;
constexpr int kPlacementsOfLong = 2;  // of calls longer than a sample
constexpr int kRetries = 3;           // of a sample on a clock that stood still or went back
constexpr int kRounds = 3;            // of all finalists
constexpr double kNear = 0.02;        // of the best: they go on among themselves
constexpr size_t kMostNear = 3;
constexpr int kDuelRounds = 12;   // of these
constexpr int kSelectRounds = 7;  // of a single one that gains little
constexpr int kReserve = 16;      // turns left for the test of the winner
constexpr double kTie = 0.005;
// That test: turns before each look, how probable chance may be for it to go on; the margin, and the levels.
constexpr int kNumLooks = 4, kLeastLook = 2;
constexpr int kLooks[kNumLooks] = {6, 3, 5, 16};
constexpr double kFutile[kNumLooks] = {0.5, 0.3, 0.1, 0};
constexpr double kWin = 0.995, kAlpha = 0.01, kMustLevel = 0.05;
constexpr int kMinIntervalPairs = 6;

// The candidate's readings over the other's, each over the next.
std::vector<double> paired(const std::vector<Reading>& readings) {
  std::vector<double> own, other, out;
  for (const Reading& r : readings) (r.candidate ? own : other).push_back(r.us);
  for (size_t n = 0; n < std::min(own.size(), other.size()); ++n) out.push_back(own[n] / other[n]);
  return out;
}

// By the less disturbed of its readings (the least of up to four, the second of up to eight), each over the least of
// others around then.
double low_ratio(const std::vector<std::pair<size_t, double>>& readings, const std::vector<double>& rounds) {
  std::vector<double> ratios;
  for (const auto& [n, us] : readings) {
    const auto from = rounds.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(n, 1) - 1);
    const auto to = rounds.begin() + static_cast<std::ptrdiff_t>(std::min(n + 2, rounds.size()));
    ratios.push_back(us / *std::min_element(from, to));
  }
  if (ratios.empty()) return INFINITY;
  const auto at = ratios.begin() + static_cast<std::ptrdiff_t>((ratios.size() - 1) / 4);
  std::nth_element(ratios.begin(), at, ratios.end());
  return *at;
}

}  // namespace

TimingSession::TimingSession(TimingOptions options, std::function<void(int)> before)
    : options_(std::move(options)), before_(std::move(before)), placements_(std::max(options_.placements, 1)) {
  if (!options_.now_ns) options_.now_ns = now_ns;
  if (options_.min_sample_us <= 0) options_.min_sample_us = sample_us(options_.cold, false);
  start_ = options_.now_ns();
}

int TimingSession::add(std::function<void()> call, std::function<void(int)> prepare) {
  Candidate c;
  c.call = std::move(call);
  c.prepare = std::move(prepare);
  candidates_.push_back(std::move(c));
  return static_cast<int>(candidates_.size()) - 1;
}

double TimingSession::elapsed_ms() const { return static_cast<double>(options_.now_ns() - start_) * 1e-6; }
bool TimingSession::spent(double share) const {
  return options_.budget_ms > 0 && elapsed_ms() > share * options_.budget_ms;
}

double TimingSession::measure(int i, int placements) {
  if (before_) before_(i);
  Candidate& c = candidates_[static_cast<size_t>(i)];
  const int calls = std::max(c.repeats, 1);
  placed_.clear();
  for (int p = 0; p < placements; ++p) {
    if (options_.place) options_.place(p);
    double us = 0;
    for (int attempt = 0; attempt < kRetries && us <= 0; ++attempt) {
      if (c.prepare) c.prepare(calls);
      us = sampled_us(calls, std::max(c.at_once, 1), c.call, options_.now_ns);
    }
    if (us <= 0) return 0;
    placed_.push_back(us);
  }
  return std::accumulate(placed_.begin(), placed_.end(), 0.0) / placements;
}

double TimingSession::sample(int i) {
  const double us = measure(i, placements_);
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
  c.repeats = c.at_once = 1;
  double total = 0, once = 0;
  for (int n = 0; n < 2 || (total < 1000 && n < 64); ++n) {
    const double us = measure(i, 1);
    total += us;
    if (us > 0 && (once == 0 || us < once)) once = us;
    if (total >= 1000) break;
  }
  if (once <= 0) return;
  // The same for all: by the reference, which comes first.
  if (i == 0 && once > options_.min_sample_us) placements_ = std::min(placements_, kPlacementsOfLong);
  c.repeats = calls_in(options_.min_sample_us / placements_, once);
  c.at_once = std::min(c.repeats, calls_at_once(once));
}

double TimingSession::best_of(const std::vector<double>& v) const {
  return options_.cold ? median_of(v) : *std::min_element(v.begin(), v.end());
}

double TimingSession::score(int i) const {
  const TimingRow& r = row(i);
  if (static_cast<int>(r.samples.size()) < kScreenSamples || r.reference_us <= 0) return 0;
  return best_of(r.samples) / r.reference_us * base_;
}

// By the latest readings.
double TimingSession::reference_level() const {
  if (readings_.empty()) return 0;
  const size_t n = std::min<size_t>(readings_.size(), kLevelOf);
  return best_of(std::vector<double>(readings_.end() - static_cast<std::ptrdiff_t>(n), readings_.end()));
}

// How far a reading may lie from the level: 5 %, of memory 15 %, or three times the usual deviation.
double TimingSession::reference_limit() const {
  const double middle = median_of(readings_);
  std::vector<double> deviations;
  for (const double r : readings_) deviations.push_back(std::abs(r / middle - 1));
  return std::max(options_.cold ? kMovedCold : kMoved, 3 * median_of(deviations));
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

double TimingSession::corrected(double us) const { return us / reference_level() * base_; }

// In passes over all of them: what disturbs the machine for a while disturbs one sample of each. The reference goes
// first in each pass if there are samples enough, else once in the end. Whether the machine moved meanwhile.
bool TimingSession::screen_batch(std::span<const int> batch, bool plenty) {
  for (const int i : batch) {
    Candidate& c = candidates_[static_cast<size_t>(i)];
    if (c.repeats == 0) warm_up(i);
    c.row.samples.clear();
  }
  bool moved = false;
  for (int pass = 0; pass < kScreenSamples; ++pass) {
    if (plenty && read_reference()) moved |= pass > 0;
    for (size_t n = 0; n < batch.size(); ++n) {
      const int i = batch[pass % 2 == 0 ? n : batch.size() - 1 - n];
      std::vector<double>& samples = candidates_[static_cast<size_t>(i)].row.samples;
      const bool hopeless = samples.size() == 2 && corrected(std::min(samples[0], samples[1])) > kHopeless * best_;
      if (hopeless) continue;
      if (const double us = sample(i); us > 0) samples.push_back(us);
    }
  }
  if (!plenty && can_afford(2 + kForDeciding)) moved = read_reference();
  for (const int i : batch) doubt(i);
  return moved;
}

// What is suspiciously fast is taken again.
void TimingSession::doubt(int i) {
  TimingRow& row = candidates_[static_cast<size_t>(i)].row;
  if (static_cast<int>(row.samples.size()) < kScreenSamples || !can_afford(kScreenSamples + kForDeciding)) return;
  if (corrected(best_of(row.samples)) >= kSuspicious * best_) return;
  std::vector<double> again;
  for (int n = 0; n < kScreenSamples; ++n) {
    if (const double us = extra(i); us > 0) again.push_back(us);
  }
  if (static_cast<int>(again.size()) == kScreenSamples && best_of(again) > best_of(row.samples)) row.samples = again;
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
    if (i != 0)
      todo.push_back(i);
    else if (settled)
      settled(0);
  }
  for (size_t at = 0; at < todo.size();) {
    const bool plenty = can_afford((options_.further - kForDeciding) / 2 + kForDeciding);
    const size_t end = std::min(at + (plenty ? 1 : 2) * kReferenceEvery, todo.size());
    const bool dead = base_ <= 0 || spent(0.5);
    const bool moved = !dead && screen_batch(std::span(todo).subspan(at, end - at), plenty);
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
    if (i == 0)
      reference = us;
    else if (us > 0)
      own.emplace_back(i, us);
  }
  if (reference <= 0) return;
  rounds_.push_back(reference);
  for (const auto& [i, us] : own) candidates_[static_cast<size_t>(i)].in_rounds.push_back({rounds_.size() - 1, us});
}

// Over the reference's.
double TimingSession::level(int i) const { return low_ratio(candidates_[static_cast<size_t>(i)].in_rounds, rounds_); }

std::vector<double> TimingSession::ratios(int i) const {
  std::vector<double> out;
  for (const auto& [n, us] : candidates_[static_cast<size_t>(i)].in_rounds) out.push_back(us / rounds_[n]);
  return out;
}

// In turns without the reference, as many as leave `reserve` samples: its level among the rivals, for each.
std::vector<double> TimingSession::duel(const std::vector<int>& rivals, int reserve) {
  std::vector<double> least = rounds_;
  std::vector<std::vector<std::pair<size_t, double>>> readings;
  for (size_t n = 0; n < least.size(); ++n) least[n] = INFINITY;
  const auto take = [&](size_t n, double us) { least[n] = std::min(least[n], us); };
  for (const int r : rivals) {
    readings.push_back(candidates_[static_cast<size_t>(r)].in_rounds);
    for (const auto& [n, us] : readings.back()) take(n, us);
  }
  const int count = static_cast<int>(rivals.size());
  for (int n = 0; n < kDuelRounds && can_afford(count + reserve) && !spent(1); ++n) {
    least.push_back(INFINITY);
    for (int k = 0; k < count; ++k) {
      const size_t who = static_cast<size_t>(n % 2 == 0 ? k : count - 1 - k);
      const double us = extra(rivals[who]);
      if (us <= 0) continue;
      readings[who].emplace_back(least.size() - 1, us);
      take(least.size() - 1, us);
    }
  }
  std::vector<double> out;
  for (const auto& own : readings) out.push_back(low_ratio(own, least));
  return out;
}

// In the order of their levels, the near ones by those among themselves; equal within the tie in the stated order.
std::vector<Finalist> TimingSession::select(std::vector<Finalist> field, int incumbent) {
  std::mt19937_64 random(options_.seed);
  bool reversed = random() & 1;
  const auto faster = [&](const Finalist& a, const Finalist& b) { return level(a.candidate) < level(b.candidate); };
  const auto sort = [&] { std::stable_sort(field.begin(), field.end(), faster); };
  std::vector<int> active;
  for (const Finalist& f : field) active.push_back(f.candidate);
  for (int n = 0; n < kRounds && !active.empty() && !spent(1); ++n) {
    if (!can_afford(static_cast<int>(active.size()) + 1)) break;
    round(active, std::exchange(reversed, !reversed));
  }
  sort();
  if (field.empty() || rounds_.empty()) return {};
  const double best = level(field[0].candidate);
  if (!std::isfinite(best)) return {};
  std::vector<int> near;
  for (const Finalist& f : field) {
    if (level(f.candidate) <= best * (1 + kNear) && near.size() < kMostNear) near.push_back(f.candidate);
  }
  // The test of the winner has to remain possible.
  const int reserve = kReserve * (incumbent < 0 ? 2 : 3);
  std::vector<double> place;
  for (const Finalist& f : field) place.push_back(level(f.candidate));
  if (near.size() > 1) {
    const std::vector<double> among = duel(near, reserve);
    const double ahead = *std::min_element(among.begin(), among.end());
    for (size_t n = 0; n < near.size(); ++n) place[n] = best * among[n] / ahead;
  } else if (best >= 1 - 2 * options_.must_win) {
    for (int n = 0; n < kSelectRounds && !spent(1) && can_afford(2 + reserve); ++n) {
      round(near, std::exchange(reversed, !reversed));
      const std::vector<double> so_far = ratios(near[0]);
      const auto [lo, hi] = median_interval(so_far);
      if (static_cast<int>(so_far.size()) >= kMinIntervalPairs && (hi - lo <= options_.narrow || lo > 1)) break;
    }
    place[0] = level(near[0]);
  }
  std::vector<size_t> order(field.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return place[a] < place[b]; });
  const double limit = place[order[0]] * (1 + kTie);
  const auto tied = std::partition_point(order.begin(), order.end(), [&](size_t n) { return place[n] <= limit; });
  std::sort(order.begin(), tied, [&](size_t a, size_t b) {
    const auto rank = [&](const Finalist& f) {
      return std::tuple(f.candidate != incumbent, f.code_bytes, f.text.size(), std::string_view(f.text));
    };
    return rank(field[a]) < rank(field[b]);
  });
  std::vector<Finalist> out;
  for (const size_t n : order) out.push_back(std::move(field[n]));
  return out;
}

// On fresh samples in an order drawn at random: true if it is faster than the incumbent, and than the reference by
// must_win, for certain. What is clear ends early; `alpha` is shared out among the looks.
bool TimingSession::confirmed(int i, int incumbent, double alpha) {
  std::mt19937_64 random(options_.seed + static_cast<uint64_t>(i) + 1);
  std::vector<int> others = {0};
  if (incumbent >= 0 && incumbent != i) others.push_back(incumbent);
  std::vector<std::vector<Reading>> against(others.size());
  std::vector<PlacedReading> placed;  // against the reference
  const int turn = static_cast<int>(others.size()) + 1;
  const double share = 1.0 / kNumLooks, win = 1 / kWin, must = 1 / (1 - options_.must_win);
  for (int look = 0; look < kNumLooks; ++look) {
    const int each = std::min(kLooks[look], (options_.further - further_) / turn);
    if (each < kLeastLook) return false;
    std::vector<int> order;
    for (int n = 0; n < each; ++n) {
      order.push_back(i);
      order.insert(order.end(), others.begin(), others.end());
    }
    std::shuffle(order.begin(), order.end(), random);
    for (const int who : order) {
      if (spent(1)) return false;
      const double us = extra(who);
      if (us <= 0) continue;
      if (who == i || who == 0) placed.push_back({placed_, who == i, look});
      for (size_t o = 0; o < others.size(); ++o) {
        if (who == i || who == others[o]) against[o].push_back({us, who == i, look});
      }
    }
    double chance = 0;  // that this is nothing, at most
    for (const std::vector<Reading>& readings : against) chance = std::max(chance, rank_test(readings, win));
    const std::vector<double> ratios = paired(against[0]);
    if (ratios.empty()) return false;
    if (chance <= alpha * share && rank_test(against[0], must) <= kMustLevel * share &&
        median_of(ratios) <= 1 - options_.must_win &&
        (placements_ == 1 || rank_test(without_best(placed), must) <= kMustLevel * share)) {
      const auto [lo, hi] = median_interval(ratios);
      TimingRow& row = candidates_[static_cast<size_t>(i)].row;
      row.gain_lo = 100 * (1 - hi);
      row.gain_hi = 100 * (1 - lo);
      return true;
    }
    if (chance > kFutile[look]) return false;
  }
  return false;
}

TimingDecision TimingSession::decide(std::vector<Finalist> finalists, int incumbent) {
  TimingDecision out;
  const bool strict = options_.contended && options_.contended();
  if (!reference_all_.empty()) {
    const std::vector<Finalist> field = select(std::move(finalists), incumbent);
    for (const Finalist& f : field) {
      TimingRow& row = candidates_[static_cast<size_t>(f.candidate)].row;
      const std::vector<double> seen = ratios(f.candidate);
      if (seen.empty()) continue;
      const auto [lo, hi] = median_interval(seen);
      row.finalist = true;
      row.gain_lo = 100 * (1 - hi);
      row.gain_hi = 100 * (1 - lo);
    }
    for (const Finalist& f : field) {
      if (level(f.candidate) >= 1 - options_.must_win / 2) continue;
      if (f.candidate != incumbent) {
        ++tests_;
        if (!confirmed(f.candidate, incumbent, kAlpha / (tests_ * (tests_ + 1.0)) / (strict ? 10 : 1))) continue;
      }
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
