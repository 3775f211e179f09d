// Where the real NVRTC is, if it is.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>

namespace lathe::test {

// LATHE_TEST_NVRTC, else what scripts/setup_gpu.sh fetched; empty: none.
inline std::string real_nvrtc_path() {
  if (const char* path = std::getenv("LATHE_TEST_NVRTC"); path != nullptr && *path != 0) return path;
  const std::filesystem::path folder = LATHE_SOURCE_DIR "/build/nvidia/lib";
  std::error_code none;
  for (const auto& f : std::filesystem::recursive_directory_iterator(folder, none)) {
    if (f.path().filename().string().rfind("libnvrtc.so.", 0) == 0) return f.path();
  }
  return {};
}

}  // namespace lathe::test
