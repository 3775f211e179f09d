// See device_choice.h.
#include "runtime/cuda/device_choice.h"

#include <fmt/ranges.h>

#include <charconv>

namespace lathe::runtime {

using ir::Result;

Result<DeviceChoice> choose_device(const std::string& cuda, const std::string& wanted) {
  constexpr std::string_view kPrefix = "cuda:";
  constexpr int kMostDevices = 64;
  DeviceChoice out;
  if (const auto row = ir::find_gpu_target(wanted)) {
    out.target = *row;
    return out;
  }
  std::string_view text = wanted;
  if (text.substr(0, kPrefix.size()) == kPrefix) text.remove_prefix(kPrefix.size());
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 || number >= kMostDevices)
    return ir::invalid("{}, expected the number of a CUDA device, or one of {}", wanted,
                       fmt::join(ir::gpu_target_names(), ", "));
  LATHE_ASSIGN(out.device, cuda_device(cuda, number));
  out.target = out.device->target();
  out.number = number + 1;
  return out;
}

}  // namespace lathe::runtime
