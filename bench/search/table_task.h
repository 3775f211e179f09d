// A measured task made ready for replay: what is true of each row, what a tuner would have seen of it, and the Space a
// strategy walks.
#pragma once
#include <cmath>
#include <map>
#include <random>

#include "bench/search/measured_table.h"
#include "search/strategy/space.h"

namespace lathe::bench {

using Random = std::mt19937_64;
constexpr int kFinalists = 4;

// The rows of a table by number: neighbours are the nearest measured settings along one knob; nearest() maps what is
// off the grid and counts it. Caches grow with use: one thread at a time.
class TableSpace : public search::Space {
 public:
  TableSpace(const MeasuredTask& task, const ir::Target& target, const search::MachineRates& rates);
  int size() const override { return static_cast<int>(points_.size()); }
  const search::SpacePoint& at(int i) const override { return points_[static_cast<size_t>(i)]; }
  int default_index() const override { return default_; }
  int nearest(const search::Knobs& knobs) override;
  std::vector<int> neighbours(int i) override;
  const std::vector<search::KnobDomain>& domains() const override { return domains_; }
  void set_default(int row) { default_ = row; }
  int64_t off_grid() const { return off_grid_; }

 private:
  std::vector<search::SpacePoint> points_;
  std::vector<search::KnobDomain> domains_;
  std::map<search::Knobs, int> exact_, mapped_;
  std::vector<std::vector<int>> neighbours_;
  int default_ = 0;
  int64_t off_grid_ = 0;
};

// Times of a table's rows by all that was sampled of them; NaN of what failed.
struct RowTimes {
  std::vector<double> us;
  std::vector<std::vector<double>>
      confirmed;              // samples of the further passes over the level of their pass, by row; empty without
  std::vector<double> again;  // the default's second ones, likewise
  int passes = 0, best = -1;
  double scale = 1;  // further passes over screening ones
};
RowTimes row_times(const MeasuredTask& task);

class TableTask {
 public:
  TableTask(const MeasuredTask& measured, const ir::Target& target, const search::MachineRates& rates);

  const MeasuredTask& measured() const { return *measured_; }
  // The row of the recipe's default as it is now; of the one when the table was measured, if that is not among the
  // rows.
  int standard() const { return standard_; }
  TableSpace& space() { return space_; }
  bool timed(int row) const { return !std::isnan(truth(row)); }
  // Time of a row by all that is known of it; NaN if it failed.
  double truth(int row) const { return times_.us[static_cast<size_t>(row)]; }
  // Share of the best row, by all passes: at most 1.
  double share(int row) const { return best_us_ / truth(row); }
  // Share of the reference (the best by the passes that selection may see) by the other passes, pair by pair.
  double fresh_share(int row) const { return fresh_[static_cast<size_t>(row)]; }
  int best() const { return times_.best; }
  double median_share() const { return median_share_; }

  // A further sample of the row in a recorded pass that selection may see, comparable with those of other rows in the
  // same pass; of a row that was not confirmed any of its samples.
  double sample(int row, size_t pass, Random& random) const;
  // The default timed again as if it were another row: its number in sample(), if that was recorded.
  static constexpr int kAgain = -1;
  bool timed_again() const { return !times_.again.empty(); }

 private:
  const MeasuredTask* measured_;
  TableSpace space_;
  RowTimes times_;
  std::vector<double> fresh_;
  int standard_ = 0;
  double best_us_ = 0, median_share_ = 0;
};

double median(std::vector<double> values);

// What a strategy takes the machine of a table for: the registers of its level, the caches of the machine that the
// tables at hand are from.
ir::Target target_of(ir::IsaLevel level);

}  // namespace lathe::bench
