// Whether an operator's output may be exactly one of its inputs: every cell is loaded for the last time before it is
// stored.
#pragma once
#include "runtime/serve/operator.h"

namespace lathe::runtime {

// Conservative: a single Kernel of a family that may (ops/family.h), whose inputs of the output's rank are read at the
// stored cell, and not in any scope after the first that stores, and feed that store; under Schedules that keep this
// order.
bool may_run_in_place(const Operator& op);

}  // namespace lathe::runtime
