// Steps of the postfix programs of a nest (bound_nest.h) for operations of expressions.
#pragma once
#include <optional>

#include "ir/base/status.h"
#include "ir/core/expr.h"
#include "runtime/walk/bound_nest.h"

namespace lathe::runtime {

std::optional<ProgramStep::Kind> step_kind(ir::Op op);
ir::Result<ProgramStep::Kind> load_kind(ir::DType type);

}  // namespace lathe::runtime
