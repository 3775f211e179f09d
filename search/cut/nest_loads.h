// Integers of a nest that are read from inputs: which loads a walk may do, and how they are written in a Nest
// (ir/nest.h). What a leaf reads is leaf_form's affair.
#pragma once
#include <vector>

#include "ir/analysis/analysis.h"
#include "ir/base/status.h"
#include "ir/nest.h"

namespace lathe::search {

// Whether integers of the Kernel's nest may read one of its inputs.
bool may_load_integers(const ir::Kernel& kernel);

// The loops of the nest around an integer.
struct LoopsAround {
  ir::Ranges ranges;
  bool run = true;  // false: one of them never does, so nothing is read
};
LoopsAround loops_around(const ir::Kernel& kernel, const std::vector<const ir::Stmt*>& outer);

// The integer with each load as one of an element's offset. UNSUPPORTED: a load of what has no range of values, or one
// that is not proven to stay inside where these loops run.
ir::Result<ir::Expr> nest_integer(const ir::Kernel& kernel, const ir::Expr& e, const LoopsAround& loops);
// The same of all integers of a call.
ir::Status load_integers(const ir::Kernel& kernel, const LoopsAround& loops, ir::NestCall& call);

}  // namespace lathe::search
