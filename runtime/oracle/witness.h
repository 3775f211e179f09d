// Step V1: whether a Schedule keeps a Kernel's meaning, by interpreting both on small shapes in a finite field, where
// equality needs no tolerance (ir/meaning/finite_field.h). Sizes of the Kernel and of the Schedule's tiles shrink
// together, so that bodies and tails run. What the field cannot express, or where functions make its answer arbitrary,
// is compared in f64 within a bound. Knows nothing of code: that is the oracle's (oracle.h). Not thread-safe.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/core/kernel.h"
#include "ir/meaning/interpreter.h"
#include "search/moves/schedule.h"

namespace lathe::runtime {

class Witness {
 public:
  using Replay = std::function<ir::Result<ir::Kernel>(const ir::Kernel&, const search::Schedule&)>;
  explicit Witness(ir::Kernel naive, uint64_t seed = 0) : naive_(std::move(naive)), seed_(seed) {}

  struct Verdict {
    bool checked = false;    // false: no small shape at which both can be interpreted
    std::string difference;  // "y[3, 17] at M=11 (finite field)"; empty: equal
  };
  // Once per structure: Schedules that shrink to the same text share a verdict.
  Verdict check(const search::Schedule& schedule, const Replay& replay = {});
  int interpreted() const { return interpreted_; }  // structures

 private:
  struct Shape {
    ir::SymbolValues symbols;
    std::map<std::string, ir::Tensor> inputs;
  };
  ir::Result<Verdict> compare(const ir::Kernel& naive, const ir::Kernel& scheduled, const std::vector<int64_t>& tiles);
  // Fills *out with the naive Kernel's results; from memory if they are known.
  ir::Status naive_results(const ir::Kernel& naive, const Shape& shape, ir::Arithmetic arithmetic,
                           std::map<std::string, ir::Tensor>* out);

  const ir::Kernel naive_;
  const uint64_t seed_;
  int interpreted_ = 0;
  std::map<std::string, Verdict> known_;  // by shrunken Schedule and Kernel
  std::map<std::string, std::map<std::string, ir::Tensor>> results_;
};

// The constants of a Kernel and the tile sizes of a Schedule, smaller; strength 0: as they are, 1: gently, 2: as much
// as they bear.
struct Shrunken {
  ir::Kernel kernel;
  search::Schedule schedule;
  std::vector<int64_t> tiles;  // sizes of its tiles, ascending
};
Shrunken shrink(const ir::Kernel& kernel, const search::Schedule& schedule, int strength);

}  // namespace lathe::runtime
