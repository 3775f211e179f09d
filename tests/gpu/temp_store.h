// A folder for a store, removed afterwards.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

namespace lathe::test {

struct TempStore {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("lathe_gpu_" + std::to_string(getpid()) + "_" + std::to_string(next++));
  TempStore() { std::filesystem::create_directories(path); }
  ~TempStore() { std::filesystem::remove_all(path); }
  TempStore(const TempStore&) = delete;
  TempStore& operator=(const TempStore&) = delete;
  static inline int next = 0;
  // Files of the store with that ending.
  std::vector<std::filesystem::path> files(const char* extension) const {
    std::vector<std::filesystem::path> out;
    for (const auto& f : std::filesystem::recursive_directory_iterator(path)) {
      if (f.path().extension() == extension) out.push_back(f.path());
    }
    return out;
  }
  std::filesystem::path cubin() const {
    const auto all = files(".cub");
    return all.empty() ? std::filesystem::path() : all.front();
  }
};

}  // namespace lathe::test
