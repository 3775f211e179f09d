// See transfer.h.
#include "search/strategy/transfer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "ir/analysis/analysis.h"

namespace lathe::search {

namespace {

constexpr double kSpecial = 3;   // distance between a size and a special value
constexpr double kFloor = -5.6;  // log2 share of what was never covered
constexpr int kPerRecord = 4;    // rows of a record that may enter a portfolio
constexpr size_t kNearestTasks = 4;
constexpr double kLikeness = 0.25;  // log2 of time: how far a like task may be off

constexpr double kCode = 1e6;  // coded knobs from here on are no sizes

using Coded = std::vector<double>;
double distance_of(const Coded& a, const Coded& b, double limit) {
  double d = 0;
  for (size_t i = 0; i < a.size() && d < limit; ++i) d += coded_distance(a[i], b[i]);
  return d;
}

struct NearestRow {
  size_t row = 0;
  double distance = std::numeric_limits<double>::infinity();
};
NearestRow nearest_row(const Coded& at, const std::vector<Coded>& rows) {
  NearestRow out;
  for (size_t i = 0; i < rows.size() && out.distance > 0; ++i) {
    if (const double d = distance_of(at, rows[i], out.distance); d < out.distance) out = {i, d};
  }
  return out;
}

// What a kernel is made of, extents aside: roles in order and the operations in use.
std::string structure_of(const ir::Kernel& kernel) {
  std::string out = kernel.family;
  std::set<int> ops;
  ir::for_each_stmt(kernel.body, [&](const ir::Stmt& s) {
    if (s.kind == ir::Stmt::Kind::scope) out += "/" + s.role;
    if (s.value) ir::for_each_node(s.value, [&](const ir::ExprNode& n) { ops.insert(static_cast<int>(n.op)); });
  });
  for (int op : ops) out += fmt::format(".{}", op);
  return out;
}

// log2 of the largest extent of each role; of batch and row scopes the product.
std::map<std::string, double> extents_by_role(const Problem& problem) {
  std::map<std::string, double> out;
  std::set<std::string> counted;
  ir::for_each_stmt(problem.kernel.body, [&](const ir::Stmt& s) {
    if (s.kind != ir::Stmt::Kind::scope || s.role.empty() || !counted.insert(s.iter).second) return;
    const double e = std::log2(static_cast<double>(std::max<int64_t>(1, extent_at(s.extent, problem))));
    double& total = out[s.role];
    total = s.role == "batch" || s.role == "row" ? total + e : std::max(total, e);
  });
  return out;
}

}  // namespace

std::vector<RankedRow> ranked_rows(const TaskRecord& record) {
  std::vector<RankedRow> out;
  for (const MeasuredRow& r : record.rows) {
    const double us = r.outcome == OutcomeKind::timed ? r.us(record.problem.cold) : 0;
    if (us > 0 && r.extra.empty() && !r.recipe.empty()) out.push_back({&r, us});
  }
  std::stable_sort(out.begin(), out.end(), [](const RankedRow& a, const RankedRow& b) { return a.us < b.us; });
  return out;
}

double coded_knob(const Knobs& knobs, const std::string& name) {
  const auto it = knobs.find(name);
  if (it == knobs.end()) return 2 * kCode;
  return it->second > 0 ? std::log2(static_cast<double>(it->second)) : kCode - static_cast<double>(it->second) * 100;
}
double coded_distance(double a, double b) { return a == b ? 0 : a >= kCode || b >= kCode ? kSpecial : std::abs(a - b); }

double knob_distance(const Knobs& a, const Knobs& b) {
  double d = 0;
  for (const auto& [name, value] : a) d += coded_distance(coded_knob(a, name), coded_knob(b, name));
  for (const auto& [name, value] : b) d += a.count(name) ? 0 : kSpecial;
  return d;
}

double task_distance(const Problem& a, const Problem& b) {
  if (a.kernel.family != b.kernel.family) return std::numeric_limits<double>::infinity();
  std::map<std::string, double> x = extents_by_role(a), y = extents_by_role(b);
  for (const auto& [role, extent] : x) y.emplace(role, 0);
  double sum = 0;
  for (const auto& [role, extent] : y) sum += (x[role] - extent) * (x[role] - extent);
  const double threads = 2 * std::abs(std::log2(static_cast<double>(std::max(1, a.threads)) / std::max(1, b.threads)));
  const double cold = a.cold != b.cold ? 3 : 0;
  const double structure = structure_of(a.kernel) != structure_of(b.kernel) ? 2 : 0;
  return std::sqrt(sum + threads * threads + cold * cold + structure * structure);
}

Coverage::Coverage(const std::vector<TaskRecord>& records, const Problem* near, double reach) {
  std::vector<std::pair<const TaskRecord*, std::vector<RankedRow>>> used;
  std::set<std::string> names;
  for (const TaskRecord& r : records) {
    std::vector<RankedRow> rows = ranked_rows(r);
    if (rows.empty()) continue;
    for (const RankedRow& row : rows) {
      for (const auto& [name, value] : row.row->knobs) names.insert(name);
    }
    used.emplace_back(&r, std::move(rows));
  }
  names_.assign(names.begin(), names.end());
  std::set<Coded> distinct;
  for (const auto& [record, rows] : used) {
    Task t;
    t.weight = record->trust;
    if (near != nullptr) t.weight *= std::exp(-task_distance(record->problem, *near) / reach);
    if (!(t.weight > 0)) continue;
    t.best_us = rows[0].us;
    t.covered = kFloor;
    for (size_t i = 0; i < rows.size(); ++i) {
      t.rows.push_back(code(rows[i].row->knobs));
      t.log_us.push_back(std::log2(rows[i].us));
      if (i < kPerRecord && distinct.insert(t.rows.back()).second)
        candidates_.push_back({rows[i].row->knobs, t.rows.back(), {}, false});
    }
    tasks_.push_back(std::move(t));
  }
  for (Candidate& c : candidates_) c.share = shares(c.coded);
}

Coverage::Coded Coverage::code(const Knobs& knobs) const {
  Coded out;
  for (const std::string& name : names_) out.push_back(coded_knob(knobs, name));
  return out;
}

std::vector<double> Coverage::shares(const Coded& at) const {
  std::vector<double> out;
  for (const Task& t : tasks_) {
    out.push_back(std::max(kFloor, std::log2(t.best_us) - t.log_us[nearest_row(at, t.rows).row]));
  }
  return out;
}

void Coverage::have(const Knobs& knobs) {
  const Coded at = code(knobs);
  const std::vector<double> share = shares(at);
  for (size_t t = 0; t < tasks_.size(); ++t) tasks_[t].covered = std::max(tasks_[t].covered, share[t]);
  for (Candidate& c : candidates_) c.taken |= c.coded == at;
}

void Coverage::observe(const Knobs& knobs, double us) { observed_.emplace_back(shares(code(knobs)), std::log2(us)); }

// Gaussian likelihood of the measured times under each record's own, up to a factor common to all of them.
std::vector<double> Coverage::weights() const {
  std::vector<double> out;
  for (size_t t = 0; t < tasks_.size(); ++t) {
    double mean = 0, square = 0;
    for (const auto& [share, log_us] : observed_) mean += (log_us + share[t]) / static_cast<double>(observed_.size());
    for (const auto& [share, log_us] : observed_) {
      const double d = std::min(std::abs(log_us + share[t] - mean), 3 * kLikeness);
      square += d * d;
    }
    out.push_back(tasks_[t].weight * std::exp(-square / (2 * kLikeness * kLikeness)));
  }
  return out;
}

std::optional<Knobs> Coverage::next() {
  const std::vector<double> weight = weights();
  Candidate* pick = nullptr;
  double most = 0;
  for (Candidate& c : candidates_) {
    if (c.taken) continue;
    double gain = 0;
    for (size_t t = 0; t < tasks_.size(); ++t) gain += weight[t] * std::max(0.0, c.share[t] - tasks_[t].covered);
    if (gain > most) {
      most = gain;
      pick = &c;
    }
  }
  if (pick == nullptr) return std::nullopt;
  pick->taken = true;
  for (size_t t = 0; t < tasks_.size(); ++t) tasks_[t].covered = std::max(tasks_[t].covered, pick->share[t]);
  return pick->knobs;
}

double distrust(const TaskRecord& record) { return 2 * (1 - record.trust); }

std::vector<NearRecord> near_records(const std::vector<TaskRecord>& records, const Problem& problem) {
  std::vector<std::pair<double, const TaskRecord*>> by_distance;
  for (const TaskRecord& r : records) {
    const double d = task_distance(r.problem, problem) + distrust(r);
    if (std::isfinite(d)) by_distance.emplace_back(d, &r);
  }
  std::stable_sort(by_distance.begin(), by_distance.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<NearRecord> out;
  for (const auto& [distance, record] : by_distance) {
    std::vector<RankedRow> rows = ranked_rows(*record);
    if (!rows.empty()) out.push_back({record, std::move(rows)});
  }
  return out;
}

std::vector<Knobs> nearest(const std::vector<TaskRecord>& records, const Problem& problem, int n) {
  std::vector<NearRecord> near = near_records(records, problem);
  if (near.size() > kNearestTasks) near.resize(kNearestTasks);
  std::vector<Knobs> out;
  for (size_t rank = 0; static_cast<int>(out.size()) < n; ++rank) {
    bool any = false;
    for (const NearRecord& of : near) {
      if (rank >= of.rows.size() || static_cast<int>(out.size()) >= n) continue;
      any = true;
      if (std::find(out.begin(), out.end(), of.rows[rank].row->knobs) == out.end())
        out.push_back(of.rows[rank].row->knobs);
    }
    if (!any) break;
  }
  return out;
}

std::vector<BodyRule> choose_bodies(const std::vector<int64_t>& lengths, const std::vector<std::vector<double>>& us,
                                    int k) {
  const size_t n = lengths.size(), configs = n == 0 ? 0 : us[0].size();
  if (n == 0 || configs == 0) return {};
  std::vector<double> best(n, 0);
  for (size_t i = 0; i < n; ++i) {
    for (double t : us[i]) best[i] = t > 0 && (best[i] == 0 || t < best[i]) ? t : best[i];
  }
  constexpr double kMissing = 16;  // log2 loss of a length nothing serves
  const auto loss = [&](size_t i, size_t c) { return us[i][c] > 0 ? std::log2(us[i][c] / best[i]) : kMissing; };
  const auto total = [&](const std::vector<size_t>& chosen) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
      double least = kMissing;
      for (size_t c : chosen) least = std::min(least, loss(i, c));
      sum += least;
    }
    return sum;
  };
  // Greedy, then single swaps until none helps.
  std::vector<size_t> chosen;
  double now = kMissing * static_cast<double>(n) + 1;
  while (static_cast<int>(chosen.size()) < k) {
    size_t pick = configs;
    double least = now - 1e-12;
    for (size_t c = 0; c < configs; ++c) {
      chosen.push_back(c);
      const double t = total(chosen);
      chosen.pop_back();
      if (t < least) {
        least = t;
        pick = c;
      }
    }
    if (pick == configs) break;
    chosen.push_back(pick);
    now = least;
  }
  for (bool improved = true; improved;) {
    improved = false;
    for (size_t& slot : chosen) {
      for (size_t c = 0; c < configs; ++c) {
        const size_t old = std::exchange(slot, c);
        if (const double t = total(chosen); t < now - 1e-9) {
          now = t;
          improved = true;
        } else {
          slot = old;
        }
      }
    }
  }
  std::vector<BodyRule> out;
  for (size_t i = 0; i < n; ++i) {
    size_t serve = configs;
    for (size_t c : chosen) {
      if (us[i][c] > 0 && (serve == configs || us[i][c] < us[i][serve])) serve = c;
    }
    if (serve == configs) return {};
    if (!out.empty() && out.back().config == static_cast<int>(serve)) {
      out.back().up_to = lengths[i];
    } else {
      out.push_back({lengths[i], static_cast<int>(serve)});
    }
  }
  return out;
}

int body_for(const std::vector<BodyRule>& rules, int64_t length) {
  for (const BodyRule& r : rules) {
    if (length <= r.up_to) return r.config;
  }
  return rules.empty() ? -1 : rules.back().config;
}

}  // namespace lathe::search
