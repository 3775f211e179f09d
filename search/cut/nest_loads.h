// Integers of a nest that are read from inputs: which loads a walk may do, and how they are written in a Nest
// (ir/nest.h). What a leaf reads is leaf_form's affair.
#pragma once
#include "ir/analysis/analysis.h"
#include "ir/base/status.h"
#include "ir/nest.h"

namespace lathe::search {

// Whether integers of the Kernel's nest may read one of its inputs.
bool may_load_integers(const ir::Kernel& kernel);

// The integer with each load as one of an element's offset. UNSUPPORTED: a load of what has no range of values, or one
// that is not proven to stay inside where the loops of the nest, whose iterators `ranges` has, run.
ir::Result<ir::Expr> nest_integer(const ir::Kernel& kernel, const ir::Expr& e, const ir::Ranges& ranges);
// The same of all integers of a call.
ir::Status load_integers(const ir::Kernel& kernel, const ir::Ranges& ranges, ir::NestCall& call);

}  // namespace lathe::search
