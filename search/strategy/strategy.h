// Ask and tell: a strategy says which points of a space to measure next and is told what came of them. Behind it: no
// compiling, no clock, no thread, no I/O; same seed and same outcomes, same proposals. Live tuning, replay of tables
// and fault tests drive the same objects.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "search/model/cost_model.h"
#include "search/model/history.h"
#include "search/strategy/space.h"

namespace lathe::search {

// A measurement is one distinct candidate timed (the default included) with at most 3 samples.
struct SearchProblem {
  const Problem* problem = nullptr;
  const ir::Target* target = nullptr;
  Space* space = nullptr;
  const CostModel* model = nullptr;     // of the family; null: none
  const MachineRates* rates = nullptr;  // that the space's estimates were made with; null: as assumed of the target
  int budget = 16;                      // measurements
  uint64_t seed = 0;
  double limit_us = 0;     // no candidate can be faster; 0: unknown
  bool stop_early = true;  // may end before the budget where more is not worth it
};

struct Proposal {
  int point = -1;                   // of the space
  const char* stream = "";          // "default", "trees", "neighbour", "random", ...: why it is proposed
  double predicted = 0, sigma = 0;  // log2 share of the best; 0, 0: no opinion
};

struct Tell {
  int point = -1;
  Outcome kind = Outcome::timed;
  double us = 0;  // drift-corrected; only if timed
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual void start(const SearchProblem& problem) = 0;
  // Fills at most out.size() proposals, none proposed before; the number. 0: nothing left to propose. The first one
  // ever is the default.
  virtual int next(std::span<Proposal> out) = 0;
  virtual void tell(const Tell& outcome) = 0;
};

}  // namespace lathe::search
