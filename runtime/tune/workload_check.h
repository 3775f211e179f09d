// The whole-workload check of a tuning run (model_check.h) on real operators: each hinted size's calls in the order of
// the workload, with what serves untuned against what serves now. Runs both on the caller's thread; both have been
// verified.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/serve/operator.h"
#include "runtime/tune/model_check.h"

namespace lathe::runtime {

struct CheckedCall {
  std::shared_ptr<Operator> op;  // prepared, with what was tuned
  PrepareRequest request;
  SymbolValues dims;
  double weight = 1;
};

struct WorkloadCheck {
  int groups = 0, valid_groups = 0;
  int left_out = 0;                     // calls that take too much memory or cannot be bound
  double default_us = 0, tuned_us = 0;  // weighted sums over the groups, with what is kept
  std::vector<int> dropped;             // of the argument: what was tuned there costs its group
};

struct WorkloadCheckOptions {
  ModelCheckRules rules;
  int64_t ram = int64_t{2} << 30;  // a group's operands
  double group_ms = 4'000;         // a group that takes longer per comparison runs fewer pairs, five at the least
  std::function<bool()> cancelled;
};

// Groups are the values of each operator's first symbol. INVALID, ...: the untuned context cannot be made.
ir::Result<WorkloadCheck> check_workload(const Context& context, const std::vector<CheckedCall>& calls,
                                         const WorkloadCheckOptions& options);

}  // namespace lathe::runtime
