// See pack.h.
#include "bench/search/pack.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/search/table_task.h"

namespace lathe::bench {

search::TaskRecord thinned(const MeasuredTask& task, int best, int rows) {
  search::TaskRecord out;
  out.problem = task.problem;
  out.isa = task.isa;
  out.environment = "pack";
  out.policy = task.problem.cold ? "cold" : "hot";
  const RowTimes times = row_times(task);
  const auto as_row = [&](size_t i) {
    const TableRow& r = task.rows[i];
    search::MeasuredRow m;
    m.recipe = task.recipe;
    m.knobs = r.knobs;
    m.outcome = r.outcome;
    if (!std::isnan(times.us[i])) m.samples_us = {rounded(times.us[i])};
    m.reference_us = 0;
    return m;
  };
  std::vector<std::pair<double, size_t>> ranked;
  for (size_t i = 0; i < task.rows.size(); ++i) {
    if (static_cast<int>(i) == task.default_row) continue;
    ranked.emplace_back(std::isnan(times.us[i]) ? 1e30 : times.us[i], i);
  }
  std::sort(ranked.begin(), ranked.end());
  out.rows.push_back(as_row(static_cast<size_t>(task.default_row)));
  const int others = std::min<int>(rows - 1, static_cast<int>(ranked.size()));
  const int front = std::min(best, others);
  std::set<size_t> keep;
  for (int n = 0; n < front; ++n) keep.insert(static_cast<size_t>(n));
  for (int n = 0; n < others - front; ++n) {
    const size_t rest = ranked.size() - static_cast<size_t>(front);
    keep.insert(static_cast<size_t>(front) + rest * static_cast<size_t>(n) / static_cast<size_t>(others - front));
  }
  for (size_t n : keep) out.rows.push_back(as_row(ranked[n].second));
  return out;
}

}  // namespace lathe::bench
