// Why an operator is served as it is, as text for people: naive Kernel, Schedule move by move, scheduled Kernel, nest,
// leaves, predicted and measured time, the stored decision, and what differed where the store did not serve. Compiles
// what explaining needs; records nothing.
#pragma once
#include <string>
#include <vector>

#include "runtime/serve/operator.h"
#include "search/strategy/why.h"

namespace lathe::runtime {

struct ExplainedLeaf {
  std::string key;
  std::string text;
};

struct ExplainedKernel {
  std::string naive, schedule, scheduled, nest;
  std::vector<search::KnobReason> knobs;
  std::vector<search::MoveReason> moves;
  double predicted_us = 0;                          // by the analytic model; 0: none without a recipe
  double measured_us = 0, measured_default_us = 0;  // when it was decided; 0: never
  int tier = 1;
  std::vector<ExplainedLeaf> leaves;
  std::vector<std::pair<std::string, std::string>> refusals;  // move, reason
  bool stored = false;
  std::string decision;    // the record's text, if stored
  std::string miss;        // else why not
  std::string difference;  // "isa: here avx2, stored avx512": the first field that differs from what the store has
};

// refusals: at most so many of the moves that are not possible on the scheduled Kernel.
ir::Result<std::vector<ExplainedKernel>> explain(Operator& op, const SymbolValues& dims, const PrepareRequest& request,
                                                 int refusals);

}  // namespace lathe::runtime
