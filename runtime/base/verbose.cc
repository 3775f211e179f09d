// See verbose.h.
#include "runtime/base/verbose.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "ir/base/file_limit.h"

namespace lathe::runtime {

void verbose_line(const VerboseEvent& e) {
  std::string line = "lathe_verbose,v1";
  for (const std::string_view field : {e.event, e.kernel, e.tier, e.origin, e.reason}) {
    std::string text(field);
    std::replace(text.begin(), text.end(), ',', ';');
    std::replace(text.begin(), text.end(), '\n', ' ');
    line += ',';
    line += text;
  }
  line += fmt::format(",{:.1f}\n", e.us);
  const ir::FileLimitGuard guard;
  // Nothing can be done about a full or closed standard error.
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

}  // namespace lathe::runtime
