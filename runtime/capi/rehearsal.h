// What a process resolves first meets code that is not mapped yet and tables that nobody has made: that takes as long
// as the work itself. A rehearsal goes the same way once, from a graph to code, and keeps none of what it makes.
#pragma once
#include "ir/base/status.h"
#include "ir/base/target.h"

namespace lathe::runtime {

// Counts, stores and loads nothing. What fails here fails where it is asked for.
ir::Status rehearse_resolve(const ir::Target& target);

}  // namespace lathe::runtime
