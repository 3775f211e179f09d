// See nvidia_packages.h.
#include "jit/cuda/compile/nvidia_packages.h"

#include <algorithm>
#include <filesystem>

namespace lathe::jit {

namespace fs = std::filesystem;

std::vector<std::string> nvidia_packages(const ir::Environment& environment) {
  std::vector<std::string> prefixes, out;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const auto value = environment(variable); value && !value->empty()) prefixes.push_back(*value);
  }
  for (const char* prefix : {"/usr/local", "/usr"}) prefixes.emplace_back(prefix);
  for (const std::string& prefix : prefixes) {
    std::vector<std::string> found;
    std::error_code error;
    for (fs::directory_iterator at(prefix + "/lib", error), end; !error && at != end; at.increment(error)) {
      if (at->path().filename().string().rfind("python3", 0) != 0) continue;
      for (const char* packages : {"/site-packages/nvidia", "/dist-packages/nvidia"}) {
        std::error_code none;
        const std::string folder = at->path().string() + packages;
        if (fs::is_directory(folder, none)) found.push_back(folder);
      }
    }
    std::sort(found.rbegin(), found.rend());  // whatever order the file system has
    out.insert(out.end(), found.begin(), found.end());
  }
  return out;
}

}  // namespace lathe::jit
