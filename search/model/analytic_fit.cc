// Gauss-Newton on log(model) - log(measured): each step is a small non-negative least-squares problem, solved by
// coordinate descent on its normal equations. See analytic_fit.h.
#include "search/model/analytic_fit.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace lathe::search {

namespace {

// compute, l1, l2, l3, dram, call, task, barrier: multiples of the measured cost.
constexpr size_t kCoefficients = 8;
using Coefficients = std::array<double, kCoefficients>;
constexpr size_t kMinRows = 32;
constexpr int kSteps = 12, kSweeps = 60;
constexpr double kLeast = 0.05, kMost = 20, kHold = 0.02;  // range of a multiple; pull towards 1, per unit of weight

struct Sample {
  Coefficients parts{};  // microseconds at the measured rates
  double us = 0, weight = 1;
};

// log of the model's time and its derivatives.
double log_model(const Sample& s, const Coefficients& c, Coefficients* slope) {
  size_t memory = 1;
  for (size_t i = 2; i <= 4; ++i) {
    if (c[i] * s.parts[i] > c[memory] * s.parts[memory]) memory = i;
  }
  const double compute = c[0] * s.parts[0], moved = c[memory] * s.parts[memory];
  const bool bound = compute >= moved;
  double us = bound ? compute + 0.3 * moved : moved + 0.3 * compute;
  for (size_t i = 5; i < kCoefficients; ++i) us += c[i] * s.parts[i];
  us = std::max(us, 1e-6);
  slope->fill(0);
  (*slope)[0] = (bound ? 1 : 0.3) * s.parts[0] / us;
  (*slope)[memory] = (bound ? 0.3 : 1) * s.parts[memory] / us;
  for (size_t i = 5; i < kCoefficients; ++i) (*slope)[i] = s.parts[i] / us;
  return std::log(us);
}

std::vector<Sample> samples_of(std::span<const TaskRecord> records, const ir::Target& target,
                               const MachineRates& rates) {
  std::vector<Sample> out;
  for (const TaskRecord& record : records) {
    const Recipe* recipe = find_recipe(record.problem);
    const Featurizer featurizer(record.problem, target, rates, recipe);
    double best = 0;
    const auto usable = [&](const MeasuredRow& row) {
      return row.outcome == OutcomeKind::timed && row.extra.empty() && recipe != nullptr && !row.recipe.empty() &&
             row.us(record.problem.cold) > 0;
    };
    for (const MeasuredRow& row : record.rows) {
      if (usable(row) && (best == 0 || row.us(record.problem.cold) < best)) best = row.us(record.problem.cold);
    }
    for (const MeasuredRow& row : record.rows) {
      if (!usable(row)) continue;
      const AnalyticCost c = featurizer.of(row.knobs).cost;
      Sample s;
      s.parts = {c.compute,
                 c.l1,
                 c.l2,
                 c.l3,
                 c.dram,
                 c.calls * rates.call_us,
                 c.tasks * rates.task_us,
                 c.barriers * rates.barrier_us};
      s.us = row.us(record.problem.cold);
      // The fast end matters: what is ordered is there.
      s.weight = record.trust * (0.05 + std::pow(best / s.us, 2)) / static_cast<double>(record.rows.size());
      out.push_back(s);
    }
  }
  return out;
}

// One step: the coefficients that minimise the linearised squared error, none outside its range.
Coefficients step(const std::vector<Sample>& samples, const Coefficients& at) {
  std::array<Coefficients, kCoefficients> normal{};
  Coefficients right{};
  double weight = 0;
  for (const Sample& s : samples) {
    Coefficients slope;
    double target = std::log(s.us) - log_model(s, at, &slope);
    for (size_t i = 0; i < kCoefficients; ++i) target += slope[i] * at[i];
    for (size_t i = 0; i < kCoefficients; ++i) {
      for (size_t j = 0; j < kCoefficients; ++j) normal[i][j] += s.weight * slope[i] * slope[j];
      right[i] += s.weight * slope[i] * target;
    }
    weight += s.weight;
  }
  for (size_t i = 0; i < kCoefficients; ++i) {
    normal[i][i] += kHold * weight;
    right[i] += kHold * weight;
  }
  Coefficients c = at;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (size_t i = 0; i < kCoefficients; ++i) {
      double rest = right[i];
      for (size_t j = 0; j < kCoefficients; ++j) rest -= j == i ? 0 : normal[i][j] * c[j];
      c[i] = std::clamp(rest / normal[i][i], kLeast, kMost);
    }
  }
  return c;
}

double error_of(const std::vector<Sample>& samples, const Coefficients& c) {
  double sum = 0, weight = 0;
  Coefficients slope;
  for (const Sample& s : samples) {
    sum += s.weight * std::pow(log_model(s, c, &slope) - std::log(s.us), 2);
    weight += s.weight;
  }
  for (const double x : c) sum += kHold * weight * std::pow(x - 1, 2);
  return sum;
}

}  // namespace

MachineRates fit_rates(std::span<const TaskRecord> records, const ir::Target& target, const MachineRates& measured) {
  const std::vector<Sample> samples = samples_of(records, target, measured);
  if (samples.size() < kMinRows) return measured;
  Coefficients c;
  c.fill(1);
  double error = error_of(samples, c);
  for (int i = 0; i < kSteps; ++i) {
    const Coefficients full = step(samples, c);
    bool better = false;
    for (double share = 1; share > 0.05 && !better;
         share /= 2) {  // the model bends: shorter steps where the line misleads
      Coefficients next;
      for (size_t j = 0; j < kCoefficients; ++j) next[j] = c[j] + share * (full[j] - c[j]);
      const double e = error_of(samples, next);
      if (e < error * (1 - 1e-6)) {
        c = next;
        error = e;
        better = true;
      }
    }
    if (!better) break;
  }
  MachineRates out = measured;
  out.flops /= c[0];
  out.l1 /= c[1];
  out.l2 /= c[2];
  out.l3 /= c[3];
  out.dram /= c[4];
  out.call_us *= c[5];
  out.task_us *= c[6];
  out.barrier_us *= c[7];
  return out;
}

}  // namespace lathe::search
