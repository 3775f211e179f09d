// The verbs of the command line on a GPU: what `--device` names, a GPU of the driver's (its number) or a kind (h200).
#pragma once
#include "runtime/cuda/device_choice.h"
#include "tools/cli.h"

namespace lathe::tools {

// --device.
void add_device(CLI::App& app, std::string* device);
// The GPU that was named. INVALID: the text is wrong; DEVICE: the driver lacks it.
ir::Result<runtime::DeviceChoice> device_of(const runtime::Context& context, const std::string& device);
// The same for a verb that runs something: INVALID, too, if it names a kind.
ir::Result<runtime::DeviceChoice> device_at_hand(const runtime::Context& context, const std::string& device);

// lathe info --device: the state of the back end, the GPU, driver and compiler, where decisions and code stand.
int info_on_device(const CommonOptions& options, const std::string& device);

// lathe explain --device, of these operators.
struct ExplainOnDevice : CommonOptions {
  std::string device;
  Shape shape;
};
int explain_on_device(const ExplainOnDevice& flags, const std::vector<ops::Workload>& items);

// lathe bench --device.
struct BenchOnDevice : CommonOptions {
  std::string device;
  Shape shape;
  bool cold = false, hot = false, samples = false;
  double row_ms = 400;
};
int bench_on_device(const BenchOnDevice& flags, const std::vector<ops::Workload>& items);

}  // namespace lathe::tools
