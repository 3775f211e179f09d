// See surrogate.h. Covariances are those of the unexplained part plus one constant, which stands for the task's unknown
// level.
#include "search/strategy/surrogate.h"

#include <algorithm>
#include <cmath>

#include "ir/analysis/analysis.h"

namespace lathe::search {

namespace {
constexpr double kLevel = 9;      // variance of the task's level
constexpr double kMoveApart = 1;  // distance that a move makes which only one of two has
constexpr double kPi = 3.14159265358979323846;
}  // namespace

double Belief::expected_gain() const {
  if (!(sigma > 1e-9)) return std::max(mean, 0.0);
  const double z = mean / sigma;
  return mean * 0.5 * std::erfc(-z / std::sqrt(2.0)) + sigma * std::exp(-0.5 * z * z) / std::sqrt(2 * kPi);
}

int Surrogate::add(const SpacePoint& point, double prior) {
  for (const auto& [name, value] : point.knobs) {
    if (std::find(names_.begin(), names_.end(), name) != names_.end()) continue;
    names_.push_back(name);
    for (Candidate& c : candidates_) c.knobs.push_back(coded_knob({}, name));
  }
  Candidate c;
  for (const std::string& name : names_) c.knobs.push_back(coded_knob(point.knobs, name));
  for (const Move& m : point.extra) c.moves.push_back(ir::hash_text(to_text(m)));
  std::sort(c.moves.begin(), c.moves.end());
  c.prior = prior;
  candidates_.push_back(std::move(c));
  return static_cast<int>(candidates_.size()) - 1;
}

double Surrogate::covariance(const Candidate& a, const Candidate& b) const {
  double apart = 0;
  for (size_t i = 0; i < a.knobs.size(); ++i) apart += coded_distance(a.knobs[i], b.knobs[i]);
  std::vector<uint64_t> only;
  if (!a.moves.empty() || !b.moves.empty()) {
    std::set_symmetric_difference(a.moves.begin(), a.moves.end(), b.moves.begin(), b.moves.end(),
                                  std::back_inserter(only));
    apart += kMoveApart * static_cast<double>(only.size());
  }
  return params_.spread * params_.spread * std::exp(-apart / params_.reach) + kLevel;
}

void Surrogate::observe(int candidate, double us) {
  const Candidate& c = candidates_[static_cast<size_t>(candidate)];
  // A row of the Cholesky factor more.
  std::vector<double> row;
  row.reserve(observed_.size() + 1);
  for (size_t i = 0; i < observed_.size(); ++i) {
    double sum = covariance(c, candidates_[static_cast<size_t>(observed_[i])]);
    for (size_t j = 0; j < i; ++j) sum -= row[j] * factor_[i][j];
    row.push_back(sum / factor_[i][i]);
  }
  double rest = covariance(c, c) + params_.noise * params_.noise;
  for (const double r : row) rest -= r * r;
  row.push_back(std::sqrt(std::max(rest, 1e-9)));
  const double speed = -std::log2(us);
  if (observed_.empty()) zero_ = speed - c.prior;
  double left = speed - c.prior - zero_;
  for (size_t j = 0; j < left_.size(); ++j) left -= row[j] * left_[j];
  left_.push_back(left / row.back());
  best_ = observed_.empty() ? speed : std::max(best_, speed);
  factor_.push_back(std::move(row));
  observed_.push_back(candidate);
  speed_.push_back(speed);
}

void Surrogate::forget_after(int n) {
  const size_t keep = std::min(static_cast<size_t>(n), observed_.size());
  factor_.resize(keep);
  observed_.resize(keep);
  speed_.resize(keep);
  left_.resize(keep);
  for (Candidate& c : candidates_) c.solved.resize(std::min(c.solved.size(), keep));
  if (keep > 0) best_ = *std::max_element(speed_.begin(), speed_.end());
}

Belief Surrogate::of(int candidate) const {
  const Candidate& c = candidates_[static_cast<size_t>(candidate)];
  c.solved.reserve(observed_.size());
  for (size_t i = c.solved.size(); i < observed_.size(); ++i) {
    double sum = covariance(c, candidates_[static_cast<size_t>(observed_[i])]);
    for (size_t j = 0; j < i; ++j) sum -= factor_[i][j] * c.solved[j];
    c.solved.push_back(sum / factor_[i][i]);
  }
  double mean = c.prior, left = params_.spread * params_.spread + kLevel;
  for (size_t i = 0; i < observed_.size(); ++i) {
    mean += c.solved[i] * left_[i];
    left -= c.solved[i] * c.solved[i];
  }
  if (observed_.empty()) return {mean, 0};
  return {mean + zero_ - best_, std::sqrt(std::max(left, 0.0))};
}

}  // namespace lathe::search
