// The text of a device program in the one dialect that two compilers read: plain C++ and lt_* intrinsics, no header, no
// PTX, nothing of CUDA's own. It includes kPreludeName, which says what the intrinsics are: the device's prelude, which
// is handed to NVRTC with the text, or a host's, which tests have.
#pragma once
#include <string>

#include "jit/cuda/device_program.h"

namespace lathe::jit {

// Bumped when the text of some program may change: part of the identity of what is stored.
inline constexpr int kCudaTextEpoch = 17;
inline constexpr char kPreludeName[] = "lathe_prelude.h";

// `kernel`: the name of its entry, which takes one struct: an address of 8 bytes for each parameter, then 8 bytes for
// each size, then kMapBytes for each map, aligned to kMapAligned.
std::string cuda_text(const DeviceProgram& program, const std::string& kernel, int blocks = 1);
const std::string& device_prelude();

}  // namespace lathe::jit
