// See verbose.h.
#include "runtime/verbose.h"

#include <fmt/format.h>
#include <unistd.h>

namespace lathe::runtime {

void verbose_line(const VerboseEvent& e) {
  const std::string line = fmt::format("lathe_verbose,v1,{},{},{},{},{},{:.1f}\n", e.event, e.kernel, e.tier, e.origin, e.reason, e.us);
  // Nothing can be done about a full or closed standard error.
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

}  // namespace lathe::runtime
