// A nest as people read it: loops, calls, variants, operands. For explain and dumps; nothing parses it.
#pragma once
#include <string>

#include "ir/nest.h"

namespace lathe::runtime {

std::string nest_text(const ir::CutKernel& cut);

}  // namespace lathe::runtime
