// Files that a caller names: read whole, regular ones only, at most so many bytes, without waiting for anybody (a FIFO
// has no writer, a device no end). And where in such a file something is wrong: FILE:LINE, as editors and scripts know
// it. Thread-safe.
#pragma once
#include <string>

#include "ir/base/status.h"

namespace lathe::runtime {

inline constexpr size_t kMaxTextFile = size_t{64} << 20;

// IO or INVALID, naming the path and, from the system, errno.
ir::Result<std::string> read_file(const std::string& path, size_t max_bytes = kMaxTextFile);

// An error of a parser, whose argument or message begins "line 3: " or "line 3, column 5: ", as one of this file:
// argument "path:3", or "path:3:5", message the rest. Others get the path alone.
ir::Status in_file(const std::string& path, const ir::Status& status);

}  // namespace lathe::runtime
