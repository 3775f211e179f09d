// See table_task.h.
//
// Confirm passes are divided by the level of their pass (the median over all confirmed rows), so that a pass in which
// the whole machine was slower counts like the others. Even ones are what a selection may see, odd ones judge. Rows
// that were not confirmed were not among the best: their time is that of the screening passes, scaled to the confirmed
// ones, and never below the best.
#include "bench/search/table_task.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace lathe::bench {

using search::Knobs;

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

TableSpace::TableSpace(const MeasuredTask& task, const ir::Target& target, const search::MachineRates& rates)
    : default_(task.default_row) {
  const search::Featurizer featurizer(task.problem, target, rates, search::find_recipe(task.problem));
  std::map<std::string, std::set<int64_t>> values;
  for (size_t i = 0; i < task.rows.size(); ++i) {
    const Knobs& k = task.rows[i].knobs;
    const search::Featurizer::Result seen = featurizer.of(k);
    points_.push_back({k, {}, seen.x, seen.us});
    exact_.emplace(k, static_cast<int>(i));
    for (const auto& [name, value] : k) values[name].insert(value);
  }
  for (const std::string& name : task.knob_names)
    domains_.push_back({name, {values[name].begin(), values[name].end()}});
  neighbours_.resize(points_.size());
}

int TableSpace::nearest(const Knobs& knobs) {
  if (const auto it = exact_.find(knobs); it != exact_.end()) return it->second;
  ++off_grid_;
  const auto [it, fresh] = mapped_.emplace(knobs, -1);
  if (!fresh) return it->second;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < points_.size(); ++i) {
    const double d = search::knob_distance(points_[i].knobs, knobs);
    if (d < least) {
      least = d;
      it->second = static_cast<int>(i);
    }
  }
  return it->second;
}

std::vector<int> TableSpace::neighbours(int i) {
  std::vector<int>& out = neighbours_[static_cast<size_t>(i)];
  if (!out.empty()) return out;
  const Knobs& from = at(i).knobs;
  for (const search::KnobDomain& d : domains_) {
    Knobs k = from;
    const auto start = std::find(d.values.begin(), d.values.end(), k[d.name]);
    // The next two measured values on either side.
    for (const int step : {1, -1}) {
      int found = 0;
      for (auto v = start - d.values.begin() + step; v >= 0 && v < static_cast<long>(d.values.size()) && found < 2;
           v += step) {
        k[d.name] = d.values[static_cast<size_t>(v)];
        if (const auto it = exact_.find(k); it != exact_.end()) {
          out.push_back(it->second);
          ++found;
        }
      }
    }
  }
  if (out.empty()) {  // nothing along an axis: the four nearest
    std::vector<std::pair<double, int>> all;
    for (int j = 0; j < size(); ++j) {
      if (j != i) all.emplace_back(search::knob_distance(from, at(j).knobs), j);
    }
    std::sort(all.begin(), all.end());
    for (size_t n = 0; n < all.size() && n < 4; ++n) out.push_back(all[n].second);
  }
  return out;
}

static double reduced(const std::vector<double>& samples, bool cold) {
  return cold ? median(samples) : *std::min_element(samples.begin(), samples.end());
}

RowTimes row_times(const MeasuredTask& m) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const size_t n = m.rows.size();
  RowTimes out;
  out.us.assign(n, kNone);
  out.confirmed.resize(n);
  std::vector<double> screened(n, kNone), ratios;
  for (size_t i = 0; i < n; ++i) {
    std::vector<double> passes;
    for (const std::vector<double>& p : m.rows[i].passes) passes.push_back(reduced(p, m.problem.cold));
    if (!passes.empty()) screened[i] = median(passes);
    out.passes = std::max(out.passes, static_cast<int>(m.rows[i].confirm.size()));
  }
  const auto confirmed = [&](size_t i) {
    return out.passes > 0 && static_cast<int>(m.rows[i].confirm.size()) == out.passes;
  };
  std::vector<double> level;
  for (int p = 0; p < out.passes; ++p) {
    std::vector<double> of_pass;
    for (size_t i = 0; i < n; ++i) {
      if (confirmed(i)) of_pass.push_back(m.rows[i].confirm[static_cast<size_t>(p)]);
    }
    level.push_back(median(of_pass));
  }
  const double overall = out.passes > 0 ? median(level) : 1;
  const std::vector<double>& again = m.rows[static_cast<size_t>(m.default_row)].again;
  for (size_t p = 0; p < again.size(); ++p) out.again.push_back(again[p] / level[p] * overall);
  const auto faster = [&](size_t i) { return out.best < 0 || out.us[i] < out.us[static_cast<size_t>(out.best)]; };
  for (size_t i = 0; i < n; ++i) {
    if (!confirmed(i)) continue;
    for (int p = 0; p < out.passes; ++p)
      out.confirmed[i].push_back(m.rows[i].confirm[static_cast<size_t>(p)] / level[static_cast<size_t>(p)] * overall);
    out.us[i] = median(out.confirmed[i]);
    ratios.push_back(out.us[i] / screened[i]);
    if (faster(i)) out.best = static_cast<int>(i);
  }
  out.scale = ratios.empty() ? 1 : median(ratios);
  const double floor = out.best < 0 ? 0 : out.us[static_cast<size_t>(out.best)];
  for (size_t i = 0; i < n; ++i) {
    if (!std::isnan(out.us[i]) || std::isnan(screened[i])) continue;
    out.us[i] = std::max(floor, screened[i] * out.scale);
    if (faster(i)) out.best = static_cast<int>(i);
  }
  return out;
}

TableTask::TableTask(const MeasuredTask& m, const ir::Target& target, const search::MachineRates& rates)
    : measured_(&m), space_(m, target, rates), times_(row_times(m)) {
  std::vector<double> all;
  for (double us : times_.us) {
    if (!std::isnan(us)) all.push_back(us);
  }
  standard_ = m.default_row;
  if (const search::Recipe* recipe = search::find_recipe(m.problem)) {
    Knobs now = recipe->defaults(m.problem, target);
    // Knobs that came later stand as they did before them.
    std::erase_if(now, [&](const auto& k) {
      return std::find(m.knob_names.begin(), m.knob_names.end(), k.first) == m.knob_names.end();
    });
    for (size_t i = 0; i < m.rows.size(); ++i) {
      if (m.rows[i].knobs == now && timed(static_cast<int>(i))) standard_ = static_cast<int>(i);
    }
  }
  space_.set_default(standard_);
  best_us_ = times_.us[static_cast<size_t>(times_.best)];
  median_share_ = best_us_ / median(all);

  // The reference: the best by the even passes; judged by the odd ones.
  const size_t n = m.rows.size();
  fresh_.assign(n, 0);
  int reference = times_.best;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < n; ++i) {
    const std::vector<double>& of = times_.confirmed[i];
    std::vector<double> even;
    for (size_t p = 0; p < of.size(); p += 2) even.push_back(of[p]);
    if (!even.empty() && median(even) < least) {
      least = median(even);
      reference = static_cast<int>(i);
    }
  }
  const std::vector<double>& r = times_.confirmed[static_cast<size_t>(reference)];
  for (size_t i = 0; i < n; ++i) {
    const std::vector<double>& of = times_.confirmed[i];
    if (std::isnan(times_.us[i])) continue;
    std::vector<double> pairs;
    for (size_t p = 1; p < of.size() && p < r.size(); p += 2) pairs.push_back(r[p] / of[p]);
    fresh_[i] = pairs.empty() ? times_.us[static_cast<size_t>(reference)] / times_.us[i] : median(pairs);
  }
}

double TableTask::sample(int row, size_t pass, Random& random) const {
  const std::vector<double>& own = row == kAgain ? times_.again : times_.confirmed[static_cast<size_t>(row)];
  const size_t even = static_cast<size_t>((times_.passes + 1) / 2);
  if (!own.empty()) return own[pass % even * 2];
  const std::vector<std::vector<double>>& passes = measured_->rows[static_cast<size_t>(row)].passes;
  const std::vector<double>& samples = passes[random() % passes.size()];
  return samples[random() % samples.size()] * times_.scale;
}

ir::Target target_of(ir::IsaLevel level) {
  ir::Target target = ir::bare_target(level);
  target.l1_bytes = 48 << 10;
  target.l1_ways = 12;
  target.l2_bytes = 1 << 20;
  target.l3_bytes = 32 << 20;
  return target;
}

}  // namespace lathe::bench
