// The candidates of a task, by number: the recipe's accepted configurations, then whatever the neighbourhood adds. Live
// search walks a RecipeSpace; a replay of measured tables brings its own. Not thread-safe.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "search/model/features.h"
#include "search/sketches/recipe.h"

namespace lathe::search {

struct SpacePoint {
  Knobs knobs;
  std::vector<Move> extra;  // appended to the recipe's moves; without knobs the whole Schedule
  Features features{};
  double estimate_us = 0;  // stage A
};

// A knob as a number, so that two of them subtract: log2 of a size; a code for a special value (<= 0) and for a knob
// that is absent.
double coded_knob(const Knobs& knobs, const std::string& name);
double coded_distance(double a, double b);

// How unlike two knob settings are: |log2| of the ratio of sizes, 3 where one is a special value (<= 0) or absent and
// the other is not.
double knob_distance(const Knobs& a, const Knobs& b);

class Space {
 public:
  virtual ~Space() = default;
  virtual int size() const = 0;  // grows by neighbours() and add() only
  virtual const SpacePoint& at(int i) const = 0;
  virtual int default_index() const = 0;
  virtual int nearest(
      const Knobs& knobs) = 0;  // an accepted configuration at the least distance, ties by number; -1: none
  virtual std::vector<int> neighbours(int i) = 0;              // one step away, in a fixed order; may grow the space
  virtual const std::vector<KnobDomain>& domains() const = 0;  // empty: no recipe
};

// Every configuration of the first matching recipe that its predicate accepts, in the order of its domains; without a
// recipe the naive kernel, which is the default, and the generic Schedules. Never empty: the default is in it.
// neighbours(): knobs one accepted value up and down, then moves (search/model/neighbours.h), which replay:
// milliseconds, once per point.
class RecipeSpace : public Space {
 public:
  RecipeSpace(const Problem& problem, const ir::Target& target, const MachineRates& rates);
  int size() const override;
  const SpacePoint& at(int i) const override;
  int default_index() const override;
  int nearest(const Knobs& knobs) override;
  std::vector<int> neighbours(int i) override;
  const std::vector<KnobDomain>& domains() const override;
  // A point with the Kernel its moves make. UNSUPPORTED: the moves are refused (counted: the predicate was wrong).
  ir::Result<Scheduled> scheduled(int i) const;
  // A Schedule from elsewhere (tuning spec, another shape's winner) as a point; its number, -1 if its moves are
  // refused.
  int add(const Schedule& schedule);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace lathe::search
