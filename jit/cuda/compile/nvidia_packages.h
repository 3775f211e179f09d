// Where Python's packages have NVIDIA's libraries.
#pragma once
#include <string>
#include <vector>

#include "ir/base/options.h"

namespace lathe::jit {

// Folders .../nvidia of the environment that is active (VIRTUAL_ENV, CONDA_PREFIX) and of the system's Python, those
// that are there.
std::vector<std::string> nvidia_packages(const ir::Environment& environment = ir::process_environment);

}  // namespace lathe::jit
