// Why an operator runs on a GPU as it does, as text for people: naive Kernel, Schedule, scheduled Kernel, launches, the
// device program and its CUDA text, and what the compiler made of it. Needs no GPU; compiles where nothing is stored
// and there is a compiler. Records nothing.
#pragma once
#include <string>
#include <vector>

#include "runtime/cuda/device_choice.h"
#include "runtime/serve/operator.h"

namespace lathe::runtime {

struct ExplainedLaunch {
  std::string grid;  // extents, at the dims
  std::string leaf, program, text;
  std::string code;  // registers, instructions, accesses, compiler; or why there is none
};

struct ExplainedDeviceKernel {
  std::string naive, schedule, scheduled;
  std::vector<std::string> candidates;  // Schedules by rank, the one that serves among them, in a line each
  std::vector<ExplainedLaunch> launches;
  int64_t workspace = 0;  // bytes that the largest call of the range needs
  bool stored = false;
  std::string decision;  // the record's text, if stored
  std::string miss;      // else why not
};

// UNSUPPORTED: a GPU has no Schedule for it.
ir::Result<std::vector<ExplainedDeviceKernel>> explain_on_device(Operator& op, const SymbolValues& dims,
                                                                 const PrepareRequest& request, const DeviceChoice& on);

}  // namespace lathe::runtime
