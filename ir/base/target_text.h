// A Target read back from Target::to_string(): how a child process is told which machine to build for. Pure.
#pragma once
#include <string_view>

#include "ir/base/status.h"
#include "ir/base/target.h"

namespace lathe::ir {

// INVALID: not what to_string() writes.
Result<Target> parse_target(std::string_view text);

}  // namespace lathe::ir
