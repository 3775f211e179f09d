// LATHE_VERBOSE: one CSV line an event on standard error, only when asked for. Thread-safe (one write a line).
//   lathe_verbose,v1,event,kernel,tier,origin,reason,us
// Commas within a field become semicolons.
#pragma once
#include <string_view>

namespace lathe::runtime {

enum class Verbosity : int { none, warn, create };

struct VerboseEvent {
  std::string_view event;  // "create", "warn", "promotion", "range"
  std::string_view kernel;
  std::string_view tier;  // of a promotion: its state
  std::string_view origin, reason;
  double us = 0;
};
void verbose_line(const VerboseEvent& event);

}  // namespace lathe::runtime
